"""Class statements in captured frames: whole where the class stays inside, else left to Python, and always as eager."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import types
import typing
from typing import Any

import pytest
import torch
from following import check

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)


def plain(x):
    class Base:
        """Says something."""

        factor = 3

        def scaled(self, by=2, *, plus=1):
            return x * self.factor * by + plus

    class Derived(Base):
        factor = 4

        def scaled(self, by=5, **named):
            return super().scaled(by, **named) + __class__.factor

    made = Derived()
    made.own = made.scaled(plus=2)
    names = Base.__name__, Derived.__qualname__, Base.__doc__, Base.__module__, Derived.__mro__[1] is Base
    return made.own, made.scaled(1), names, isinstance(made, Base), issubclass(Derived, Base), type(made) is Derived


def closures(x):
    count = 0

    class Counter:
        def __call__(self, step):
            nonlocal count
            count += step
            return x + count

    counter = Counter()
    return counter(1), counter(2), count


def descriptors(x):
    class Thing:
        def __init__(self, value):
            self._value = value

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, value):
            self._value = value + 1

        @staticmethod
        def static(a):
            return a * 2

        @classmethod
        def of(cls, a):
            return cls(a)

        @functools.cached_property
        def once(self):
            return self._value * 3

    thing = Thing.of(x)
    thing.value = x
    try:
        del thing.value
    except AttributeError as error:
        text = type(error).__name__
    return thing.value, Thing.static(3), thing.once is thing.once, text


def class_state(x):
    shared = [1]

    class Holder:
        items = shared
        total = 0
        table = {"a": 1}
        pair = (1, [2])

    Holder.items.append(2)
    Holder().items.append(3)
    Holder.total += 5
    Holder.table["b"] = x
    Holder.pair[1].append(4)
    return Holder.table["b"] + Holder.total, shared, Holder.items is shared, list(Holder.table), Holder.pair


def special_methods(x):
    class Vector:
        __slots__ = ("parts",)

        def __init__(self, *parts):
            self.parts = parts

        def __add__(self, other):
            return Vector(*(a + b for a, b in zip(self.parts, other.parts)))

        def __len__(self):
            return len(self.parts)

        def __getitem__(self, at):
            return self.parts[at]

        def __eq__(self, other):
            return self.parts == other.parts

        def __hash__(self):
            return hash(len(self.parts))

        def __getattr__(self, name):
            return name

    both = Vector(x, 1) + Vector(x, 2)
    return both[0], len(both), both.anything, Vector(1) == Vector(1), {Vector(1): 5}[Vector(1)], list(both)[1]


def exceptions(x):
    class Local(ValueError):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    try:
        raise Local(3)
    except ValueError as error:
        return x + error.code, str(error), type(error).__name__


def dataclass(x):
    @dataclasses.dataclass(order=True)
    class Config:
        width: int
        depth: int = 2
        names: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.area = self.width * self.depth

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        side: float = 1.0

    config = Config(3)
    config.names.append("a")
    wider = dataclasses.replace(config, width=4)
    texts = repr(config), Config(1) < Config(2), config == Config(3, names=["a"]), dataclasses.asdict(config)
    return x * wider.area * Frozen().side, texts, [field.name for field in dataclasses.fields(Config)]


def refused(x):
    try:

        @dataclasses.dataclass
        class Wrong:
            items: list = []  # noqa: RUF008
    except ValueError as error:
        return x + 1, str(error)


def enumeration(x):
    class Color(enum.Enum):
        RED = 1
        BLUE = enum.auto()

        def twice(self):
            return self.value * 2

    return x * Color.BLUE.value, Color.RED.twice(), Color(1) is Color.RED, [each.name for each in Color]


def named_tuple(x):
    class Pair(typing.NamedTuple):
        a: typing.Any
        b: int = 2

        def both(self):
            return self.a * self.b

    pair = Pair(x)
    return pair.both(), pair._fields, pair[1], pair._replace(b=4).both()


def abstract(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self):
            """Say how large."""

    class Square(Shape):
        def area(self):
            return x * x

    try:
        Shape()
    except TypeError as error:
        text = str(error)
    return Square().area(), text, isinstance(Square(), Shape)


T = typing.TypeVar("T")


def generic(x):
    class Box(typing.Generic[T]):
        def __init__(self, item: T) -> None:
            self.item = item

    return Box[int](x).item + 1, Box(2).item


def module(x):
    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    return torch.nn.Sequential(Double(), torch.nn.ReLU(), Double())(x - 1)


def made_by_type(x):
    def method(self):
        return x + self.a

    made = type("Made", (collections.UserList,), {"method": method, "a": 3})
    return made([1]).method(), len(made([1, 2])), made.__name__


def body_runs(x):
    class Table:
        rows = [at * at for at in range(3)]
        size = len(rows)
        if size > 2:
            big = True
        for at in range(2):
            last = at
        del at
        a: int = 1
        b: str

    return x + Table.size, Table.rows, Table.big, Table.last, hasattr(Table, "at"), Table.__annotations__


def in_a_loop(x):
    found = []
    for step in range(2):

        class Each:
            value = step

        found.append(Each)
    return x + found[1].value, found[0] is found[1], found[0].value


def ordered(x):
    @functools.total_ordering
    class Rank:
        def __init__(self, at):
            self.at = at

        def __eq__(self, other):
            return self.at == other.at

        def __lt__(self, other):
            return self.at < other.at

    return x + (Rank(1) <= Rank(2)), Rank(3) >= Rank(4), max(Rank(1), Rank(5)).at


# -- what gets out, and what runs code of the user's where the class is made ------------------------------------------
class Registered:
    names: typing.ClassVar[list[str]] = []

    def __init_subclass__(cls, **named):
        Registered.names.append(cls.__name__)


class Meta(type):
    def __new__(meta, name, bases, space):
        space["tag"] = name.lower()
        return super().__new__(meta, name, bases, space)


def instance_returned(x):
    y = x + 1

    class Thing:
        items = []

    thing = Thing()
    thing.items.append(1)
    thing.y = y * 2
    return thing.y, len(thing.items), thing


def class_returned(x):
    class Thing:
        count = 0

    Thing.count += 1
    return x + 1, Thing.count, Thing


def method_returned(x):
    class Thing:
        def method(self):
            return x

    return x + 1, Thing().method, Thing.method


def member_returned(x):
    class Color(enum.Enum):
        RED = 1

    return x + 1, Color.RED, (Color.RED,)


def stored(x):
    class Thing:
        pass

    Registered.last = Thing
    return x + 1, Registered.last is Thing


def hooked(x):
    before = len(Registered.names)

    class Thing(Registered):
        pass

    return x + 1, len(Registered.names) - before


def by_metaclass(x):
    class Thing(metaclass=Meta):
        pass

    return x + 1, Thing.tag


def holds_a_tensor(x):
    class Thing:
        value = x + 1

        def method(self, other=x * 2):
            return other

    return Thing.value * 2, Thing().method()


class Registry(type):
    made: typing.ClassVar[dict[str, type]] = {}

    def __init__(cls, name, bases, space, **named):
        super().__init__(name, bases, space)
        Registry.made[name] = cls
        cls.named = named

    def __new__(meta, name, bases, space, **named):
        return super().__new__(meta, name, bases, space)

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.by = "Registry"
        return made


class Listed(metaclass=Registry):
    def __init__(self, factor):
        self.factor = factor


def registered(x):
    class Thing(Listed, scale=3):
        def run(self):
            return x * self.factor * self.named["scale"]

    thing = Thing(2)
    return thing.run(), thing.by, Registry.made["Thing"] is Thing, type(Thing) is Registry


class Interface(abc.ABCMeta):
    def __new__(meta, name, bases, space):
        made = super().__new__(meta, name, bases, space)
        made.abstract = sorted(made.__abstractmethods__)
        return made


def by_abstract_metaclass(x):
    class Base(metaclass=Interface):
        @abc.abstractmethod
        def area(self):
            """Say how large."""

    class Square(Base):
        def area(self):
            return x * x

    return Square().area(), Base.abstract, Square.abstract, Square


def made_by_type_returned(x):
    made = type("Made", (), {"k": 2})
    thing = made()
    thing.v = x * made.k
    return thing.v, made.__module__, made, thing


def named_tuple_returned(x):
    pair = collections.namedtuple("Pair", "a b", defaults=(1,))
    return pair(x), pair._fields, pair


def data_returned(x):
    @dataclasses.dataclass
    class Config:
        width: Any
        names: list = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Slotted:
        side: float = 1.0

    config = Config(x + 1)
    return config.width, Config, config.names, Slotted, Slotted(2.0)


def methods_returned(x):
    class Thing:
        def method(self, by=2):
            return x * by, __class__

        @property
        def twice(self):
            return x * 2

        @staticmethod
        def static(y):
            return y

        @classmethod
        def of(cls, y):
            return cls, y

    return Thing, Thing().twice, Thing.of(1)[1]


def holds_itself(x):
    class Node:
        instances = []

    Node.first = Node()
    Node.instances.append(Node.first)
    return x + len(Node.instances), Node


def wrong_layout(x):
    try:

        class Wrong(int, str):
            pass
    except TypeError as error:
        return x + 1, str(error)


def caught(fn, kind):
    try:
        torchdynamo.graph_break()
        fn([1])
    except kind:
        return "caught"


def method_of_c_passed(x):
    """A method in C that is bound to the class leads to it as well."""

    class Stopped(Exception):
        pass

    class Stops(dict):
        def __init__(self):
            raise Stopped

    return x + 1, caught(Stops.fromkeys, Stopped)


IN_PARTS = [method_of_c_passed, holds_itself, hooked]
INSIDE = [
    *(plain, closures, descriptors, class_state, special_methods, exceptions, dataclass, refused, enumeration),
    *(named_tuple, abstract, generic, module, made_by_type, body_runs, in_a_loop, ordered),
    *(stored, by_metaclass, registered, holds_a_tensor, wrong_layout),
]
LEAVING = [
    *(instance_returned, class_returned, method_returned, member_returned, by_abstract_metaclass),
    *(made_by_type_returned, named_tuple_returned, data_returned, methods_returned),
]


@pytest.mark.parametrize("fn", INSIDE, ids=lambda fn: fn.__name__)
def test_in_one_graph(fn: Any) -> None:
    check(fn, (X,))


@pytest.mark.parametrize("fn", IN_PARTS, ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(fn(X)[0], compiled(X)[0])


def shape(obj: Any) -> Any:
    """What can be seen of a class, an instance of one, or a method."""
    if isinstance(obj, type) and obj.__module__ == __name__:
        kinds = {name: type(each) for name, each in vars(obj).items()}
        plain = [str(each) for each in vars(obj).values() if isinstance(each, (str, int, dict, list))]
        return obj.__name__, obj.__qualname__, [base.__name__ for base in obj.__mro__], kinds, plain
    if isinstance(obj, (tuple, list)):
        return type(obj).__name__, [shape(each) for each in obj]
    if isinstance(obj, (types.FunctionType, types.MethodType)):
        return obj.__qualname__, obj.__defaults__, shape(getattr(obj, "__self__", None))
    return str(obj) if isinstance(obj, torch.Tensor) else (type(obj).__name__, list(getattr(obj, "__dict__", ())))


def classes(result: Any) -> set[type]:
    kinds = [each if isinstance(each, type) else type(getattr(each, "__self__", each)) for each in result]
    return {kind for kind in kinds if kind.__module__ == __name__ and "<locals>" in kind.__qualname__}


@pytest.mark.parametrize("fn", LEAVING, ids=lambda fn: fn.__name__)
def test_classes_that_leave(fn: Any) -> None:
    """They are made by each call, and are what the statement makes."""
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    wanted, first, second = fn(X), compiled(X), compiled(X)
    assert len(_native.cache_entries(fn.__code__)) == 1
    assert shape(wanted) == shape(first) == shape(second)
    assert not classes(first) & classes(second)


class Changing:
    factor = 2


def inherits(x):
    class Thing(Changing):
        def scaled(self):
            return x * self.factor

    return Thing().scaled()


def test_bases_are_guarded() -> None:
    compiled = torchdynamo.compile(inherits, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    Changing.factor = 5
    assert torch.equal(compiled(X), X * 5)
