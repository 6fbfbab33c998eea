"""Objects that a custom `autograd.Function` keeps on its context for the backward.

The backward sees an object as it is when it runs. One that the frame made is, by then, what it was when the function
was called, if the frame writes to it no more and nobody else can: it does not leave the frame. Else the graph ends
before the call. An object that was there before the frame may be moved and told apart, but not read.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchdynamo.capture.frame import MadeFunction
from torchdynamo.capture.types.dict_views import ORDERED_VIEWS, VIEWS
from torchdynamo.capture.vm.heap import Entity, ReadLater
from torchdynamo.capture.vm.iteration import ViewOf
from torchdynamo.capture.vm.lookup import written_in_python
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Table
from torchdynamo.core.signals import Restart
from torchdynamo.core.value import ABSENT, Known, Object, Value

Bring = Callable[[Value], Value]
IMMUTABLE = (tuple, slice, types.MethodType, types.BuiltinMethodType)  # what somebody else may hold, too
REASON = "an object that a backward reads"


class Copying(NamedTuple):
    """Hold what an object is copied with: the machine to make it in, and what copies its parts."""

    vm: Machine
    bring: Bring


# Make an object of the type, or of a subclass written in Python, in another machine; None where it cannot be made.
COPY_INTO: Table[Callable[[Copying, Entity], Object | None]] = Table()
# Copy the items of an object, which may lead back to it; its attributes are copied after them.
FILL: Table[Callable[[Copying, Entity, Entity], None]] = Table()


def copy_into(vm: Machine, entity: Entity, bring: Bring, known: dict[int, Value]) -> Value | None:
    """Return a copy of an object that the frame made, for another machine; None where its type does not allow one.

    known: the copies so far, by reference.
    """
    base = next(base for base in entity.pytype.__mro__ if base in COPY_INTO or not written_in_python(base))
    copier, by = COPY_INTO.get(base), Copying(vm, bring)
    made = None if copier is None else copier(by, entity)
    if made is None or known.setdefault(entity.ref, made) is not made:  # its own parts led back to it
        return known.get(entity.ref)
    copy = vm.entity(made)
    if base in FILL:
        FILL[base](by, entity, copy)
    attrs = {name: value if value is ABSENT else bring(value) for name, value in entity.attrs.items()}
    vm.effects.write_all(copy, attrs)
    return made


@COPY_INTO.register(object)
def copy_instance(by: Copying, entity: Entity) -> Object | None:
    return by.vm.new(entity.pytype) if entity.items is None and entity.payload is None else None


@COPY_INTO.register(list)
def copy_list(by: Copying, entity: Entity) -> Object | None:
    plain = entity.payload is None and entity.items.__class__ is list
    return by.vm.new(entity.pytype, []) if plain else None


@FILL.register(list)
def fill_list(by: Copying, entity: Entity, copy: Entity) -> None:
    copy.items.extend(map(by.bring, entity.items))


@COPY_INTO.register(dict, collections.OrderedDict, collections.defaultdict)
def copy_dict(by: Copying, entity: Entity) -> Object | None:
    """Copy a dict whose keys are constants: of others, code of the program may say what they equal."""
    items = {} if entity.items is None else entity.items
    plain = entity.payload is None and items.__class__ is dict
    if not plain or any(key.__class__ is not Known for key, _ in items.values()):
        return None
    return by.vm.new(entity.pytype, {})


@FILL.register(dict, collections.OrderedDict, collections.defaultdict)
def fill_dict(by: Copying, entity: Entity, copy: Entity) -> None:
    for key, value in (entity.items or {}).values():
        copy.items[by.vm.hkey(key)] = [key, by.bring(value)]


@COPY_INTO.register(*VIEWS.values(), *ORDERED_VIEWS.values())
def copy_view(by: Copying, entity: Entity) -> Object | None:
    kind, box = entity.payload_as(ViewOf)
    copied = by.bring(box)
    return by.vm.new(entity.pytype, payload=ViewOf(kind, copied)) if copied.__class__ is Object else None


@COPY_INTO.register(slice)
def copy_slice(by: Copying, entity: Entity) -> Object:
    return by.vm.new(slice, list(map(by.bring, entity.items)))


@COPY_INTO.register(types.MethodType, types.BuiltinMethodType, functools.partial)
def copy_callable(by: Copying, entity: Entity) -> Object:
    return by.vm.new(entity.pytype, payload=entity.payload)


@COPY_INTO.register(types.CellType)
def copy_cell(by: Copying, entity: Entity) -> Object | None:
    """Copy a cell, unless it is one of the root frame's, which goes on with it after a graph break."""
    return by.vm.new(types.CellType) if entity.payload is None else None


@COPY_INTO.register(types.FunctionType)
def copy_function(by: Copying, entity: Entity) -> Object:
    code, space = entity.payload_as(MadeFunction).parts[:2]
    given = {name: by.bring(value) for name, value in entity.payload_as(MadeFunction).given.items()}
    return by.vm.make_function(code, space, given)


def can_change(entity: Entity) -> bool:
    """Return whether whoever holds an object may change it."""
    return not issubclass(entity.pytype, IMMUTABLE) or bool(entity.pytype.__dictoffset__)


def note_objects(vm: Machine, refs: Iterable[int]) -> None:
    """Note the objects that a backward reads: from now on they must be as they are."""
    changing = [ref for ref in refs if can_change(vm.heap.entities[ref])]
    if changing:
        vm.effects.watch()
    for ref in changing:
        vm.in_backwards.setdefault(ref, ReadLater(vm.step, len(vm.effects.changes())))


def check_unchanged(vm: Machine) -> None:
    """Raise Restart if the frame has written to an object that a backward reads, after that was captured."""
    for index, change in enumerate(vm.effects.changes() if vm.in_backwards else ()):
        kept = None if change.owner is None else vm.in_backwards.get(change.owner.ref)
        if kept is not None and index >= kept.changes:
            raise Restart(kept.step - 1, REASON)


def check_stays(vm: Machine, entity: Entity) -> None:
    """Raise Restart if an object that leaves the frame is one that a backward reads: others may change it before."""
    kept = vm.in_backwards.get(entity.ref)
    if kept is not None:
        raise Restart(kept.step - 1, REASON)
