"""Iteration: a host-level iterator over values stands for each Python iterator."""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo._native import type_name
from torchdynamo.capture.torch import tensor_methods
from torchdynamo.capture.vm import enums, lookup, model
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.wrap import lift, refuse_unseen
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import Known, Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.effects import SideEffects
    from torchdynamo.capture.vm.heap import Entity
    from torchdynamo.capture.vm.machine import Machine


TEE: type = type(itertools.tee(())[0])


class IteratorState:
    """Hold the state of an iterator that the frame made: how far it is, and over what."""

    __slots__ = ("count", "effects", "ended", "entity", "inner", "over", "version")

    def __init__(
        self, effects: SideEffects, entity: Entity, inner: Iterator[Value], over: Value | None, version: int = 0
    ) -> None:
        self.effects, self.entity = effects, entity  # to whom each step is an effect
        self.inner = inner
        self.count = 0
        self.over = over
        self.version = version  # of what it is over, when it was made
        self.ended: Raised | None = None  # by a StopIteration of a function that it calls

    def __iter__(self) -> IteratorState:
        return self

    def __next__(self) -> Value:
        self.effects.items(self.entity)
        self.ended = None
        try:
            value = next(self.inner)
        except Raised as raised:
            if self.inner.__class__ is types.GeneratorType and self.entity.pytype is not types.GeneratorType:
                self.inner = past_an_error(self.entity.pytype)
            if not issubclass(raised.value.pytype, StopIteration):
                raise
            self.ended = raised
            raise StopIteration from None
        except (ValueError, RuntimeError):
            if getattr(self.inner, "gi_running", False) or isinstance(self.inner, TEE):  # it asks itself for its next
                raise Break("unknown iterator", type="generator") from None
            raise
        self.count += 1
        return value


def past_an_error(pytype: type) -> Iterator[Value]:
    """Raise Break when an iterator that has raised is advanced: it may go on, its generator has ended."""
    raise Break("unknown iterator", type=pytype.__name__)
    yield


def iterate(vm: Machine, value: Value) -> Iterator[Value]:
    """Yield the items of `for item in value`, while the program goes on changing what it iterates over."""
    if value.__class__ is Known:
        return known_items(vm, value)
    if value.__class__ is TensorNode:
        return tensor_items(vm, value)
    if value.__class__ is not Object:
        refuse_unseen(value)
        raise Break("unknown iterator", type=value.pytype.__name__)
    cls = value.pytype
    entity = vm.entity(value)
    if entity.items.__class__ is IteratorState:
        return entity.items
    if cls is types.GeneratorType and entity.payload is not None:
        return vm.generator(value)
    lookup.guarded_lookup(vm, cls, "__iter__")
    for base in cls.__mro__:
        row = model.ITERATE.get(base)
        if row is not None:
            return row(vm, value)
        found = base.__dict__.get("__iter__")
        if found is not None:
            if type(found) is types.FunctionType:
                return steps_of(vm, vm.special(value, "__iter__"))
            if model.is_open(base):
                break
    if any("__iter__" in base.__dict__ for base in cls.__mro__):
        raise Break("unknown iterator", type=cls.__name__)
    if any("__getitem__" in base.__dict__ for base in cls.__mro__):
        return iter(Indexed(vm, value))
    raise vm.error(TypeError, f"{type_name(cls)!r} object is not iterable")


def asks_for_length(kind: type) -> bool:
    """Return whether this version of Python asks an object how many items it has, to make a list or a tuple of them."""

    class Asked:
        asked = False

        def __iter__(self) -> Iterator[Any]:
            return iter(())

        def __len__(self) -> int:
            self.asked = True
            return 0

    probe = Asked()
    kind(probe)
    return probe.asked


ASKING = {kind for kind in (list, tuple) if asks_for_length(kind)}


def collect(vm: Machine, value: Value, kind: type = list) -> list[Value]:
    """Return the items that C makes a list or a tuple of: it may ask an object how many there are, before the first."""
    steps = iterate(vm, value)
    if kind not in ASKING:
        return list(steps)
    if value.__class__ is Object or (value.__class__ is Known and lookup.has_python_operators(value)):
        ask_length(vm, value)
    return list(steps)


def ask_length(vm: Machine, value: Value) -> None:
    """Execute `operator.length_hint(value)`, as far as that calls functions of the program's, for what these do."""
    cls = value.pytype
    if not model.is_open(cls):
        return
    if model.is_written_by_program(lookup.guarded_lookup(vm, cls, "__len__")):
        try:
            vm.length(value)
            return
        except Raised as raised:
            if not issubclass(raised.value.pytype, TypeError):
                raise
    elif lookup.class_lookup(cls, "__len__") is not MISSING:
        return
    if model.is_written_by_program(lookup.guarded_lookup(vm, cls, "__length_hint__")):
        check_hint(vm, value)


def check_hint(vm: Machine, value: Value) -> None:
    """Call `__length_hint__`. Raises the program's error where it gives no length; a TypeError of its own is none."""
    try:
        hint = vm.special(value, "__length_hint__")
    except Raised as raised:
        if issubclass(raised.value.pytype, TypeError):
            return
        raise
    if hint.__class__ is Known and hint.obj is NotImplemented:
        return
    if not issubclass(hint.pytype, int):
        raise vm.error(TypeError, f"__length_hint__ must be an integer, not {type_name(hint.pytype)}")
    if vm.known(hint, "length") < 0:
        raise vm.error(ValueError, "__length_hint__() should return >= 0")


def require_iterable(vm: Machine, value: Value, refusal: str) -> None:
    """Raise the program's TypeError, in these words, for a value whose class has no iterators."""
    if not is_iterable(vm, value):
        raise vm.error(TypeError, refusal.format(type_name(value.pytype)))


def is_iterable(vm: Machine, value: Value) -> bool:
    """Return whether a value may be iterated over; one that has not been looked at may be."""
    asked = ("__iter__", "__getitem__") if value.__class__ in (Known, Object) else ()
    return not asked or any(lookup.guarded_lookup(vm, value.pytype, name) is not MISSING for name in asked)


def steps_of(vm: Machine, value: Value) -> Iterator[Value]:
    """Yield the remaining items of what `__iter__` returned. Raises the program's TypeError if that is no iterator."""
    found = required_next(vm, value)
    return NextCalls(vm, value) if type(found) is types.FunctionType else iterate(vm, value)


def required_next(vm: Machine, value: Value) -> Any:
    """Return the `__next__` of what `__iter__` returned. Raises the program's TypeError if it has none."""
    found = lookup.guarded_lookup(vm, value.pytype, "__next__")
    if found is MISSING:
        raise vm.error(TypeError, f"iter() returned non-iterator of type {type_name(value.pytype)!r}")
    return found


def known_items(vm: Machine, value: Known) -> Iterator[Value]:
    """Yield the items of a constant."""
    if value.pytype is frozenset:
        return model.CONSTANT_ITEMS[frozenset](vm, value)
    if lookup.has_python_operators(value):
        found = method_of_class(vm, value, "__iter__")
        if model.is_written_by_program(found):
            return steps_of(vm, vm.special(value, "__iter__"))
        if found is MISSING and model.is_written_by_program(method_of_class(vm, value, "__getitem__")):
            return iter(Indexed(vm, value))
        enums.guard_members(vm, value.obj)
    try:
        real = iter(value.obj)
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    return known_steps(vm, real)


def method_of_class(vm: Machine, value: Known, name: str) -> Any:
    """Return a method that iterates over a constant; MISSING if it has none. Ends the graph if it is no function."""
    found = lookup.guarded_lookup(vm, value.pytype, name)
    if found is not MISSING and type(found) not in lookup.PLAIN_METHODS:
        raise Break("unknown iterator", type=value.pytype.__name__)
    return found


def known_steps(vm: Machine, real: Iterator[Any]) -> Iterator[Value]:
    """Yield the items of an iterator over constants."""
    while True:
        try:
            item = next(real)
        except StopIteration:
            return
        except Exception as error:  # in the program, too
            raise vm.refused(error) from None
        yield lift(vm, item)


def tensor_items(vm: Machine, value: TensorNode) -> Iterator[Value]:
    """Yield the slices of a tensor along its first dimension."""
    written = tensor_methods.answered(vm, value, "__iter__")
    if written is not None:
        return steps_of(vm, written)
    if value.fake.dim() == 0:
        raise vm.error(TypeError, "iteration over a 0-d tensor")
    return iterate(vm, vm.emit("call_method", "unbind", [value, Known(0)], {}))


class NextCalls:
    """Give the items of an object with a `__next__` of the user's, which may go on after an end."""

    def __init__(self, vm: Machine, value: Value) -> None:
        self.vm, self.value = vm, value

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        try:
            return self.vm.special(self.value, "__next__")
        except Raised as raised:
            if issubclass(raised.value.pytype, StopIteration):
                raise StopIteration from None
            raise


class Indexed:
    """Let the host iterate over an object with `__getitem__` only."""

    def __init__(self, vm: Machine, value: Value) -> None:
        self.vm, self.value = vm, value

    def __getitem__(self, index: int) -> Value:
        try:
            return self.vm.getitem(self.value, Known(index))
        except Raised as raised:
            if issubclass(raised.value.pytype, (IndexError, StopIteration)):
                raise IndexError from None
            raise


BY_INDEX: type = type(iter(Indexed.__new__(Indexed)))


def iterator(vm: Machine, value: Value) -> Value:
    """Return `iter(value)` as a value; an iterator is its own."""
    if value.__class__ is Object:
        entity = vm.entity(value)
        if entity.items.__class__ is IteratorState or value.pytype is types.GeneratorType:
            return value
        found = lookup.guarded_slot(vm, value.pytype, "__iter__")
        if found[0] == "python" and type(found[1][1]) is types.FunctionType:
            made = vm.special(value, "__iter__")
            required_next(vm, made)
            return made
        if found[0] == "missing":
            return make_iterator(vm, iterate(vm, value), value, BY_INDEX)
    return make_iterator(vm, iterate(vm, value), value)


EMPTY: dict[int, int] = {}
VIEWS = (EMPTY.keys(), EMPTY.values(), EMPTY.items())
ORDERED: collections.OrderedDict[int, int] = collections.OrderedDict()
OF_DICTS = {type(view) for view in (*VIEWS, ORDERED.keys(), ORDERED.values(), ORDERED.items())}
ITERATOR_TYPES: model.Table[type] = model.Table(
    {
        list: type(iter([])),
        tuple: type(iter(())),
        dict: type(iter({})),
        range: type(iter(range(0))),
        str: type(iter("")),
        set: type(iter(set())),
        frozenset: type(iter(set())),
        bytes: type(iter(b"")),
        collections.deque: type(iter(collections.deque())),
        collections.OrderedDict: type(iter(collections.OrderedDict())),
    }
)
ITERATOR_TYPES.update({type(view): type(iter(view)) for view in VIEWS})


class ViewOf(NamedTuple):
    """The payload of a dict's view that the frame made: whether it shows keys, values or items, and of which dict."""

    kind: str
    box: Object


def make_iterator(vm: Machine, steps: Iterator[Value], over: Value | None, pytype: type | None = None) -> Object:
    """Make an iterator object around host-level steps."""
    if pytype is None and over.__class__ is Known and over.pytype is str:  # one of two, by what is in it
        pytype = type(iter(over.obj))
    cls = pytype or ITERATOR_TYPES.nearest(over.pytype if over is not None else list) or type(iter([]))
    made = vm.new(cls)
    entity = vm.entity(made)
    entity.items = IteratorState(vm.effects, entity, steps, over, version(vm, over))
    return made


def version(vm: Machine, over: Value | None) -> int:
    """Return how often an object has changed in a way that ends its iterators; of a view, its dict."""
    if over.__class__ is not Object:
        return 0
    entity = vm.entity(over)
    shown = entity.payload_as(ViewOf).box if over.pytype in OF_DICTS else over
    return vm.entity(shown).version


def advance(vm: Machine, value: Value) -> Value | None:
    """Return `next(value)`, or None at the end."""
    if value.__class__ is not Object:
        raise Break("unknown iterator", type=value.pytype.__name__)
    entity = vm.entity(value)
    if entity.items.__class__ is IteratorState:
        return next(entity.items, None)
    if value.pytype is types.GeneratorType and entity.payload is not None:
        return next(vm.generator(value), None)
    lookup.guarded_lookup(vm, value.pytype, "__next__")
    found = model.find_slot(value.pytype, "__next__")
    if found[0] == "python" and type(found[1][1]) is types.FunctionType:
        return next(NextCalls(vm, value), None)
    raise Break("unknown iterator", type=value.pytype.__name__)


UNPACKED = "cannot unpack non-iterable {} object"


def unpack(vm: Machine, value: Value, count: int) -> list[Any]:
    """Return the items of `a, b, c = value`."""
    items: list[Value] = []
    require_iterable(vm, value, UNPACKED)
    steps = iterate(vm, value)
    for item in steps:
        items.append(item)
        if len(items) > count:
            raise vm.error(ValueError, f"too many values to unpack (expected {count})")
    if len(items) < count:
        raise vm.error(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
    return items
