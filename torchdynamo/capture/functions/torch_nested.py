"""torch.nested: nested tensors of the jagged layout, made and attended to by operations of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nested
import torch.nn.functional as F
from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths

from torchdynamo.capture.torch.wrappers import wraps
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import Value


def as_operation(fn: Callable[..., Any]) -> Callable[..., Value]:
    """Return the model of a function that only makes a nested tensor."""

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return vm.emit("call_function", fn, [*args], kwargs)

    return row


for _fn in (
    torch.nested.nested_tensor,
    torch.nested.as_nested_tensor,
    torch.nested.narrow,
    nested_view_from_values_offsets_lengths,
):
    function(_fn)(as_operation(_fn))


@function(F.scaled_dot_product_attention)
def attend(vm: Machine, query: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Model attention. Over nested tensors on a CPU, no tracer takes it apart: the graph runs as captured."""
    if wraps(query) and query.fake.is_nested and query.fake.device.type == "cpu":  # type: ignore[union-attr]
        vm.builder.keep_as_captured()
    return vm.emit("call_function", F.scaled_dot_product_attention, [query, *args], kwargs)
