"""Check in each call the contents of inputs that a compiled graph takes for granted.

On a CPU what is read of them is compared, which sees writes of any kind. On other devices that would wait for the
device, so identity, address and version are compared; writes that leave the version alone (`docs/limits.md`) are not
seen there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed
import torch.fx

from torchdynamo import _native
from torchdynamo.hook.install import Compiled

Run = Callable[..., Any]
Index = list[list[int | None]] | None
"""Slices of what is read of a tensor: start, stop and step of each; None for all of it."""
Region = tuple[int, Index, torch.Tensor]
"""Position of an input, what is read of it, and a copy of that."""


def can_be_checked(value: Any) -> bool:
    """Return whether an input's contents can be taken for granted and checked."""
    if type(value) is not torch.Tensor or value.requires_grad or value.layout is not torch.strided:
        return False
    if value.device.type == "cpu":
        return True
    # Collectives write to buffers without a new version, as DDP does before each forward.
    spread = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not spread and not value.is_inference()


class CheckedContents:
    """The contents of some inputs, and whether a call's are the same."""

    __slots__ = ("facts", "regions")

    def __init__(self, regions: Sequence[Region], facts: bytes | None) -> None:
        self.regions = tuple(regions)
        self.facts = facts

    @classmethod
    def of(cls, readers: Mapping[int, Sequence[torch.fx.Node]], inputs: Sequence[Any]) -> CheckedContents | None:
        """Return the contents of the inputs at some positions, as far as nodes read them; None for no positions."""
        if not readers:
            return None
        regions: list[Region] = []
        there = [at for at in readers if inputs[at].device.type != "cpu"]
        for at, nodes in readers.items():
            if at not in there:
                regions += [
                    part for part in parts(at, nodes, inputs[at]) if part[:2] not in [each[:2] for each in regions]
                ]
        return cls(regions, _native.tensor_facts(tuple(inputs), tuple(there)) if there else None)

    def hold(self, args: tuple[Any, ...]) -> bool:
        """Return whether the inputs of a call have these contents."""
        if self.facts is not None and not _native.tensor_facts_hold(self.facts, args):
            return False
        return all(torch.equal(of_index(args[at], index), known) for at, index, known in self.regions)


def parts(at: int, readers: Sequence[torch.fx.Node], value: torch.Tensor) -> list[Region]:
    """Return what nodes read of an input: slices, or all of it."""
    indices = [as_data(node.args[1]) for node in readers if node.target is operator.getitem]
    if len(indices) < len(readers) or None in indices:
        return [(at, None, value.clone())]
    return [(at, index, of_index(value, index).clone()) for index in indices]


def as_data(index: Any) -> Index:
    """Return an index of full dimensions and slices as data; None for an index of another kind."""
    items = index if isinstance(index, tuple) else (index,)
    found: list[list[int | None]] = []
    for each in items:
        if not isinstance(each, slice) or not all(
            part is None or type(part) is int for part in (each.start, each.stop, each.step)
        ):
            return None
        found.append([each.start, each.stop, each.step])
    return found


def of_index(value: torch.Tensor, index: Index) -> torch.Tensor:
    """Return what an index that is data reads of a tensor; all of it for None."""
    return value if index is None else value[tuple(slice(*each) for each in index)]


class Checked:
    """Calls a compiled graph if inputs have the contents that it takes for granted, and `otherwise` if not."""

    __slots__ = ("__weakref__", "contents", "make", "otherwise", "run")

    def __init__(self, run: Run, contents: CheckedContents, make: Callable[[tuple[Any, ...]], Run]) -> None:
        self.run = run
        self.contents = contents
        self.make = make  # compiles the graph for a call's inputs, without a look at their contents
        self.otherwise: Run | None = None

    def __call__(self, *args: Any) -> Any:
        if self.contents.hold(args):
            return self.run(*args)
        if self.otherwise is None:
            self.otherwise = Compiled(self.make, None)(args)  # no frame of the compiler is captured
        return self.otherwise(*args)
