"""Views of dicts: keys, values, items. They show what the dict holds when they are looked at."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.types.items import lookup, turns
from torchdynamo.capture.types.mapping import contains, hashed, length
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import ViewOf
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, iterates, models, rebuilds
from torchdynamo.capture.vm.operators import same_or_equal
from torchdynamo.core.signals import Break
from torchdynamo.core.value import FALSE, Known, Object, Value, boolean

VIEWS: dict[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
ORDERED_VIEWS = {"keys": type(collections.OrderedDict().keys()), "values": type(collections.OrderedDict().values()),
                 "items": type(collections.OrderedDict().items())}  # fmt: skip


def view(kind: str) -> Any:
    def row(vm: Machine, self: Object) -> Value:
        views = ORDERED_VIEWS if issubclass(self.pytype, collections.OrderedDict) else VIEWS
        return vm.new(views[kind], payload=ViewOf(kind, self))

    return row


def shown(vm: Machine, value: Object) -> ViewOf:
    """Return the dict of a view and what the view shows of it.

    Ends the graph for a view that existed: it hides its dict.
    """
    view = vm.entity(value).payload_if(ViewOf)
    if view is None:
        raise Break("unsupported type", type=value.pytype.__name__)
    return view


PARTS: dict[str, Any] = {
    "keys": lambda vm: lambda key, item: key,
    "values": lambda vm: lambda key, item: item,
    "items": lambda vm: lambda key, item: vm.make_tuple([key, item]),
}


def view_items(vm: Machine, value: Object) -> Iterator[Value]:
    kind, box = shown(vm, value)
    return turns(vm, box, PARTS[kind](vm))


def view_mapping(vm: Machine, self: Object) -> Value:
    return vm.call(Known(types.MappingProxyType), [shown(vm, self).box], {})


def view_length(vm: Machine, self: Object) -> Value:
    return length(vm, shown(vm, self).box)


def view_contains(vm: Machine, self: Object, item: Value) -> Value:
    """Return whether a view holds a value; of items, the pair's key is looked up and the item there compared."""
    kind, box = shown(vm, self)
    if kind == "keys":
        return contains(vm, box, item)
    if kind == "values":
        return boolean(any(same_or_equal(vm, other, item) for other in view_items(vm, self)))
    if not issubclass(item.pytype, tuple) or vm.known(vm.length(item), "length") != 2:
        return FALSE
    key, value = vm.unpack(item, 2)
    found = lookup(vm, box, key)
    return boolean(found is not None and same_or_equal(vm, found, value))


def view_set(vm: Machine, value: Value) -> Object:
    """Return the items of a view or another iterable as a set; the keys of a dict are not hashed again."""
    if value.__class__ is Object and value.pytype is VIEWS["keys"]:
        return vm.new(set, dict(hashed(vm, shown(vm, value).box)))
    return vm.new(set, {vm.hkey(item): item for item in vm.iterate(value)})


def view_comparison(name: str) -> Any:
    """Return the model of a comparison of views with sets and views, by which holds all of the other."""

    def row(vm: Machine, self: Object, other: Value) -> Value:
        if not issubclass(other.pytype, LIKE_SETS):
            return Known(NotImplemented)
        sizes = [vm.known(vm.length(each), "length") for each in (self, other)]
        if not getattr(sizes[0], "__eq__" if name == "__ne__" else name)(sizes[1]):
            return boolean(name == "__ne__")
        smaller, larger = (other, self) if name in ("__ge__", "__gt__") else (self, other)
        held = all(vm.contains(larger, item) for item in vm.iterate(smaller))
        return boolean(held is (name != "__ne__"))

    return row


def view_operator(name: str) -> Any:
    def row(vm: Machine, self: Object, other: Value) -> Value:
        mine, theirs = view_set(vm, self), view_set(vm, other)
        made: Value = vm.special(mine, name, theirs)
        if made.__class__ is Object:  # its order is that of what Python does with views, not with sets
            given = [list(vm.entity(each).items) for each in (mine, theirs)]
            if all(item.__class__ is Known for each in (mine, theirs) for item in vm.entity(each).items.values()):
                vm.entity(made).payload = getattr(dict.fromkeys(given[0]).keys(), name)(dict.fromkeys(given[1]).keys())
            else:
                vm.entity(made).payload = None
        return made

    return row


def rebuild_view(emit: Emitter, entity: Entity) -> None:
    kind, box = entity.payload_as(ViewOf)
    base: Any = collections.OrderedDict if issubclass(box.pytype, collections.OrderedDict) else dict
    push_call(emit, getattr(base, kind), box)


VIEW_OPERATORS = ("__and__", "__or__", "__xor__", "__sub__", "isdisjoint")
COMPARISONS = ("__eq__", "__ne__", "__le__", "__lt__", "__ge__", "__gt__")
LIKE_SETS = (set, frozenset, *(each[kind] for each in (VIEWS, ORDERED_VIEWS) for kind in ("keys", "items")))
for _kind in VIEWS:
    models(dict, _kind)(view(_kind))
    for _type in (VIEWS[_kind], ORDERED_VIEWS[_kind]):
        iterates(_type)(view_items)
        models(_type, "__len__")(view_length)
        models(_type, "__contains__")(view_contains)
        models(_type, ".mapping")(view_mapping)
        for _operator in VIEW_OPERATORS if _kind != "values" else ():
            models(_type, _operator)(view_operator(_operator))
        for _operator in COMPARISONS if _kind != "values" else ():
            models(_type, _operator)(view_comparison(_operator))
        rebuilds(_type)(rebuild_view)
