"""Hand out the results of a replay so that no later replay changes what the program has.

The memory that a recording writes its results to is the same each time. Results that programs hold over the next call
are copied out of it, all by one kernel for each dtype; others are lent: handed out where they are, and watched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs.slots import address_of, by_dtype


class InputView(NamedTuple):
    """A result that is a view of an input."""

    at: int
    position: int  # of the input
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # from the input's


class Results:
    """Where the results of one recording lie, and how each is handed out.

    captured: inputs of the capture; results in their memory are views of the call's inputs.
    constants: tensors of the graph, which are handed out as they are. escaping: positions that are copied out, of the
    first `visible` results; those behind are saved for the backward.
    """

    def __init__(
        self,
        made: Sequence[Any],
        captured: Sequence[Any],
        visible: int,
        escaping: Collection[int],
        constants: Collection[torch.Tensor],
    ) -> None:
        self.template: list[Any] = list(made)
        self.inputs: list[tuple[int, int]] = []
        self.aliases: list[InputView] = []
        self.same: list[tuple[int, int]] = []
        places = {address_of(each): at for at, each in enumerate(captured) if isinstance(each, torch.Tensor)}
        known = {address_of(each) for each in constants}
        first: dict[int, int] = {}
        groups: dict[int, list[int]] = {}
        for at, value in enumerate(made):
            if not isinstance(value, torch.Tensor):
                continue
            address = address_of(value)
            if address and address in known:
                continue
            self.template[at] = None
            if first.setdefault(id(value), at) != at:
                self.same.append((at, first[id(value)]))
            elif address and address in places:
                self._from_input(at, value, captured, places[address])
            else:
                groups.setdefault(address or -1 - at, []).append(at)
        copied, lent, saved = divide(groups, visible, escaping)
        self._copy_out(made, copied)
        self.lent = lent, _native.lender([made[at] for at in lent]) if lent else None
        self.saved = saved, _native.lender([made[at] for at in saved]) if saved else None
        # Memory of results that are lent is not to be used by captures that come after.
        self.owners = {address_of(made[at]): made[at] for at in lent}
        self.saved_owners = {address_of(made[at]): made[at] for at in saved}

    def _from_input(self, at: int, value: torch.Tensor, captured: Sequence[Any], position: int) -> None:
        for other, each in enumerate(captured):
            if each is value:
                self.inputs.append((at, other))
                return
        base = captured[position]
        offset = value.storage_offset() - base.storage_offset()
        self.aliases.append(InputView(at, position, tuple(value.shape), value.stride(), offset))

    def _copy_out(self, made: Sequence[Any], groups: list[list[int]]) -> None:
        """Keep tensors to copy from: each one that fills its memory, and others by the memory that they share."""
        alone = [group[0] for group in groups if len(group) == 1 and fills_memory(made[group[0]])]
        self.copied = by_dtype([*zip(alone, unowned([made[at] for at in alone]), strict=True)])
        self.shared = [(group, unowned([made[at] for at in group])) for group in groups if group[0] not in alone]

    def finish(self, made: list[Any]) -> None:
        """Add copies of results that share memory to the others that a call gives."""
        for group, sources in self.shared:
            memory = sources[0].untyped_storage().clone()
            for at, source in zip(group, sources, strict=True):
                made[at] = moved(source, memory)


def divide(
    groups: dict[int, list[int]], visible: int, escaping: Collection[int]
) -> tuple[list[list[int]], list[int], list[int]]:
    """Divide results, grouped by memory, into those to copy (in groups), those to lend, and those to save.

    What shares memory with a result that escapes or is saved escapes too.
    """
    copied, lent, saved = [], [], []
    for group in groups.values():
        seen = [at for at in group if at < visible]
        hidden = [at for at in group if at >= visible]
        saved += hidden
        if seen and (hidden or any(at in escaping for at in seen)):
            copied.append(seen)
        else:
            lent += seen
    return copied, sorted(lent), sorted(saved)


def fills_memory(tensor: torch.Tensor) -> bool:
    """Return whether a copy of a tensor's elements alone has its layout."""
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.itemsize:
        return False
    return bool(torch._debug_has_internal_overlap(tensor) == 0)


def unowned(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return such tensors in the same memory, without keeping the memory from being used for something else."""
    return _native.lend(_native.lender(tensors), None)[0] if tensors else []


def moved(tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor with this one's dtype, sizes, strides and offset in another storage, conjugate if it is."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())
    made = made.conj() if tensor.is_conj() else made
    return torch._neg_view(made) if tensor.is_neg() else made
