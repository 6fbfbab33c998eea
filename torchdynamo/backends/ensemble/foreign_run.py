"""Call a runtime that is not PyTorch's as if it were the captured graph: its inputs, its errors, results as eager's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from torchdynamo.backends.ensemble.exported import Exported, last_line
from torchdynamo.backends.ensemble.integer_values import Check, merged
from torchdynamo.backends.ensemble.member import Declined

_CPU = torch.device("cpu")
Compute: TypeAlias = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None]
"""(inputs, results): reads contiguous inputs and writes all of the contiguous results."""


class ForeignRun:
    """Runs a graph in a foreign runtime. Any number of threads may call it at once, as far as `compute` lets them.

    Results are written to memory of their own in each call, with the strides that eager gives them. If an index is out
    of range, the captured graph runs instead, and raises as eager does.
    """

    def __init__(self, form: Exported, compute: Compute, checks: Sequence[Check], threads: int) -> None:
        """Make the callable. checks: what must hold of inputs. threads: the number that the runtime was built for."""
        self.compute = compute
        self.plain = form.plain
        self.outputs = form.outputs
        self.rebuild = form.rebuild
        self.checks = merged(checks)
        self.threads = threads
        self.are_contiguous = all(each.is_contiguous for each in form.outputs)

    def tried(self, inputs: Sequence[torch.Tensor]) -> ForeignRun:
        """Call the runtime once, and return this run. Raises Declined if it fails; an index may be out of range."""
        if all(check.holds(inputs) for check in self.checks):
            try:
                self(*inputs)
            except Exception as error:
                raise Declined(f"it fails when it is called: {last_line(error)}") from error
        return self

    def __call__(self, *inputs: torch.Tensor) -> Any:
        for check in self.checks:
            if not check.holds(inputs):
                return self.plain(*inputs)
        given = [each if each.is_contiguous() and not each.is_neg() else _plain_copy(each) for each in inputs]
        written = [torch.empty(each.shape, dtype=each.dtype, device=_CPU) for each in self.outputs]
        self.compute(given, written)
        return self.rebuild(*(written if self.are_contiguous else self._with_strides(written)))

    def _with_strides(self, written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [
            tensor
            if layout.is_contiguous
            else torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device=_CPU).copy_(tensor)
            for tensor, layout in zip(written, self.outputs, strict=True)
        ]


def _plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_neg().contiguous()
