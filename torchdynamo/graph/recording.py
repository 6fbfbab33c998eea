"""Fake tensors that remember what was done to them.

Which inputs a graph writes to cannot be read off its nodes: a write may go through a view, a `.data`, or a Python
function that hides it. So the world of fake tensors itself notes, for every ATen operator that runs in it, the memory
that is written and whether random numbers are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.graph import fake_mode, overlap

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


class LooseView(Exception):
    """What this does to the views of a tensor is not known here."""


class WorldRecord:
    """What ran in one world."""

    def __init__(self) -> None:
        self.draws = 0  # how often random numbers were drawn
        self.as_captured = False  # there are operations that compilers know nothing of
        self.writes: list[int] = []  # the memory written, each time; 0: nobody knows where
        self.latest: set[int] = set()  # the memory written since whoever reads this emptied it; 0: nobody knows where
        # By address; the storage is kept so that no other can get the same address.
        self.written: dict[int, torch.UntypedStorage] = {}
        self.loose: dict[int, torch.UntypedStorage] = {}
        # Copies made since this was emptied, and of what, by address. Storages are kept for the same reason.
        self.copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.unknown_effects = False  # an operator that is not torch's own has run
        self.everything_written = False  # something was written that has no storage to tell it by

    @property
    def random(self) -> bool:
        """Whether random numbers are drawn."""
        return self.draws > 0

    def draw(self) -> None:
        """Record that random numbers are drawn."""
        self.draws += 1

    def loosen(self, memory: torch.UntypedStorage) -> None:
        """Record views of this memory that autograd does not know for views."""
        self.loose[memory._cdata] = memory

    def write_by_operator(self, tensors: Sequence[Any]) -> None:
        """Record an operator's writes. With gradients, it matters to autograd which tensors are views of which."""
        if self.loose and torch.is_grad_enabled():
            for tensor in tensors:
                storage = storage_of(tensor) if isinstance(tensor, torch.Tensor) else None
                if storage is not None and storage._cdata in self.loose:
                    raise LooseView("memory that was viewed without gradients is written to with them")
        self.write(tensors)

    def write(self, tensors: Iterable[Any]) -> None:
        """Record that the memory of these tensors changes."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                storage = storage_of(tensor)
                self.writes.append(0 if storage is None else storage._cdata)
                if storage is None:
                    self.everything_written = True
                    self.latest.add(0)
                else:
                    self.written[storage._cdata] = storage
                    self.latest.add(storage._cdata)
            elif isinstance(tensor, (tuple, list)):
                self.write(tensor)

    def copied_from(self, memory: int) -> Iterator[int]:
        """Walk through this memory, and all that it was copied to as it is."""
        while True:
            yield memory
            if memory not in self.copies:
                return
            memory = self.copies[memory][1]._cdata

    def wrote_to(self, storage: torch.UntypedStorage | None) -> bool:
        """Return whether this memory may have changed."""
        return self.everything_written or storage is None or storage._cdata in self.written


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the memory of a tensor; sparse ones and some subclasses have none to show."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


# Operators that write to their running statistics when they train, which their schemas do not say.
WRITE_STATISTICS = frozenset(
    f"aten::{name}"
    for name in (
        *("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats"),
        *("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"),
    )
)
STATISTICS = ("running_mean", "running_var")
# Operators whose result holds what their first argument does, in memory of its own.
COPYING = frozenset(("aten::clone", "aten::_to_copy", "aten::copy", "aten::_reshape_copy", "prims::clone"))
# Operators that do what their schemas say, and nothing besides.
OWN_NAMESPACES = frozenset({"aten", "prim", "prims"})


class _Effect:
    """What one ATen operator does besides computing."""

    __slots__ = ("copies", "foreign", "random", "training", "written")

    def __init__(self, op: torch._ops.OpOverload) -> None:
        self.foreign = op.namespace not in OWN_NAMESPACES
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        self.copies = op._schema.name in COPYING
        arguments = op._schema.arguments
        hidden = STATISTICS if op._schema.name in WRITE_STATISTICS else ()
        self.written = [
            (index, argument.name)
            for index, argument in enumerate(arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in hidden
        ]
        statistics = {name for _, name in self.written} <= set(STATISTICS)
        at = [index for index, argument in enumerate(arguments) if statistics and argument.name == "training"]
        self.training = at[0] if at else -1  # the argument without which nothing is written

    def writes(self, args: Sequence[Any]) -> bool:
        """Return whether a call with these arguments writes."""
        return bool(self.written) and (not 0 <= self.training < len(args) or bool(args[self.training]))


@cache
def _effect(op: Any) -> _Effect | None:
    if not isinstance(op, torch._ops.OpOverload):
        return None  # a higher-order operator: its body's operators come through here themselves
    effect = _Effect(op)
    return effect if effect.random or effect.written or effect.foreign or effect.copies else None


@cache
def _mode_class() -> type[FakeTensorMode]:
    class RecordingMode(fake_mode.mode_type()):  # type: ignore[misc]
        record: WorldRecord

        def __torch_dispatch__(
            self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            effect = _effect(func)
            if effect is not None:
                self.record.unknown_effects |= effect.foreign
                if effect.random:
                    self.record.draw()
                if effect.writes(args):
                    written = [args[at] if at < len(args) else kwargs.get(name) for at, name in effect.written]
                    overlap.refuse(func, written, args)
                    self.record.write_by_operator(written)
                if effect.copies:
                    return self.copied(args[0], super().__torch_dispatch__(func, types, args, kwargs))
            return super().__torch_dispatch__(func, types, args, kwargs)

        def copied(self, of: Any, copy: torch.Tensor) -> torch.Tensor:
            if not isinstance(of, torch.Tensor):  # layers of torch.func hand on numbers where operators take tensors
                return copy
            memory, source = storage_of(copy), storage_of(of)
            if memory is not None and source is not None and memory._cdata != source._cdata:
                self.record.copies[memory._cdata] = memory, source
            return copy

    return RecordingMode


def recording_mode(shape_env: ShapeEnv | None, record: WorldRecord) -> FakeTensorMode:
    """Return a world of fake tensors that notes what happens in it."""
    mode = _mode_class()(shape_env=shape_env)
    mode.record = record  # type: ignore[attr-defined]
    mode.cache_enabled = False  # to keep what operators give takes longer than to ask them, with symbols twice as long
    return mode
