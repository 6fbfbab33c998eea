"""collections: named tuples and counting."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import collections

from torchdynamo.capture.types.items import found_under, store_under
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function
from torchdynamo.capture.vm.remade_classes import MadeClass, pushing_call
from torchdynamo.core.value import NONE, Known, Value


@function(collections.namedtuple)
def namedtuple(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """Make a class of named tuples from constants; its module is the one whose code calls."""
    named = {"module": Known(vm.frames[-1].globals.real.get("__name__")), **kwargs}
    given = {name: vm.concretely(arg) for name, arg in named.items()}
    try:
        made: type = collections.namedtuple(*map(vm.concretely, args), **given)  # type: ignore[misc]
    except (ValueError, TypeError) as error:
        raise vm.refused(error) from None
    MadeClass(vm.step, pushing_call(collections.namedtuple, list(args), named)).known_to(vm, made)
    return Known(made)


@function(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(vm: Machine, mapping: Value, iterable: Value) -> Value:
    """Count as C does: in a dict that reads and writes as dict does, each element is hashed once."""
    if any(guarded_lookup(vm, mapping.pytype, name) is not dict.__dict__.get(name) for name in ("get", "__setitem__")):
        return vm.inline(Known(counting), [mapping, iterable], {})
    counts = vm.as_object(mapping)
    for element in vm.iterate(iterable):
        hkey = vm.hkey(element)
        known = found_under(vm, counts, element, hkey)
        store_under(vm, counts, element, hkey, ONE if known is None else vm.binary("+", known, ONE))
    return NONE


ONE = Known(1)


def counting(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1
