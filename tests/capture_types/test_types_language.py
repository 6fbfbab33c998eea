"""The language itself: classes, descriptors, closures, control flow, followed and held against eager."""

from __future__ import annotations

import abc
import collections
import collections.abc
import dataclasses
import enum
import functools
import inspect
import math
import operator
import threading
import typing
from typing import Any

import pytest
import torch
from following import check

# Each function says things the long way on purpose: what is written here is what is captured.
# ruff: noqa: B010, B012, C406, C408, C416, PIE800, PIE804, PLE0643, RUF017, UP030, UP031, RET504

X = torch.arange(4.0)
CASES: list[Any] = []


def case(*args: Any) -> Any:
    """The function below is followed with these arguments."""

    def register(fn: Any) -> Any:
        CASES.append(pytest.param(fn, args, id=fn.__name__))
        return fn

    return register


class Attrs:
    def __init__(self, **kw):
        self.__dict__.update(kw)


@case(X, Attrs(a=1, b=X, c=[1]))
def instance_dicts(x, o):
    o.__dict__["d"] = x
    o.__dict__.update(e=2)
    o.c += [x]
    del o.a
    setattr(o, "f", 3)
    names = list(vars(o))
    return names, "a" in o.__dict__, o.__dict__.get("b") + 1, {k: v for k, v in vars(o).items() if k != "c"}, Attrs(q=x)


class Guarded:
    def __init__(self, x):
        object.__setattr__(self, "log", [])
        self.x = x

    def __setattr__(self, name, value):
        self.log.append(name)
        super().__setattr__(name, value)

    def __getattr__(self, name):
        if name.startswith("get_"):
            return getattr(self, name[4:])
        raise AttributeError(name)

    def __delattr__(self, name):
        self.log.append("-" + name)
        object.__delattr__(self, name)


@case(X, Guarded(X))
def attribute_hooks(x, g):
    g.y = x + 1
    del g.y
    return g.get_x + 1, hasattr(g, "nothing"), getattr(g, "y", 5), Guarded(x)


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.name)

    def __set__(self, obj, value):
        if isinstance(value, int) and value < 0:
            raise ValueError("negative")
        setattr(obj, self.name, value)


class Described:
    size = Positive()

    def __init__(self, size):
        self.size = size


@case(X, Described(3))
def descriptors(x, d):
    try:
        d.size = -1
    except ValueError as error:
        text = str(error)
    d.size = 4
    return x * d.size, text, Described(2).size


class Left:
    def who(self):
        return ["left", *super().who()]


class Right:
    def who(self):
        return ["right"]


class Both(Left, Right):
    def who(self):
        return ["both", *super().who()]

    @classmethod
    def make(cls, *args):
        return cls(*args)

    @property
    def name(self):
        return type(self).__name__


class Meta(type):
    @property
    def label(cls):
        return cls.__name__.lower()

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.stamped = True
        return made

    def __getitem__(cls, key):
        return (cls.__name__, key)

    def __len__(cls):
        return 7


class Stamped(metaclass=Meta):
    def __init__(self, x):
        self.x = x


@case(X)
def inheritance(x):
    b = Both.make()
    s = Stamped(x)
    return b.who(), b.name, s.stamped, s.x + 1, Stamped.label, Stamped["k"], len(Stamped), isinstance(b, Right)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def double(self):
        return self.area() * 2


class Square(Shape):
    def __init__(self, w):
        self.w = w

    def area(self):
        return self.w**2


class Items(collections.abc.Sequence):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        return self.items[at]


@case(X, Items([1, 3, X]))
def abstract_classes(x, items):
    try:
        Shape()
    except TypeError:
        refused = True
    first, *_ = items
    return (
        Square(x).double(),
        refused,
        isinstance(items, collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        isinstance([], collections.abc.Hashable),
        first,
        3 in items,
        items.index(3),
        list(reversed(items))[0],
        isinstance(x, collections.abc.Iterable),
    )


class Plain:
    def __repr__(self):
        return "plain"


class Number:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return Number(self.n + (other.n if isinstance(other, Number) else other))

    __radd__ = __add__

    def __iadd__(self, other):
        self.n += other
        return self

    def __mul__(self, other):
        return NotImplemented

    def __rmul__(self, other):
        return ("rmul", other)

    def __lt__(self, other):
        return self.n < other.n

    def __index__(self):
        return 1

    def __bool__(self):
        return self.n != 0

    def __neg__(self):
        return Number(-self.n)

    def __repr__(self):
        return f"Number({self.n})"

    def __format__(self, spec):
        return f"<{self.n}{spec}>"

    def __matmul__(self, other):
        return self.n, other

    def __hash__(self):
        return hash(self.n)

    def __eq__(self, other):
        return isinstance(other, Number) and self.n == other.n


@case(X, Number(3))
def operators_of_classes(x, n):
    m = n + 2
    m = 1 + m
    n += 4
    return (
        m.n,
        n,
        2 * n,
        Number(1) < Number(2),
        max(Number(3), Number(5)).n,
        [x, x + 1][n],
        "yes" if Number(0) else "no",
        (-n).n,
        repr(n),
        f"{n:.2}",
        str(n),
        f"{Plain()} {Plain()!s:>7}",
        n @ 3,
        n == Number(7),
        n != Number(7),
        n != Number(8),
        n != 3,
        sorted([3, 1, 2], key=lambda v: -v),
        3 + n == Number(10),
    )


@case(X)
def closures(x):
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return count

    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    makers = [lambda y, i=i: y * i for i in range(3)]
    bump()
    bump(by=5)
    return x * count, fact(5), [m(x) for m in makers], [f() for f in [lambda: count]]


@case(X)
def functions_returned(x):
    scale = x.sum()

    def inner(y, *args, k=2, **kw):
        return y * scale * k

    return inner(x), (lambda: 3)()


def many(a, /, b, *rest, c=1, **others):
    return a, b, rest, c, others


@case(X)
def calls(x):
    args = (x, 2)
    try:
        many()
    except TypeError:
        missing = "missing"
    try:
        many(1, 2, b=3)
    except TypeError:
        double = "double"
    return many(*args), many(1, b=x), many(*args, 3, *[4], c=5, **{"d": x}), missing, double, many(1, 2, a=3)


@case(X, 3)
def control(x, n):
    out = []
    for i in range(10):
        if i == 2:
            continue
        if i > n:
            break
        out.append(i)
    else:
        out.append("else")
    while n:
        n -= 1
        if n == 100:
            break
    else:
        out.append("done")
    if (m := len(out)) > 2 and 0 < m < 100:
        out.append(m)
    a, (b, *c), d = 1, (2, 3, 4), x
    out += [a, b, c, d]
    i, out[0] = 0, "swapped"
    return out


@case(X)
def finally_order(x):
    log = []

    def inner(kind):
        try:
            log.append(kind)
            if kind == "return":
                return "returned"
            if kind == "raise":
                raise KeyError(kind)
        except KeyError:
            log.append("caught")
            return "handled"
        else:
            log.append("else")
        finally:
            log.append("finally")
        return "end"

    results = [inner(kind) for kind in ("return", "raise", "none")]

    def override():
        for i in range(3):
            try:
                return i
            finally:
                if i < 2:
                    continue
        return None

    return results, log, x + 1


class Manager:
    def __init__(self, log, swallow=False):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(kind.__name__ if kind else None)
        return self.swallow


@case(X, [])
def managers(x, log):
    with Manager(log) as m, Manager(m.log, swallow=True):
        raise ValueError("swallowed")
    try:
        with Manager(log):
            x = x + 1
            raise KeyError("passes")
    except KeyError:
        log.append("outside")
    for _ in range(2):
        with Manager(log):
            if len(log) > 3:
                break
    return x


@case(X, {"kind": "square", "side": 3})
def matching(x, d):
    match d:
        case {"kind": "circle"}:
            a = 0
        case {"kind": "square", "side": side}:
            a = side * side
    match [1, 2, 3]:
        case [1, *rest]:
            b = rest
    match Square(2):
        case Square(w=w):
            c = w
    match 5:
        case 1 | 2:
            e = "low"
        case n if n > 4:
            e = "high"
    return x * a, b, c, e


@case(X)
def builtins_all(x):
    return (
        list(map(lambda a, b: a * b, [1, x], [x, 2])),
        list(filter(None, [0, 1, "", "a"])),
        list(zip("ab", [x, 1], strict=True)),
        list(enumerate([x], start=5)),
        list(reversed([1, x])),
        list(reversed(range(3))),
        list(iter([1, 2].pop, 1)),
        min([3, 1], key=lambda v: -v),
        max([], default="none"),
        sum([[1], [2]], []),
        divmod(7, 2),
        round(2.567, 1),
        abs(-3),
        pow(2, 5, 7),
        int("12"),
        float("1.5"),
        bool([]),
        str(3.5),
        hex(255),
        chr(97),
        ord("a"),
        bytes(2),
        complex(1, 2),
        tuple(range(2)),
        set("aa"),
        frozenset([1]),
        slice(1, 2),
        isinstance(True, int),
        hash("a") == hash("a"),
        math.floor(2.5) + math.sqrt(4) + math.pi,
        all([]),
        any(v for v in (0, 1)),
        next(iter([]), "default"),
        getattr(x, "no_such", "default"),
        format(3.14159, ".2f"),
        dict(a=1, **{"b": x}),
        dict([("k", x)]),
        list({"a": 1}.items()),
        [*range(2), *"ab"],
        {**{"a": 1}, "b": 2},
        sorted({"b": 1, "a": 2}.items(), key=lambda kv: kv[1], reverse=True),
        ",".join(str(i) for i in range(3)),
        type(x) is torch.Tensor,
        type(x).__name__,
        callable(len) and callable(Attrs) and not callable(3),
        id(x) == id(x),
        operator.add(x, 1),
        ascii("é"),
    )


@case(X)
def errors_of_python(x):
    found = []
    for act in (
        lambda: [1][5],
        lambda: {}["k"],
        lambda: int("z"),
        lambda: 1 / 0,
        lambda: None.nothing,
        lambda: (1).nothing,
        lambda: [] + (),
        lambda: len(3),
        lambda: next(iter([])),
        lambda: "a" + 1,
        lambda: Attrs().zzz,
        lambda: many(),
        lambda: [1, 2].index(9),
        lambda: [].pop(),
        lambda: {1}.remove(2),
        lambda: (lambda: undefined_name)(),  # noqa: F821
        lambda: max([]),
        lambda: {[]: 1},
    ):
        try:
            act()
        except Exception as error:
            found.append(type(error).__name__)
    return found, x + 1


@case(X)
def changed_while_iterating(x):
    d = {"a": 1, "b": 2}
    try:
        for key in d:
            d[key + "x"] = 1
    except RuntimeError as error:
        text = str(error)
    grown = [1, 2]
    for item in grown:
        if len(grown) < 5:
            grown.append(item * 2)
    return text, grown, x + 1


@case([X, X + 1], {"k": [X]}, {1, 2})
def mutations(a, d, s):
    a[0] = a[1] * 2
    a.extend(d["k"])
    d["new"] = a
    d["k"].append(d["k"][0] + 1)
    del a[1]
    s |= {3}
    s.discard(1)
    d.setdefault("z", []).append(4)
    return a[0] + 1, d.pop("new") is a, len(s)


SHARED = [X]


@case(SHARED, SHARED)
def aliases(a, b):
    a.append(1)
    return a is b, len(b), b[0] + 1


@functools.singledispatch
def kind_of(v):
    return "object"


@kind_of.register
def _(v: int):
    return "int"


@kind_of.register(list)
def _(v):
    return "list"


@case(X)
def dispatched(x):
    return kind_of.registry[int](3), x + 1


@functools.total_ordering
class Ordered:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        return self.n < other.n

    def __eq__(self, other):
        return self.n == other.n

    __hash__ = None

    def half(self, a, b):
        return a - b

    quarter = functools.partialmethod(half, 4)


@case(X)
def functools_classes(x):
    return Ordered(1) >= Ordered(0), Ordered(1).quarter(x)


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Key:
    a: int
    b: str = "x"


@case(X)
def keys_of_all_kinds(x):
    d = {(1, "a"): x, None: 1, Flags.A: 2, int: 3, 2.0: 4, len: 5, x: 6, True: 7}
    return d[1, "a"], d[None], d[Flags.A], d[int], d[2], d[len], d[x], d[1], Flags.A | Flags.B, bool(Flags.A & Flags.B)


@case(X)
def hashed(x):
    return hash((1, "a")) == hash((1, "a")), {Key(1): x}[Key(1)], Key(1) in {Key(1, "x")}, len({Key(1), Key(1), Key(2)})


@case(X)
def introspection(x):
    spec = inspect.getfullargspec(many)
    return (
        spec.args,
        spec.kwonlydefaults,
        inspect.isfunction(many),
        inspect.isclass(Attrs),
        inspect.ismethod(Both().who),
        typing.get_origin(list[int]) is list,
        typing.get_args(dict[str, int]),
        many.__name__,
        many.__code__.co_argcount,
        Both.__mro__[1].__name__,
        Both.__qualname__,
        Both.__module__ == __name__,
        issubclass(Both, (Right, int)),
        type(many).__name__,
        x,
    )


@case(X)
def own_lock(x):
    lock = threading.Lock()
    with lock:
        y = x + 1
    return y


@case(X, "text")
def strings_of_all_kinds(x, s):
    parts = s.split("x")
    return (
        x,
        parts,
        s.replace("t", "T").title().center(10, "*"),
        s[::-1],
        s.startswith(("te", "a")),
        s in "some text",
        s * 2,
        f"{s!r:>8}|{len(s):03d}|{1.5:.1%}",
        "{0[k]} {1.real}".format({"k": 1}, 3),
        s.encode().decode("ascii"),
        [c for c in s],
        s > "abc",
        "-".join(reversed(s)),
        s.zfill(6).find("t"),
        "%(a)s %(b)05.1f" % {"a": 1, "b": 2},
        str(dict(a=1)),
        repr([1, "a", None]),
        str((1, 2)),
    )


COUNTER = {"calls": 0}
TOTAL = 0


@case(X)
def global_containers(x):
    COUNTER["calls"] += 0
    return x + COUNTER["calls"]


@pytest.mark.parametrize(("fn", "args"), CASES)
def test_as_eager(fn: Any, args: tuple[Any, ...]) -> None:
    check(fn, args)
