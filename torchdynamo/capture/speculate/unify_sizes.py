"""Unify unbacked sizes that an operator requires to be the same, or a known one: `x[~mask] += y[~mask]`.

They are taken to be, and the graph checks it. Where they are not, one of them is 1, or the operator raises: the graph
raises, and the frame runs from its start as it was written. An operator that asks
is also told that tensors have elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.torch import symbols
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def are_taken_to_fit(vm: Machine, fault: Break, args: Sequence[Value]) -> bool:
    """Assume sizes to be equal if that is all that an operator lacked; return whether it was."""
    pairs = [vm.builder.numbers.equated(fact) for fact in getattr(fault, "facts", ())]
    if not pairs or not all(pairs) or not vm.may_begin_again or vm.backwards:
        return False
    for pair in pairs:
        presumed = not_empty(vm, args, pair[0]) if len(pair) == 2 and pair[1] == 0 else have_one_size(vm, args, pair)
        if presumed is None:
            return False
        if not symbols.follows(vm, presumed):
            vm.call(Known(torch._check), [presumed], {})
            vm.may_raise = vm.sizes_fit = True
    return True


def have_one_size(vm: Machine, args: Sequence[Value], terms: Sequence[Any]) -> Value | None:
    """Return the condition that two sizes of operands are the same, which these terms say; None if they do not."""
    sizes = [(arg, dim, size) for arg in args if isinstance(arg, TensorNode) for dim, size in enumerate(arg.fake.shape)]
    for (one, dim, size), (other, other_dim, other_size) in itertools.combinations(sizes, 2):
        if vm.builder.numbers.say_alike((size, other_size), terms):
            first, second = vm.call_method(one, "size", Known(dim)), vm.call_method(other, "size", Known(other_dim))
            return vm.binary("==", first, second)
    return None


def not_empty(vm: Machine, args: Sequence[Value], elements: Any) -> Value | None:
    """Return the condition that an operand has elements, of which there are this many; None if there is none."""
    for arg in args:
        if isinstance(arg, TensorNode) and vm.builder.numbers.is_term(arg.fake.numel(), elements):
            return vm.binary("!=", vm.call_method(arg, "numel"), Known(0))
    return None
