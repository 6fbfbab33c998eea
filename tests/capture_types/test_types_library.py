"""Python's own containers, functions and library, followed and held against eager."""

# Each function says things the long way on purpose: what is written here is what is captured.
# ruff: noqa: SIM118, C416, B019, PLE0643, UP045, UP031, RUF059

from __future__ import annotations

import binascii
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import logging
import operator
import os
import re
import struct
import types
import zlib
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple, Optional

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)
CASES: list[Any] = []


def case(*args: Any) -> Any:
    """The function below is followed with these arguments."""

    def register(fn: Any) -> Any:
        CASES.append(pytest.param(fn, args, id=fn.__name__))
        return fn

    return register


# -- tuples with names -----------------------------------------------------------------------------------------------
Point = namedtuple("Point", "x y", defaults=(3,))


class Typed(NamedTuple):
    x: Any
    n: int = 2

    def scaled(self):
        return self.x * self.n


@case(X, Point(X, 2))
def named_fields(x, p):
    return p.x * p.y + p[0] + x, p._fields, len(p)


@case(X)
def named_made(x):
    p = Point(x + 1)
    q = p._replace(y=x)
    return p, q, q._asdict(), Point._make([x, 1]), Typed(x).scaled(), Typed(x, 3)


@case(X)
def named_unpacked(x):
    a, b = Point(x, x * 2)
    return a + b, Point(1, 2) == (1, 2), isinstance(Point(1, 2), tuple)


@case(torch.rand(3, 4))
def structure_sequence(x):
    m = torch.max(x, dim=0)
    values, indices = torch.sort(x)
    return m.values + 1, m.indices, values, torch.topk(x, 2).values


@case(X)
def namedtuple_in_frame(x):
    Out = namedtuple("Out", ["a", "b"])
    out = Out(x, x + 1)
    return out.a + out.b


# -- dicts and their kin ---------------------------------------------------------------------------------------------
@case(X, OrderedDict(a=1, b=X, c=3))
def ordered(x, d):
    d.move_to_end("a")
    d["z"] = x
    d.move_to_end("c", last=False)
    first = next(iter(d))
    key, value = d.popitem(last=False)
    return list(d), first, key, value, OrderedDict(a=1, b=2) == OrderedDict(b=2, a=1), OrderedDict(a=1) == {"a": 1}


@case(X, {"a": 1, "b": 2})
def views(x, d):
    common = d.keys() & {"a", "q"}
    return x + len(common), "a" in d.keys(), ("a", 1) in d.items(), sorted(d), list(reversed(d)), max(d, key=d.get)


@case(X)
def default_dict(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["a"].append(x + 1)
    d["b"]
    return d, len(d), d.get("c"), torch.stack(d["a"])


@case(X)
def counter(x):
    c = Counter("abracadabra")
    c.update(["a", "z"])
    return x * c["a"], c["nothing"], c.most_common(2), dict(c)


class Hashed:
    """An object that tells when it is hashed and compared."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def __hash__(self) -> int:
        self.told.append("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        self.told.append("eq")
        return True


@case(X)
def counter_of_objects(x):
    told: list[str] = []
    counted = Counter([Hashed(told), Hashed(told)])
    return x + sum(counted.values()), told


@dataclasses.dataclass(frozen=True)
class Holder:
    held: Hashed


@case(X, {"a": X})
def merged(x, d):
    e = {**d, "b": x}
    f = d | {"c": 1}
    e |= {"k": 2}
    return e, f, dict(zip("xy", (1, x))), {k: v for k, v in e.items() if k != "a"}, d != {"a": 1, "b": 2}


PROXY = types.MappingProxyType({"a": X, "b": 2})


@case(X)
def proxy(x):
    p = PROXY
    return p["a"] + p["b"], list(p), "a" in p, p.get("q", 5), len(p), {k: v for k, v in p.items()}


# -- iterators -------------------------------------------------------------------------------------------------------
@case(X)
def itertools_all(x):
    out = []
    out += itertools.chain([1, x], (2,), itertools.chain.from_iterable([[3], [x]]))
    out += itertools.zip_longest([1, 2], [x], fillvalue=0)
    out += itertools.islice(itertools.count(5, 2), 1, 4)
    out += itertools.repeat(x, 2)
    out += itertools.accumulate([1, 2, 3])
    out += itertools.accumulate([x, x], operator.mul, initial=2)
    out += itertools.starmap(operator.sub, [(3, 2), (x, 1)])
    out += itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])
    out += itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])
    out += itertools.filterfalse(None, [0, 1, 2])
    out += itertools.compress([x, 1, 2], [1, 0, 1])
    out += itertools.pairwise([1, 2, x])
    out += itertools.product([1, 2], "ab", repeat=1)
    out += itertools.permutations([1, x], 2)
    out += itertools.combinations([1, 2, x], 2)
    out += zip(itertools.cycle([1, 2]), range(5))
    a, b = itertools.tee([1, x])
    return out, list(a), list(b)


@case(X)
def grouped(x):
    return [(key, list(group)) for key, group in itertools.groupby([1, 3, 2, 4, 5], key=lambda n: n % 2)], x + 1


@case(X)
def groups_left(x):
    return [key for key, _ in itertools.groupby("aabbca")], x + 1


@case(X)
def sums(x):
    return functools.reduce(operator.add, [x, x, 1]), functools.reduce(lambda a, b: a * b, [2, 3], 4), sum([x, 1])


@case(X)
def generators(x):
    def gen(n):
        got = []
        try:
            for i in range(n):
                got.append((yield x * i))
        except ValueError as error:
            got.append(str(error))
            yield "caught"
        finally:
            got.append("end")
        return got

    g = gen(3)
    first = next(g)
    second = g.send("hello")
    third = g.throw(ValueError("oops"))
    try:
        next(g)
    except StopIteration as stop:
        fourth = stop.value
    h = gen(2)
    next(h)
    h.close()
    return first, second, third, fourth, next(h, "done"), list(gen(2))


@case(X)
def delegated(x):
    def inner():
        yield x
        return "result"

    def outer():
        got = yield from inner()
        yield got

    return list(outer()), [*(i for i in range(2))]


@case(X)
def generator_stop(x):
    def gen():
        yield x
        next(iter([]))

    try:
        return list(gen())
    except RuntimeError as error:
        return str(error), x + 1


# -- functions -------------------------------------------------------------------------------------------------------
@case(X)
def wrapped(x):
    def deco(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            """Wrapper."""
            return f(*args, **kwargs) + 1

        wrapper.calls = 3
        return wrapper

    @deco
    def twice(y):
        """Doubles."""
        return y * 2

    return twice(x), twice.__name__, twice.__doc__, twice.calls, twice.__wrapped__(x)


def plain(a, b: int = 2, *args, c=X, **kw) -> int:
    return a


class Shape:
    def area(self, w, h=1):
        return w * h


@case(X, Shape())
def signatures(x, s):
    sig = inspect.signature(plain)
    bound = sig.bind(x, 3, c=4)
    bound.apply_defaults()
    kinds = [p.kind.name for p in sig.parameters.values()]
    return (
        list(sig.parameters),
        kinds,
        sig.parameters["c"].default + 1,
        bound.arguments["b"],
        len(inspect.signature(s.area).parameters),
        list(inspect.signature(lambda q, *, r=1: q).parameters),
        "b" in inspect.signature(functools.partial(plain, x)).parameters,
    )


@case(X)
def partials(x):
    p = functools.partial(plain, c=1)
    return p(x), p.keywords, p.args, functools.partial(operator.add, x)(1)


@case(X, Point(X, [1, X]))
def getters(x, p):
    return (
        operator.attrgetter("x")(p) + 1,
        operator.itemgetter(1, 0)([x, 2]),
        operator.methodcaller("add", 2)(x),
        operator.methodcaller("sum", dim=0)(x),
        sorted([(2, "b"), (1, "z")], key=operator.itemgetter(0)),
    )


@functools.lru_cache
def doubled(n, key=None):
    return n * 2


class Recipe:
    n = 4


@functools.lru_cache
def of_object(obj, n):
    return [obj.n + n]


@case(X, 3)
def cached(x, n):
    return x * doubled(n), doubled("ab")


RECIPE = Recipe()


@case(X)
def cached_object(x):
    return x * of_object(RECIPE, 2)[0], of_object(RECIPE, 2) is of_object(RECIPE, 2)


class Lazy:
    def __init__(self, x):
        self.x = x
        self.asked = 0

    @functools.cached_property
    def heavy(self):
        self.asked += 1
        return self.x * 2

    @property
    def light(self):
        return self.x + 1

    @light.setter
    def light(self, value):
        self.x = value - 1

    @functools.lru_cache
    def power(self, n):
        return n**2

    @staticmethod
    def static(v):
        return v * 3

    @classmethod
    def build(cls, v):
        return cls(v)


LAZY = Lazy(1)


@case(X, Lazy(X))
def lazily(x, obj):
    cube = LAZY.power(3)
    a = obj.heavy + obj.heavy
    obj.light = x * 5
    return a + obj.light, cube, obj.asked, Lazy.static(x), obj.build(x).heavy, Lazy.build(x)


# -- identity --------------------------------------------------------------------------------------------------------
@case(X, Lazy(X), Lazy(X))
def ids(x, a, b):
    memo = {id(a): x}
    memo[id(b)] = x + 1
    return memo[id(a)], id(a) == id(b), id(a) in memo, id(x) in memo, len({id(a), id(b), id(a)})


@case(X, {"a": [1, X], "b": Lazy(2)})
def copies(x, d):
    shallow = copy.copy(d)
    deep = copy.deepcopy({"a": [1, (2, 3)], "b": d["b"]})
    deep["a"].append(x)
    deep["b"].x = 7
    other = copy.copy(d["b"])
    other.x = 1
    kinds = {"s": {1, 2}, "o": OrderedDict(k=[1]), "d": defaultdict(list, a=[2])}
    return shallow, deep, other, copy.copy([1, x]), copy.deepcopy(kinds), copy.copy({1})


# -- contexts and exceptions -----------------------------------------------------------------------------------------
@contextlib.contextmanager
def scaled(log, n):
    log.append("in")
    try:
        yield n
    except KeyError:
        log.append("key error")
    finally:
        log.append("out")


@case(X)
def contexts(x):
    log = []
    with scaled(log, 2) as n, contextlib.nullcontext(3) as m:
        y = x * n * m
    with contextlib.suppress(ValueError, KeyError):
        log.append("before")
        raise ValueError("no")
    with scaled(log, 2):
        raise KeyError("q")
    with contextlib.ExitStack() as stack:
        k = stack.enter_context(scaled(log, 5))
        stack.callback(log.append, "callback")
    return y * k, log


class Custom(Exception):
    def __init__(self, code, x):
        super().__init__(f"code {code}")
        self.code = code
        self.x = x


@case(X)
def exceptions(x):
    out = []
    try:
        raise Custom(3, x)
    except Custom as error:
        out += [error.code, str(error), error.x + 1, error.args]
    try:
        {}["k"]
    except KeyError as error:
        out += [str(error), error.args, type(error).__name__]
    try:
        [][1]
    except (IndexError, TypeError) as error:
        out.append(str(error))
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        out.append(str(error.__cause__))
    try:
        x.no_such_attribute
    except AttributeError:
        out.append("none")
    return out


# -- classes ---------------------------------------------------------------------------------------------------------
class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def shade(self):
        return self.name.lower()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Config:
    width: int = 2
    items: list = dataclasses.field(default_factory=list)
    x: Optional[torch.Tensor] = None

    def __post_init__(self):
        self.area = self.width**2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 1


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a

    def __getattr__(self, name):
        if name == "b" or name.startswith("__"):
            raise AttributeError(name)
        return f"made {name}"


@case(X, Color.RED, {"c": Color.BLUE})
def enums(x, c, d):
    return (
        c.value,
        c is Color.RED,
        Color("b") is d["c"],
        Color["RED"].shade,
        x * Level.HIGH,
        [m.name for m in Color],
        Level(1) < Level.HIGH,
        {Color.RED: x}[c],
    )


@case(X, Config(x=X))
def dataclass(x, c):
    c.items.append(x)
    d = dataclasses.replace(c, width=5)
    names = [f.name for f in dataclasses.fields(c)]
    return c.area + x, d, names, Config(3), Frozen(1) == Frozen(1), Frozen(1) < Frozen(2), dataclasses.is_dataclass(c)


@case(X)
def as_dict(x):
    return dataclasses.asdict(Config(3, [1, 2])), x + 1


@case(X, Slotted(X))
def slots(x, s):
    t = Slotted(x + 1)
    t.b = 2
    return s.a + t.b, s.other, getattr(s, "b", "unset"), hasattr(s, "b"), t


class Base:
    kind = "base"
    registry: dict = {}

    def __init__(self, x):
        self.x = x

    def run(self, y):
        return self.x + y

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)


class Child(Base):
    kind = "child"

    def __init__(self, x):
        super().__init__(x)
        self.y = 2

    def run(self, y):
        return super().run(y) * self.y

    def __len__(self):
        return 3

    def __contains__(self, item):
        return item == 1

    def __call__(self, z):
        return self.run(z)

    def __getitem__(self, key):
        return self.x[key]

    def __iter__(self):
        return iter([self.x, self.y])

    def __eq__(self, other):
        return isinstance(other, Child)

    __hash__ = None


@case(X)
def classes(x):
    c = Child(x)
    same = type(c)(x + 1)
    return (
        c.run(1),
        c(2),
        len(c),
        1 in c,
        c[0],
        list(c),
        c == same,
        type(c).__name__,
        [k.__name__ for k in type(c).__mro__],
        Child.__bases__[0].kind,
        [k.__name__ for k in Base.__subclasses__()],
        issubclass(Child, Base),
        bool(c),
        same,
    )


@case(X)
def strings(x):
    text = "Hello, {name}".format(name="you")
    return (
        x,
        text.upper().split(", "),
        re.sub(r"\d+", "#", "a1b22"),
        re.match(r"(\w+)\.(\d+)", "layer.12").group(2),
        f"{3.14159:.2f} {'q'!r} {text:>12}",
        "%s-%d" % ("a", 3),
        "a,b".partition(","),
        ", ".join(sorted({"b", "a"})),
        [m for m in re.findall("[a-c]", "abcd")],
    )


@case(X)
def environment(x):
    if os.environ.get("TORCHDYNAMO_NO_SUCH_SETTING", "0") == "1" or os.getenv("NO_SUCH_EITHER"):
        return x
    return x + len(os.environ.get("PATH", ""))


LOGGER = logging.getLogger("torchdynamo.tests.quiet")


@case(X)
def quiet_log(x):
    LOGGER.debug("not shown")
    if LOGGER.isEnabledFor(logging.DEBUG):
        return x
    return x + 1


@case(X)
def comprehensions(x):
    rows = [[x * i for i in range(2)] for _ in range(2)]
    flat = [v for row in rows for v in row]
    found = {n: v for n, v in enumerate(flat) if n}
    sets = {n % 2 for n in found}
    first, *rest = flat
    return rows, found, sets, first, rest, any(n > 2 for n in found), all(v is not None for v in flat)


UNION = int | None


@case(X)
def unions(x):
    u = UNION
    return x, isinstance(3, u), isinstance(x, (int, torch.Tensor)), isinstance(None, Optional[int]), callable(u)


@case(X)
def containers(x):
    items = [3, 1, 2]
    items.sort(reverse=True)
    items.insert(0, x)
    items[1:2] = [7, 8]
    del items[-1]
    s = {1, 2} ^ {2, 3}
    return (
        items,
        s,
        (1, x) + (2,),
        [0] * 2,
        [7, 8].index(8),
        [1, 2, 3][::-1],
        collections.ChainMap({"a": 1}, {"b": x})["b"],
    )


@case(X, types.SimpleNamespace(a=1))
def namespaces(x, given):
    given.b = x
    made = types.SimpleNamespace(a=given.a, b=x)
    made.c = 3
    return made.a + made.c, made.b + 1, made, os.path.join("a", "b"), frozenset([1, 2]) | {3}, {3} | frozenset([1])


@case(X)
def packed(x):
    data = struct.pack("<If", 7, 0.5) + bytes(n for n in (1, 2)) + bytes(map(abs, (-3, 4)))
    numbers = struct.unpack_from("<If", data), struct.calcsize("<If"), zlib.crc32(data), binascii.hexlify(data)
    try:
        bytes(n for n in (1, 256))
    except ValueError as error:
        return x, data, numbers, str(error), zlib.decompress(zlib.compress(data))


@pytest.mark.parametrize(("fn", "args"), CASES)
def test_as_eager(fn: Any, args: tuple[Any, ...]) -> None:
    check(fn, args)


def test_what_is_changed_by_use_is_made_in_every_call() -> None:
    def fn(x):
        box = bytearray(4)
        struct.pack_into("<H", box, 1, 513)
        return x, bytes(box), [*struct.iter_unpack("<H", b"abcd")]

    compiled = torchdynamo.compile(fn, backend="eager")
    assert [str(compiled(X)) for _ in range(2)] == [str(fn(X))] * 2


def test_a_dataclass_as_a_key_hashes_what_it_holds_once() -> None:
    told: list[str] = []
    kept: dict[Holder, int] = {}

    def fn(x):
        y = x + 1
        kept[Holder(Hashed(told))] = 1
        return y

    torchdynamo.compile(fn, backend="eager")(X)
    assert told == ["hash"]
