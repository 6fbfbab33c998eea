"""Objects whose class has a `__del__`: Python runs it when the last reference goes, and capture counts no references.

So it is followed once, when the frame has been, and has to be one that nobody notices whenever it runs: it reads what
the object itself holds and what the frame leaves as it was, and writes nowhere but to the object. A generator that
waits in a `try` or `with` block is such an object, too: Python leaves the block when the generator goes.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.bytecode.instruction import Code
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import class_lookup, guarded_lookup
from torchdynamo.capture.vm.wrap import CONSTANTS, told_apart
from torchdynamo.core.naming import class_name
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Position, Source
from torchdynamo.core.value import Lazy, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


# No `__del__`, or that of a file in C, which closes it.
BY_NOBODY = (type(MISSING), types.MethodDescriptorType, types.WrapperDescriptorType)


class Finalizable(NamedTuple):
    """Describe an object with a finalizer that the frame made, and where."""

    value: Object
    where: Position | None


def note(vm: Machine, made: Value) -> None:
    """Remember an object that the frame made, if its class has a finalizer."""
    if not has_finalizer(vm, made.pytype):
        return
    if made.__class__ is not Object or not vm.entity(made).fresh:
        raise Break("unsupported type", type=f"{made.pytype.__name__} (with __del__)")
    if all(known.value.ref != made.ref for known in vm.mortals):
        vm.mortals.append(Finalizable(made, vm.position()))


def note_generator(vm: Machine, made: Object, frame: Frame) -> Object:
    """Remember a generator that the frame made, if it may wait in a block; return it."""
    if may_wait_in_block(frame.code):
        vm.mortals.append(Finalizable(made, vm.position()))
    return made


def may_wait_in_block(code: Code) -> bool:
    """Return whether the code of a generator has a `yield` in a `try` or `with` block."""
    if "waits in blocks" not in code.analyses:
        yields = (at for at, instruction in enumerate(code.instructions) if instruction.op == "YIELD")
        code.analyses["waits in blocks"] = any(code.lookup(at) for at in yields)
    return bool(code.analyses["waits in blocks"])


def let_go(vm: Machine, *values: Value) -> None:
    """Raise Break if a value that existed at entry has a finalizer: Python runs it with the last reference gone."""
    for value in values:
        if value.__class__ is Lazy:
            vm.guard(value.source, "TYPE_MATCH", value.pytype)  # nothing else has looked at it
        if value.__class__ is Lazy or (value.__class__ is Object and not vm.entity(value).fresh):
            refuse_finalizer(vm, value.pytype)


def let_go_at(vm: Machine, home: Source, place: Any, name: str | None) -> None:
    """Raise Break if what a dictionary, slot or cell held at entry has a finalizer; rest on that it has none.

    home: the source of the place. name: None for a cell.
    """
    cls = type(held_at(place, name))
    if not told_apart(cls) or type(class_lookup(cls, "__del__")) not in BY_NOBODY:
        raise Break("unsupported type", type=f"{class_name(cls)} (with __del__)")
    known = vm.by_source.get(Source("contents", home) if name is None else Source("key", home, name))
    if known is None or known.__class__ is Lazy or known.pytype not in CONSTANTS:  # of which guards tell the class
        vm.guard(home, "NO_FINALIZER", name)


def held_at(place: Any, name: str | None) -> Any:
    """Return what a place holds under a name, or a cell without one; MISSING if that is nothing."""
    if type(place) is types.CellType:
        try:
            return place.cell_contents
        except ValueError:
            return MISSING
    if isinstance(place, dict):
        return MISSING if name is None else dict.get(place, name, MISSING)
    slot = class_lookup(type(place), str(name))
    try:
        return slot.__get__(place) if type(slot) is types.MemberDescriptorType else MISSING
    except AttributeError:
        return MISSING


def refuse_finalizer(vm: Machine, cls: type) -> None:
    """Raise Break if instances of a class have a finalizer: Python decides when it runs."""
    if has_finalizer(vm, cls):
        raise Break("unsupported type", type=f"{class_name(cls)} (with __del__)")


def has_finalizer(vm: Machine, cls: type) -> bool:
    """Return whether a class has a `__del__`, or an equality of its own in Python, so that nobody can look it up."""
    return not told_apart(cls) or type(guarded_lookup(vm, cls, "__del__")) not in BY_NOBODY


def noticeable(vm: Machine) -> Finalizable | None:
    """Return an object of the frame's whose finalizer does something that can be noticed; None if there is none."""
    return next((each for each in vm.mortals if not is_unnoticeable(vm, each.value)), None)


def is_unnoticeable(vm: Machine, value: Object) -> bool:
    """Run the `__del__` of an object, or `close` a generator, symbolically; return whether nobody can notice that."""
    if value.pytype is types.GeneratorType:
        method, of_its_own = "close", EffectKind.ITEMS
        if not waits_in_block(vm.entity(value).payload_as(Frame)):
            return True
    else:
        method, of_its_own = "__del__", EffectKind.ATTRIBUTE
        if type(guarded_lookup(vm, value.pytype, method)) is not types.FunctionType:
            return False
    if vm.effects.wrote_outside:
        return False
    count, own, mark = len(vm.heap.entities), vm.entity(value), vm.effects.mark()
    attrs, nodes = dict(own.attrs), len(vm.builder.graph.nodes)
    try:
        with vm.heap.watched() as asked:
            vm.call_method(value, method)
    except (Break, Raised):
        return False
    others = [vm.heap.entities[ref] for ref in asked if ref != value.ref]
    if any(other.changed or (other.fresh and other.ref < count) for other in others):
        return False
    done = [change for change in vm.effects.since(mark) if change.kind is not of_its_own or change.owner is not own]
    vm.effects.put_back(own, attrs)
    return not done and len(vm.builder.graph.nodes) == nodes


def waits_in_block(frame: Frame) -> bool:
    """Return whether a generator waits at a `yield` in a `try` or `with` block."""
    return frame.yielded and frame.code.lookup(frame.pc - 1) is not None


class FinalizableLocals(dict[str, Value]):
    """Hold the locals of a frame that was given objects with finalizers. To drop one raises Break."""

    def __init__(self, values: dict[str, Value], mortal: dict[str, type]) -> None:
        super().__init__(values)
        self.mortal = mortal

    def __setitem__(self, name: str, value: Value) -> None:
        if name in self.mortal and getattr(self.get(name), "source", None) is not getattr(value, "source", self):
            self.let_go(name)
        super().__setitem__(name, value)

    def pop(self, name: str, *default: Any) -> Any:
        if name in self.mortal and name in self:
            self.let_go(name)
        return super().pop(name, *default)

    def let_go(self, name: str) -> None:
        """Raise Break for the object with a finalizer in this variable."""
        raise Break("unsupported type", type=f"{class_name(self.mortal[name])} (with __del__)")


def locals_of_root(
    vm: Machine, real: Mapping[str, Any], values: dict[str, Value], rebound: Collection[str]
) -> dict[str, Value]:
    """Return the locals of the outermost frame; `rebound`: the names that its code stores or deletes."""
    mortal = {name: type(obj) for name, obj in real.items() if name in rebound and has_finalizer(vm, type(obj))}
    return FinalizableLocals(values, mortal) if mortal else values
