"""Views of dicts: keys, values, items. They show what the dict holds when they are looked at."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.heap import Entity
from torchdynamo.capture.model import Emitter, iterates, models, rebuilds
from torchdynamo.capture.signals import Break
from torchdynamo.capture.types.mapping import contains, keys_of, length, lookup
from torchdynamo.capture.value import Known, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

VIEWS: dict[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
ORDERED_VIEWS = {"keys": type(collections.OrderedDict().keys()), "values": type(collections.OrderedDict().values()),
                 "items": type(collections.OrderedDict().items())}  # fmt: skip


def view(kind: str) -> Any:
    def row(vm: Machine, self: Object) -> Value:
        return vm.new(
            (ORDERED_VIEWS if issubclass(self.pytype, collections.OrderedDict) else VIEWS)[kind], note=(kind, self)
        )

    return row


def shown(vm: Machine, value: Object) -> tuple[str, Object]:
    """What the view shows of which dict; one that existed does not tell its dict."""
    note: tuple[str, Object] | None = vm.entity(value).note
    if note is None:
        raise Break("unsupported type", type=value.pytype.__name__)
    return note


def view_items(vm: Machine, value: Object) -> Iterator[Value]:
    kind, box = shown(vm, value)
    for key in keys_of(vm, box):
        if kind == "keys":
            yield key
            continue
        item = lookup(vm, box, key)
        assert item is not None
        yield item if kind == "values" else vm.make_tuple([key, item])


def view_length(vm: Machine, self: Object) -> Value:
    return length(vm, shown(vm, self)[1])


def view_contains(vm: Machine, self: Object, item: Value) -> Value:
    kind, box = shown(vm, self)
    if kind == "keys":
        return contains(vm, box, item)
    return boolean(any(vm.truth(vm.binary("==", item, other)) for other in view_items(vm, self)))


def view_set(vm: Machine, value: Value) -> Object:
    """The view's items, or any other iterable's, as a set."""
    return vm.new(set, {vm.hkey(item): item for item in vm.iterate(value)})


def view_operator(name: str) -> Any:
    def row(vm: Machine, self: Object, other: Value) -> Value:
        mine, theirs = view_set(vm, self), view_set(vm, other)
        made: Value = vm.special(mine, name, theirs)
        if made.__class__ is Object:  # its order is that of what Python does with views, not with sets
            given = [list(vm.entity(each).items) for each in (mine, theirs)]
            if all(item.__class__ is Known for each in (mine, theirs) for item in vm.entity(each).items.values()):
                vm.entity(made).note = getattr(dict.fromkeys(given[0]).keys(), name)(dict.fromkeys(given[1]).keys())
            else:
                vm.entity(made).note = None
        return made

    return row


def rebuild_view(emit: Emitter, entity: Entity) -> None:
    kind, box = entity.note
    base: Any = collections.OrderedDict if issubclass(box.pytype, collections.OrderedDict) else dict
    emit.function(getattr(base, kind))
    emit.value(box)
    emit.op("CALL", (1, ()))


VIEW_OPERATORS = ("__and__", "__or__", "__xor__", "__sub__", "__eq__", "__ne__", "__le__", "__ge__", "isdisjoint")
for _kind in VIEWS:
    models(dict, _kind)(view(_kind))
    for _type in (VIEWS[_kind], ORDERED_VIEWS[_kind]):
        iterates(_type)(view_items)
        models(_type, "__len__")(view_length)
        models(_type, "__contains__")(view_contains)
        for _operator in VIEW_OPERATORS if _kind != "values" else ():
            models(_type, _operator)(view_operator(_operator))
        rebuilds(_type)(rebuild_view)
