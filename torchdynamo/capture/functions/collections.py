"""collections: named tuples and counting."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import collections

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.capture.vm.remade_classes import MadeClass, pushing_call
from torchdynamo.core.value import Known, Value


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


@polyfill(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1
