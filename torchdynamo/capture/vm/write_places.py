"""Find the places a frame writes to that outlive it, where its next call, or its continuation, will look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torchdynamo.capture.vm.effect_kinds import EffectKind, Write
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.namespaces import dict_source
from torchdynamo.capture.vm.wrap import class_attribute, item_source
from torchdynamo.core.source import Source, instance_attr
from torchdynamo.core.value import Known, Value


class WritePlace(NamedTuple):
    """Describe where something is written, and its new value."""

    kind: EffectKind
    owner: int  # the id of what is written to
    name: object
    source: Source
    value: Value
    home: Source | None  # the object that is written to; None of what outlives every call


def places(vm: Machine) -> Iterator[WritePlace]:
    """Yield each path by which what the frame writes may be read again; several where there are several ways to it."""
    for write in vm.effects.pending():
        if write.kind in PLACES:
            yield from PLACES[write.kind](vm, write)


def of_items(vm: Machine, write: Write) -> Iterator[WritePlace]:
    entity = write.owner
    owner, home, items = id(entity.real), entity.source, entity.items
    if isinstance(items, dict):
        for item in items.values():
            if isinstance(item, list) and item[0].__class__ is Known:
                place = item_source(home, item[0].obj)
                yield WritePlace(write.kind, owner, place.arg, place, item[1], home)
    elif isinstance(items, list):
        for index, item in enumerate(items):
            yield WritePlace(write.kind, owner, index, Source("item", home, index), item, home)


def of_attribute(vm: Machine, write: Write) -> Iterator[WritePlace]:
    owner, home, name = id(write.owner.real), write.owner.source, write.name
    sources = [Source("key", dict_source(write.owner), name), Source("attr", home, name)]
    sources += [Source("contents", home)] if name == "cell_contents" else []
    return (WritePlace(write.kind, owner, name, source, write.value, home) for source in sources)


def of_tensor(vm: Machine, write: Write) -> Iterator[WritePlace]:
    home = write.owner.source
    if home is not None:
        yield WritePlace(write.kind, id(home), write.name, instance_attr(home, write.name), write.value, home)


def of_name(vm: Machine, write: Write) -> Iterator[WritePlace]:
    home = write.owner.source
    if home is not None:
        yield WritePlace(
            write.kind, id(write.owner.real), write.name, Source("key", home, write.name), write.value, None
        )


def of_class(vm: Machine, write: Write) -> Iterator[WritePlace]:
    """Yield the places of a class attribute: those of the subclasses that inherit it, and were asked for it, too."""
    cls, name = write.owner, write.name
    if id(cls) in vm.made_classes:
        return
    for asked in {cls: None, **{asked: None for asked, what in vm.class_attrs if what == name}}:
        if next((base for base in asked.__mro__ if base is cls or name in base.__dict__), None) is cls:
            yield WritePlace(write.kind, id(cls), name, class_attribute(vm, asked, name), write.value, None)


PLACES: dict[EffectKind, Callable[[Machine, Write], Iterator[WritePlace]]] = {
    EffectKind.ITEMS: of_items,
    EffectKind.ATTRIBUTE: of_attribute,
    EffectKind.THREAD_LOCAL: of_attribute,
    EffectKind.TENSOR: of_tensor,
    EffectKind.NAME: of_name,
    EffectKind.FUNCTION: of_name,
    EffectKind.CLASS: of_class,
}
