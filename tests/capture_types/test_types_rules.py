"""Python's rules at their edges: who is asked first, what is an error, what `isinstance` believes."""

from __future__ import annotations

import abc
import copy
import itertools
import pickle
import string
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from as_python import assert_as_python, attempt

import torchdynamo
from torchdynamo import config
from torchdynamo.bytecode import versions
from torchdynamo.errors import FallbackWarning
from torchdynamo.report.explain import collecting

CASES: list[Any] = []


def case(fn: Callable[[], Any]) -> Callable[[], Any]:
    """The function is compiled and called, twice."""
    CASES.append(pytest.param(fn, id=fn.__name__))
    return fn


# -- match ------------------------------------------------------------------------------------------------------------
class Point:
    __match_args__ = ("x", "y")
    x, y = 1, 2


class Numbered:
    __match_args__ = (None,)


@case
def same_key_twice():
    def look(value, key):
        match value:
            case {"a": a, Keys.a: b}:
                return a, b

    class Keys:
        a = "a"

    return attempt(look, {"a": 1}, None)


@case
def same_attribute_twice():
    def look(value):
        match value:
            case Point(a, x=b):
                return a, b

    return attempt(look, Point())


@case
def names_that_are_none():
    def look(value):
        match value:
            case Numbered(a):
                return a

    return attempt(look, Numbered())


class Doubled(dict):
    def get(self, key, default=None):
        return dict.get(self, key, default) * 2


@case
def mappings_are_asked_by_get():
    match Doubled(a=4):
        case {"a": a}:
            return a


# -- operators --------------------------------------------------------------------------------------------------------
class Declines:
    def __add__(self, other):
        return NotImplemented

    def __radd__(self, other):
        return 1

    def __lt__(self, other):
        return NotImplemented


@case
def same_types_are_not_reflected():
    def inplace():
        value = Declines()
        value += value

    return [
        attempt(lambda: Declines() + Declines()),
        attempt(lambda: Declines() < Declines()),
        attempt(lambda: Declines() ** 2),
        attempt(inplace),
        3 + Declines(),
    ]


class Divides(int):
    def __floordiv__(self, other):
        return "of"

    def __rfloordiv__(self, other):
        return "under"


class Inherits(Divides):
    pass


class Overrides(Divides):
    def __rfloordiv__(self, other):
        return "mine"


@case
def subclasses_go_first_if_they_say_otherwise():
    return Divides(4) // Inherits(2), Divides(4) // Overrides(2), Inherits(4) // Divides(2), 4 // Inherits(2)


class Asked(abc.ABC):  # noqa: B024
    def __eq__(self, other):
        LOG.append("Asked")
        return NotImplemented


@Asked.register
class Registered:
    def __eq__(self, other):
        LOG.append("Registered")
        return NotImplemented


@case
def registered_classes_are_no_subclasses():
    LOG.clear()
    return Asked() == Registered(), LOG


class Equal:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value


@case
def unequal_is_not_equal():
    return Equal(1) != Equal(1), Equal(1) != Equal(2)


class Blocked:
    __contains__ = None
    __iadd__ = None

    def __iter__(self):
        return iter((0,))

    def __add__(self, other):
        return 1


@case
def none_blocks_what_would_be_tried_next():
    def inplace():
        value = Blocked()
        value += 1

    return attempt(lambda: 0 in Blocked()), attempt(inplace), list(Blocked())


# -- classes ----------------------------------------------------------------------------------------------------------
class Any_:
    def __new__(cls, value):
        return [value] if value is None else object.__new__(Child if value else cls)


class Child(Any_):
    def __init__(self, value):
        self.value = value


@case
def what_new_gives_is_initialised():
    return Any_(None), Child(None), Any_(1).value, vars(Any_(0)), Child(1).value


class Returns:
    def __init__(self):
        return 10  # noqa: PLE0101


class Passes:
    def __init__(self, first, *rest, **named):
        object.__init__(self, *rest, **named)


@case
def errors_of_making():
    return attempt(Returns), type(Passes(1)), attempt(Passes, 1, 2), attempt(lambda: Passes(1, name=2))


class Proxy:
    def __init__(self, held):
        self._held = held

    def __getattribute__(self, name):
        if name == "_held":
            return object.__getattribute__(self, name)
        return getattr(self._held, name)


class Refuses:
    @property
    def __class__(self):
        raise RuntimeError("asked")


@case
def what_an_object_says_it_is():
    proxy = Proxy(Equal(1))
    return isinstance(proxy, Equal), isinstance(proxy, (int, Equal)), isinstance(proxy, str), isinstance(proxy, Proxy)


@case
def an_object_that_does_not_say_what_it_is():
    return attempt(lambda: isinstance(Refuses(), Equal)), isinstance(Refuses(), Refuses)


class Stores(dict):
    __setattr__ = dict.__setitem__


@case
def slots_filled_with_other_methods():
    made = Stores()
    made.name = 1
    return dict(made), vars(made)


class Base:
    def named(self):
        return "Base"


class Held(Base):
    def named(self):
        return "Held" + self.above.named()


Held.above = super(Held)


@case
def methods_found_in_pieces():
    return Held().named()


class Meta(type):
    def mro(cls):
        SEEN.append(cls.__mro__)
        return type.mro(cls)


SEEN: list[Any] = []


@case
def classes_in_the_making():
    made = Meta("made", (), {})
    return made.__name__, SEEN.pop(), len(made.__mro__)


LOG: list[Any] = []


class Watched(types.ModuleType):
    def __getattribute__(self, name):
        LOG.append(name)
        return types.ModuleType.__getattribute__(self, name)


@case
def modules_that_watch():
    LOG.clear()
    made = Watched("made")
    made.value = 1
    return made.value, LOG


@case
def a_module_without_a_name():
    bare = types.ModuleType.__new__(types.ModuleType)
    return attempt(lambda: bare.__name__), attempt(lambda: bare.other)


@case
def empty_cells():
    return attempt(lambda: types.CellType().cell_contents), types.CellType(1).cell_contents


@case
def dicts_of_two():
    return attempt(dict, {}, {})


@case
def arguments_that_iterators_refuse():
    return [
        attempt(itertools.permutations, [1], -1),
        attempt(itertools.combinations, [1], "a"),
        attempt(itertools.islice, [1]),
        attempt(itertools.islice, [1], -1),
        attempt(lambda: itertools.repeat(1, "a")),
        attempt(lambda: itertools.product([1], repeat=-1)),
        attempt(lambda: itertools.tee([1], -1)),
    ]


class Prepared(type):
    @classmethod
    def __prepare__(cls, name, bases):
        LOG.append(name)
        return {}


@case
def a_metaclass_prepares_once():
    LOG.clear()

    class Statement(metaclass=Prepared):
        pass

    return Statement.__name__, LOG


class Truthful:
    def __int__(self):
        return True

    def __float__(self):
        return "text"


@case
def conversions_that_give_something_else():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        number = int(Truthful())
    return number, len(seen), attempt(lambda: float(Truthful()))


@case
def slices_of_nothing_and_of_four():
    return attempt(lambda: slice()), attempt(lambda: slice(1, 2, 3, 4)), slice(1)


# -- trace functions --------------------------------------------------------------------------------------------------
def stepped(value):
    value += 1
    return value


@case
def traced_inside():
    lines: list[int] = []

    def trace(frame, event, arg):
        if frame.f_code.co_name == "stepped" and event == "line":
            lines.append(frame.f_lineno - frame.f_code.co_firstlineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        stepped(1)
    finally:
        sys.settrace(before)
    return lines


# -- what special methods may give ------------------------------------------------------------------------------------
def saying(name: str, answer: Any) -> Any:
    return type("Saying", (), {name: lambda self: answer})()


@case
def what_methods_give():
    class Told(int):
        pass

    asked = [
        *((bool, "__bool__", answer) for answer in (1, None, True)),
        *((bool, "__len__", answer) for answer in (-1, 0, 2, 1 << 70, "two", True)),
        *((len, "__len__", answer) for answer in (-1, 3, 1 << 70, 2.0, Told(4))),
        *((hash, "__hash__", answer) for answer in (-1, 1 << 70, 1.0, Told(3), True)),
        *((fn, f"__{fn.__name__}__", answer) for fn in (str, repr, bytes) for answer in (1, "text", b"bytes")),
    ]
    return [attempt(fn, saying(name, answer)) for fn, name, answer in asked]


@case
def truth_of_strange_answers():
    def choose(value):
        return "yes" if value else "no"

    return [attempt(choose, saying("__bool__", 1)), attempt(choose, saying("__len__", -1))]


@case
def what_c_refuses_to_make():
    return [attempt(new, cls) for new, cls in ((int.__new__, bool), (object.__new__, dict), (tuple.__new__, int))]


@case
def in_a_range():
    class Index:
        def __index__(self):
            return 1

    class Always:
        def __eq__(self, other):
            return True

    return Index() in range(3), Always() in range(3), 1.0 in range(3), Always() in range(0), True in range(2)


@case
def fields_of_formats():
    """What C parses is an iterator, and a new one in each call."""
    write = string.Formatter()
    return write.format("{:^{}} {}", "bar", 6, "X"), attempt(write.format, "{0}{", 1), list(write.parse("a{b!r:c}"))


@case
def lists_that_are_being_sorted():
    class Picky(int):
        def __lt__(self, other):
            seen.append(len(items))
            if other == limit:
                raise ArithmeticError(int(self))
            return int(self) < int(other)

    def meddle(item):
        items.append(item)
        items.pop()
        return item

    seen: list[int] = []
    items = [3, 1, 2]
    found = [attempt(lambda: items.sort(key=meddle)), list(items)]
    for limit in (1, 4, 9):  # noqa: B007
        items = [Picky(each) for each in (5, 4, 3, 2, 1, 0)]
        found += [attempt(items.sort), list(items)]
    return found, seen


@case
def no_instances_and_no_names():
    asked: Any = [
        *((fn, None, 1) for fn in (getattr, hasattr, delattr)),
        *((fn,) for fn in (abs, divmod, pow, round)),
        *((list.append, 1, 2), (list.__len__, ()), (bytearray.hex, b"1"), (dict.get, [], 1), (str.upper, 1)),
        *((tuple.__getitem__, (1, 2), 1), (object.__repr__, 1), (int.__add__, True, 1)),
    ]
    return [attempt(fn, *args) for fn, *args in asked]


@case
def an_encoding_asks_nobody():
    class Text(str):
        def __bytes__(self):
            return b"own"

    return bytes(Text("\N{EURO SIGN}"), "iso8859-15"), bytes(Text("a"))


@case
def tee_that_asks_itself():
    class Asking:
        def __iter__(self):
            return self

        def __next__(self):
            return next(first)

    first, _ = itertools.tee(Asking())
    return attempt(next, first)


@case
def asked_by_index():
    class Box:
        def __init__(self, items):
            self.items = items

        def __getitem__(self, index):
            if index == 3:
                raise StopIteration
            return self.items[index]

    class Never:
        def __eq__(self, other):
            return False

    class Always:
        def __eq__(self, other):
            return True

    steps = iter(Box("abcd"))
    kind, first = type(steps).__name__, next(steps)
    return kind, first, list(steps), Always() in Box([Never()]), Never() in Box([Always()])


@case
def where_enumerate_begins():
    class Index:
        def __index__(self):
            return 5

    return list(enumerate("ab", Index())), attempt(enumerate, "ab", "c"), attempt(enumerate, "ab", 1.0)


@case
def errors_taken_apart():
    first, second = ImportError("no", name="here", path="there"), OSError(2, "gone", "file")
    return [(c.args, vars(c), c.name, c.path) for c in (copy.copy(first), pickle.loads(pickle.dumps(first)))], [
        (c.args, c.filename) for c in (copy.copy(second), copy.deepcopy(second))
    ]


class Counted:
    count = 0

    def __new__(cls):
        cls.count += 1
        return object.__new__(cls)

    def __del__(self):
        type(self).count -= 1


def deleted_objects_are_gone():
    it = Counted()
    before = Counted.count
    del it
    return before, Counted.count


if versions.ONE_FRAME_SHOWN:  # elsewhere what is alive at a break dies with the function
    case(deleted_objects_are_gone)


@case
def keys_with_the_hash_of_others():
    class Like:
        def __hash__(self):
            return hash("halibut")

        def __eq__(self, other):
            return other == "halibut"

    return len({"halibut", Like()}), {"halibut": 1}.get(Like()), {Like(): 2}.get("halibut")


@case
def what_an_iterator_returns_to_yield_from():
    class Ending:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration(42)

    def outer():
        got.append((yield from Ending()))

    got: list[int] = []
    return list(outer()), got


class Names(dict[str, Any]):
    def __missing__(self, name):
        return len(name)


def looked_up():
    try:
        return longer + long
    except NameError:
        return "missing"


@case
def names_that_a_mapping_makes_up():
    return types.FunctionType(looked_up.__code__, Names())()


@pytest.mark.parametrize("fn", CASES)
def test_rule(fn: Callable[[], Any]) -> None:
    assert_as_python(fn)


def test_long_numbers_can_be_told_of() -> None:
    """Python writes out no number of that many digits."""
    compiled = torchdynamo.compile(lambda number: number % 7, backend="eager")
    numbers = [10**5000 + 1, 10**5000 + 2, 2, 3, 10**5000]
    with config.patch(capture_everything=True), warnings.catch_warnings(), collecting() as events:
        warnings.simplefilter("error", FallbackWarning)
        assert [compiled(number) for number in numbers] == [number % 7 for number in numbers]
    assert "a long int" in events[1].again


def test_numbers_that_vary_meet_long_ones() -> None:
    long = 10**5000
    compiled = torchdynamo.compile(lambda number: (number + long) % 7 + number, backend="eager")
    with config.patch(capture_everything=True), warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert [compiled(number) for number in range(5)] == [(number + long) % 7 + number for number in range(5)]
