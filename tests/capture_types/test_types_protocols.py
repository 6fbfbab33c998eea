"""What Python asks of functions, classes and operands by itself, and how it says that it was refused."""

from __future__ import annotations

import collections
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import os
import types
import typing
import weakref
from typing import Any

import pytest
import torch
from following import check

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)
CASES: list[Any] = []


def case(fn: Any) -> Any:
    CASES.append(pytest.param(fn, id=fn.__name__))
    return fn


def once(value):
    if value > 1:
        raise StopIteration(value)
    return value


@case
def stopped_by_a_function(x):
    """A function that raises StopIteration ends the iterator that calls it, and nothing else."""
    loop = []
    for each in map(once, [0, 1, 2, 3]):
        loop.append(each)
    try:
        next(filter(once, [5]))
    except StopIteration as stop:
        loop.append(stop.value)
    chained = list(itertools.chain(map(once, [1, 2, 1]), [9]))
    return x, loop, chained, next(map(once, [2]), "default"), dict(zip("abc", map(once, [0, 1, 2])))


@case
def partial_of_partial(x):
    inner = functools.partial(dict, 1, a=1)
    outer = functools.partial(inner, 2, b=x, a=3)
    inner.tag = 1
    return outer.func is dict, outer.args, outer.keywords, functools.partial(inner).func is inner


class Refusing:
    @property
    def inside(self):
        raise AttributeError("inside")

    __hash__ = None


def names_of(fn):
    try:
        fn()
    except (AttributeError, NameError, TypeError) as error:
        return type(error), str(error), getattr(error, "name", None), type(getattr(error, "obj", None))


@case
def said_of_what(x):
    def keyed(d):
        return d

    return x, [
        names_of(fn)
        for fn in (
            lambda: Refusing().inside,
            lambda: Refusing().nothing,
            lambda: operator.nothing,
            lambda: nothing,  # noqa: F821
            lambda: keyed(d=1, **{"d": 2}),  # noqa: PIE804, PLE1132
            lambda: hash(Refusing()),
            lambda: vars(3),
            lambda: isinstance(x, [int]),
            lambda: isinstance(3, (str, "a")),
            lambda: issubclass(int, [int]),
            lambda: operator.delitem("ab", 0),
            lambda: operator.delitem(Refusing(), 0),
            lambda: operator.delitem(Refusing(), "a"),
            lambda: operator.delitem(3, 0),
        )
    ]


class Equal:
    def __init__(self, to):
        self.to = to

    def __instancecheck__(self, other):
        return other == self.to


@case
def answering_for_classes(x):
    asked = (typing.Sequence, typing.Callable, typing.Hashable, (Equal(3), typing.Mapping))
    return (
        x,
        [isinstance(each, kinds) for each in ("a", (), 3, {}) for kinds in asked],
        issubclass(list, typing.Iterable),
    )


class Right:
    def __radd__(self, other):
        return "radd", other

    def __rmul__(self, other):
        return NotImplemented

    def __eq__(self, other):
        return "eq"

    def __gt__(self, other):
        return "gt"

    __hash__ = object.__hash__


@case
def tensors_beside_others(x):
    """Torch leaves what it does not know to the other side."""
    a, b = x, x
    a += Right()
    return a, b + Right(), x == Right(), x < Right(), x != [1], [names_of(fn) for fn in (
        lambda: x * Right(), lambda: Right() - x, lambda: x @ Right(), lambda: x <= [1], lambda: [1] + x,
    )]  # fmt: skip


@case
def bound_methods(x):
    one, other = Refusing(), Equal(1)
    return x, one == other, other.__instancecheck__ == other.__instancecheck__, (
        Equal(1).__instancecheck__ != other.__instancecheck__
    )  # fmt: skip


Count = typing.NewType("Count", int)


class Second:
    def __index__(self):
        return 1


@case
def indices(x):
    at, items = Second(), [1, 2, 3, 4]
    items[at] = 5
    items.insert(at, 6)
    return x[at], x[:at], items[at:], (1, 2)[at], "ab"[at], items.pop(at), [0] * at, list(range(at, 3)), items


class Written(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


@case
def attributes_in_the_dict(x):
    box = Written(a=1)
    box.b = x
    del box.a
    return box, box.b


class Entered:
    def __enter__(self):
        return self


def enter(manager):
    with manager:
        pass


def stepping():
    yield 1


class Held:
    @classmethod
    def of(cls):
        return cls.__name__

    @staticmethod
    def plain(value):
        return value


@case
def what_c_says(x):
    steps, space, held = stepping(), types.SimpleNamespace(a=1), Held.__dict__
    states = [inspect.getgeneratorstate(steps), next(steps), inspect.getgeneratorstate(steps), list(steps)]
    refused = [names_of(lambda: enter(Entered())), names_of(lambda: enter(3))]
    same = space == types.SimpleNamespace(a=1), space != types.SimpleNamespace(a=2)
    bound = held["of"].__get__(None, Held)(), held["plain"].__get__(None, Held)(2), held["plain"](3)
    return x, refused, states, inspect.getgeneratorstate(steps), same, bound


class Named(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value):
        return cls.A if str(value).lower() == "a" else None


@case
def members_named_otherwise(x):
    first, second = torch.nn.Identity(), torch.nn.Identity()
    return x, Named("a"), Named("A"), weakref.ref(first) is weakref.ref(first), (
        weakref.ref(first) == weakref.ref(second), weakref.ref(first) is weakref.ref(second)
    )  # fmt: skip


def counted(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        wrapper.calls += 1
        return fn(*args)

    wrapper.calls = 0
    return wrapper


@counted
def doubled(x):
    return x * 2


def counts(x):
    return doubled(x) + doubled.calls


def test_attributes_of_functions() -> None:
    """What is kept on a function that was there: a number that changes becomes one of the graph."""
    compiled = torchdynamo.compile(counts, backend="eager", fullgraph=True)
    doubled.calls = 0
    for call in range(1, 8):
        assert torch.equal(compiled(X), X * 2 + call) and doubled.calls == call
    assert len(_native.cache_entries(counts.__code__)) <= 3


def handled(x, layer):
    with layer.register_forward_hook(lambda module, args, result: result * 2):
        hooked = layer(x)
    return hooked, layer(x), len(layer._forward_hooks)


def test_hooks_for_a_while() -> None:
    layer = torch.nn.Linear(4, 4)
    got = torchdynamo.compile(handled, backend="eager", fullgraph=True)(X, layer)
    assert torch.equal(got[0], 2 * got[1]) and got[2] == 0 == len(layer._forward_hooks)


@case
def called_through(x):
    return x + Count(3), functools.reduce(operator.add, [x, x])


@pytest.mark.parametrize("fn", CASES)
def test_as_eager(fn: Any) -> None:
    check(fn, (X,))


class Lenient:
    """Says what it lacks, and what its own ways to an attribute refuse."""

    def __init__(self):
        self.kept = 1

    def __getattribute__(self, name):
        return 42 if name == "answer" else super().__getattribute__(name)

    def __getattr__(self, name):
        if name == "refused":
            raise AttributeError("refused", name=name, obj=None)
        return name + "?"

    @property
    def lacking(self):
        return self.lack.lack

    @property
    def raising(self):
        raise AttributeError("raising")

    @property
    def failing(self):
        raise KeyError("failing")


class OfClasses(type):
    @property
    def raising(cls):
        raise AttributeError("raising")

    def __getattr__(cls, name):
        return "class " + name


class Classy(metaclass=OfClasses):
    pass


@case
def asked_after_an_attribute_error(x):
    it, texts = Lenient(), []
    for name in ("answer", "kept", "other", "lacking", "raising", "refused"):
        texts += [getattr(it, name, "default"), hasattr(it, name)]
    try:
        it.failing
    except KeyError as error:
        texts.append(error.args)
    return x, it.other, texts, Classy.raising, Classy.missing


class Rounded:
    def __trunc__(self):
        return "trunc"

    def __ceil__(self):
        return [2]

    def __floor__(self):
        return 3.5


@case
def rounding_and_what_views_are_of(x):
    held = {"a": x, "b": 2}
    views = held.items(), held.keys(), held.values()
    held["c"] = 3
    rounded = math.trunc(Rounded()), math.ceil(Rounded()), math.floor(Rounded()), math.trunc(2.5), math.floor(-1.5)
    return x, rounded, [list(each.mapping) for each in views], views[1].mapping["b"], views[0].mapping == held


def ones_own(name, answer, **more):
    """An object of a class of its own with a special method that gives `answer`."""
    return type("Own", (), {name: lambda self, *args: answer, **more})()


def iter_gives(answer):
    return ones_own("__iter__", answer)


def said(fn):
    try:
        return fn()
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)


@case
def iterators_that_are_none(x):
    """What `__iter__` gives is looked at where it is asked for."""
    given = [iter_gives([1]), iter_gives(3), iter_gives(x)]
    loops = [said(lambda box=box: [(each,) for each in box]) for box in given]
    asked = [said(lambda box=box: iter(box)) for box in given]
    paths = [
        said(lambda box=box: os.fspath(box)) for box in (ones_own("__fspath__", 3), ones_own("__fspath__", "a"), 5)
    ]
    return x, loops, asked, paths


class Sized:
    """Write down who asks."""

    def __init__(self, length, hint=0):
        self.asked, self.length, self.hint = [], length, hint

    def answer(self, name, value):
        self.asked.append(name)
        if isinstance(value, str):
            raise (TypeError if value == "no" else ValueError)(value)
        return value

    def __iter__(self):
        self.asked.append("iter")
        return iter([1, 2])


class Long(Sized):
    def __len__(self):
        return self.answer("len", self.length)


class Hinted(Sized):
    def __length_hint__(self):
        return self.answer("hint", self.hint)


class Both(Long, Hinted):
    pass


class LongList(list):
    asked = ()

    def __len__(self):
        self.asked = (*self.asked, "len")
        return 7


class LongDict(dict):
    asked = ()

    def __len__(self):
        self.asked = (*self.asked, "len")
        return 7


class Ranked:
    """Write down which comparisons are made."""

    asked: list[str] = []

    def __lt__(self, other):
        Ranked.asked.append("lt")
        return False

    def __gt__(self, other):
        Ranked.asked.append("gt")
        return False


@case
def the_largest_of_a_heap(x):
    """One is looked for by `max`, whose comparison is `>`."""
    Ranked.asked = []
    first, second = Ranked(), Ranked()
    found = heapq.nlargest(1, [first, second]) + heapq.nsmallest(1, [first, second])
    return x, [each is first for each in found], list(Ranked.asked), heapq.nlargest(1, []), heapq.nlargest(2, [1, 3, 2])


class Operand:
    """Write down what operators ask of the right side of a sequence."""

    def __init__(self, answer):
        self.asked, self.answer = [], answer

    def tell(self, name, answer):
        self.asked.append(name)
        return answer

    def __radd__(self, other):
        return self.tell("radd", self.answer)

    def __rmul__(self, other):
        return self.tell("rmul", self.answer)

    def __iter__(self):
        return self.tell("iter", iter([1]))

    def __index__(self):
        return self.tell("index", 2)


def added_in_place(left, right):
    left += right
    return left


def repeated_in_place(left, right):
    left *= right
    return left


SEQUENCES = [lambda: [1], lambda: (1,), lambda: collections.deque([1]), lambda: "a"]


@case
def sequences_whose_other_side_is_asked_first(x):
    """C's sequences have no operators of numbers: objects that have are asked before them, in place too."""
    found = []
    for make in SEQUENCES:
        for fn in (operator.add, operator.mul, added_in_place, repeated_in_place):
            for answer in (5, NotImplemented):
                right = Operand(answer)
                found.append((said(lambda fn=fn, make=make, right=right: fn(make(), right)), list(right.asked)))
    return x, found, bytearray(Operand(1)), list(itertools.permutations(Operand(1)))


def extended(box):
    made = [0]
    made.extend(box)
    made += box
    return made


COLLECTING = [
    list,
    tuple,
    sorted,
    set,
    extended,
    lambda box: [*box],
    lambda box: (*box, 3),
    lambda box: max(*box),
    lambda box: [(each,) for each in box],
    lambda box: dict.fromkeys(box),
    lambda box: sum(box),
]


@case
def lengths_that_are_asked_for(x):
    """C asks an object that it makes a list or tuple of how long it is, and takes TypeErrors for no answer."""
    boxes = [Long(2), Long(-1), Long("no"), Long("bad"), Hinted(0, 2), Hinted(0, -1), Hinted(0, NotImplemented)]
    boxes += [Hinted(0, "no"), Hinted(0, "bad"), Hinted(0, 1.5), Both(2, 3), Both("no", 3), Both("no", "bad")]
    boxes += [LongList([1, 2]), LongDict({1: 2, 3: 4})]
    return x, [(said(lambda box=box, fn=fn: fn(box)), list(box.asked)) for box in boxes for fn in COLLECTING]


@pytest.mark.parametrize("cls", [LongList, LongDict])
def test_capture_does_not_ask_how_long_a_container_is(cls: Any) -> None:
    """What is given is asked as often as in eager, in the call that compiles as well."""
    compiled = torchdynamo.compile(lambda x, box: (x + 1, [(each,) for each in box], set(box)), backend="eager")
    for _ in range(2):
        box = cls({1: 2}) if cls is LongDict else cls([1])
        compiled(X, box)
        assert box.asked == ()


def counted(x, first=1, *more, scale=2, **named):
    yield x + first
    yield x * scale + len(more)
    yield x - named.get("last", 0)


def one_of_each(x):
    box, count = [x], 0

    def closing():
        nonlocal count
        count += 1
        yield x + count

    def going_on(inner):
        yield from inner
        yield x

    made = [
        *(counted(x.sin()), counted(x, 3, 4, 5, scale=6, last=x)),
        *((each * 2 for each in box), closing(), going_on(counted(x * 2))),
    ]
    box.append(x + 1)
    count = 4
    return made


def across_a_break(x):
    it = counted(x.sin())
    torchdynamo.graph_break()
    return [each * 2 for each in it]


def begun(x):
    it = counted(x.sin())
    return next(it), it


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_generators_that_leave_before_they_begin(backend: str) -> None:
    """They are made by the call that made them; one that has begun ends the graph."""
    compiled = torchdynamo.compile(one_of_each, backend=backend, fullgraph=True)
    for mine, theirs in zip(compiled(X), one_of_each(X), strict=True):
        assert (mine.__qualname__, mine.gi_code) == (theirs.__qualname__, theirs.gi_code)
        assert all(map(torch.equal, mine, theirs))
        assert next(mine, None) is None
    mine, theirs = torchdynamo.compile(across_a_break, backend=backend)(X), across_a_break(X)
    assert all(map(torch.equal, mine, theirs))
    with pytest.raises(torchdynamo.exc.Unsupported):
        torchdynamo.compile(begun, backend=backend, fullgraph=True)(X)
    first, rest = torchdynamo.compile(begun, backend=backend)(X)
    assert all(map(torch.equal, [first, *rest], counted(X.sin())))
