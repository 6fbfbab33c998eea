"""Dictionaries that are read and written as attributes or names: an instance's, a module's, a function's, a class's.

The program may hold such a dictionary as well, as what `vars(obj)` gives. An instance's is then its attributes, under
another name. Of others both ways are followed as long as nobody writes; what would be written by one way and read by
the other ends the graph.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.model import enters
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@dataclass(slots=True)
class AliasedDict:
    """Describe a dictionary of names that existed at entry, and by which ways the program reached it."""

    real: dict[str, Any]
    source: Source | None
    owner: Any  # the instance whose attributes are in it
    shared: bool = False  # there is another way to it
    written: bool = False


class OfInstance(NamedTuple):
    """The payload of a dict that is an instance's `__dict__`: its contents are that instance's attributes."""

    owner: Object


def note_lookup(vm: Machine, real: dict[str, Any], source: Source | None, owner: Any = None) -> AliasedDict:
    """Return the record of a dictionary in which a name is about to be looked up."""
    space = vm.aliased_dicts.get(id(real))
    if space is None:
        space = vm.aliased_dicts[id(real)] = AliasedDict(real, source, owner)
        as_dict = vm.heap.by_id.get(id(real))
        if as_dict is not None and not vm.entity(as_dict).fresh:
            unite(vm, space, vm.entity(as_dict))
    elif space.owner is not owner:  # an instance that was given another's
        note_second_way(space, space.written)
    return space


def note_write(space: AliasedDict) -> None:
    """Note that a dictionary is about to be written to. Raises Break if it was reached in two ways."""
    if space.shared:
        raise two_ways_break()
    space.written = True


def unite(vm: Machine, space: AliasedDict, entity: Entity) -> None:
    """Unite a dictionary of names with the dict that the program holds: of an instance, they share their contents."""
    if space.owner.__class__ is Object and not space.shared and not entity.touched:
        entity.payload, entity.items = OfInstance(space.owner), None
        if entity.source is not space.source and entity.source is not None:
            vm.guard(entity.source, "SAME_OBJECT", space.source)
    else:
        note_second_way(space, space.written or entity.touched)


def note_second_way(space: AliasedDict, written: bool) -> None:
    """Note a second way to a dictionary. Raises Break if it is written to."""
    if written:
        raise two_ways_break()
    space.shared = True


def two_ways_break() -> Break:
    """Return the Break for a dictionary that is written to and reached in two ways."""
    return Break("side effect not replayable", what="a dictionary that is written to and has two names")


@enters(dict)
def enter(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a dict that existed at entry, which may hold the attributes of an instance."""
    vm.guard(source, "TYPE_MATCH", type(obj))
    value = vm.heap.adopt(obj, source)
    space = vm.aliased_dicts.get(id(obj))
    if space is not None:
        unite(vm, space, vm.entity(value))
    return value


def note_items_write(vm: Machine, entity: Entity) -> None:
    """Raise Break if a dict that existed at entry, and is about to be written to, is read as names, too."""
    if id(entity.real) in vm.aliased_dicts:
        raise two_ways_break()


def of_class(cls: type) -> dict[str, Any]:
    """Return the dictionary of a class, which `__dict__` shows through a proxy."""
    own: dict[str, Any]
    (own,) = gc.get_referents(cls.__dict__)
    return own
