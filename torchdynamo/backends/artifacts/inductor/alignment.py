"""Copy inputs that lie elsewhere in memory than kernels for GPUs take for granted, as Inductor does."""

from __future__ import annotations

from typing import Any

import torch

from torchdynamo.backends.artifacts.artifact import Run, Value, field

# What Inductor's function around an entry knows: the entry, inputs to look at, and those of them that kernels write to.
ENTRY, CHECKED, WRITTEN = "model", "inputs_to_check", "mutated_input_idxs"


def without_alignment(run: Any) -> tuple[Any, Value]:
    """Return the entry inside of Inductor's function that copies inputs, and what that does as data; for another
    callable, itself and None.
    """
    code = getattr(run, "__code__", None)
    if code is None or set(code.co_freevars) != {ENTRY, CHECKED, WRITTEN}:
        return run, None
    from torch._inductor.utils import ALIGNMENT

    known = {name: cell.cell_contents for name, cell in zip(code.co_freevars, run.__closure__, strict=True)}
    about = {"bytes": ALIGNMENT, "checked": list(known[CHECKED]), "written": sorted(known[WRITTEN])}
    return known[ENTRY], about


def with_alignment(run: Run, about: dict[str, Value]) -> Run:
    """Return a callable that copies inputs which do not lie at a multiple of some bytes, and then runs a graph."""
    alignment, checked = field(about, "bytes", int), field(about, "checked", list)
    written = frozenset(field(about, "written", list))

    def call(args: list[Any]) -> Any:
        given = {at: args[at] for at in checked if args[at].data_ptr() % alignment}
        for at, tensor in given.items():
            args[at] = in_memory_of_its_own(tensor)
        back = [(tensor, args[at]) for at, tensor in given.items() if at in written]
        made = run(args)
        for tensor, copy in back:
            tensor.copy_(copy)
        return made

    return call


def in_memory_of_its_own(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, where several elements may share memory."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((last + 1 if tensor.numel() else 0,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())
