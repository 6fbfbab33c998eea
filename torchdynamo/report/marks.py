"""Check the user's marks of dynamic sizes against what the function makes of them: contradictions are errors."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchdynamo.capture.capture import Capture
from torchdynamo.capture.torch.dynamic_marks import said_of
from torchdynamo.capture.torch.sizes import MOST, bounds
from torchdynamo.core.source import Source
from torchdynamo.errors import ConstraintViolationError
from torchdynamo.graph.numbers import Numbers
from torchdynamo.guards.sizes import number_guards
from torchdynamo.report.recompiles import decisions

SPECIAL = (0, 1)  # sizes that torch's own rules may specialize without an error


def check_marks(captured: Capture, numbers: Numbers) -> None:
    """Raise ConstraintViolationError if a marked size (`mark_dynamic`, `mark_unbacked`) was specialized, or does not
    range over all that its bounds allow.
    """
    found = list(contradictions(captured, numbers))
    if found:
        decided = decisions(number_guards(numbers, captured.machine.layouts))
        raise ConstraintViolationError("\n".join([*found, *map(str, decided)]))


def contradictions(captured: Capture, numbers: Numbers) -> Iterator[str]:
    """Yield a sentence for each marked size that was specialized or bounded."""
    vm = captured.machine
    for value in vm.inputs:
        tensor = vm.input_objects[value.node]
        layout = vm.layouts.get(value.source) if value.source is not None else None
        if layout is None or not isinstance(tensor, torch.Tensor):
            continue
        said = said_of(tensor)
        for dim in sorted(said.firm - said.static):
            now, source = tensor.size(dim), Source("size", value.source, dim)
            least, most = numbers.bounds(layout.size[dim])
            if least == most and least is not None:
                if now not in SPECIAL:
                    yield f"{source} has been marked as dynamic, and the function makes a constant of it ({now})"
            elif dim in said.bounds:
                low, high = bounds(now, *said.bounds[dim])
                if (least or 0) > low or (most is not None and most < high):
                    asked, takes = spelled(low, high, "on"), spelled(least or 0, most, "or more")
                    yield f"{source} has been marked as dynamic from {asked}, and the function takes {takes}"


def spelled(least: int, most: int | None, more: str) -> str:
    """Return bounds in words, where `more` stands for all that is larger."""
    return f"{least} {more}" if most is None or most >= MOST else f"{least} to {most}"
