"""Record the side effects of operators that run on fake tensors.

A graph's nodes do not show which inputs it writes to: a write may go through a view, through `.data`, or inside of a
Python function. So the fake mode notes, for every ATen operator that runs in it, which memory is written and whether
random numbers are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from torchdynamo.graph import fake_mode, overlap, torch_compat, wrappers

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


class UnknownView(Exception):
    """Raised for a write to memory with views that autograd does not know."""


class WorldRecord:
    """The side effects of all operators that ran in one fake mode."""

    def __init__(self) -> None:
        self.draws = 0  # how often random numbers were drawn
        self.as_captured = False  # there are operations that compilers do not know
        self.writes: list[int] = []  # address of each write's storage; 0: unknown
        self.latest: set[int] = set()  # addresses of storages written since its reader cleared it; 0: unknown
        # Keyed by address; the storage is kept alive so that no other can get its address.
        self.written: dict[int, torch.UntypedStorage] = {}
        self.replaced: list[torch.Tensor] = []  # tensors that were given other memory
        self.resized: set[int] = set()  # addresses of storages written to through an `out` that was given another size
        self.loose: dict[int, torch.UntypedStorage] = {}
        # Address of a copy made since this was cleared -> its storage, and its original's.
        self.copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.unknown_effects = False  # an operator that is not torch's own has run
        self.communicates = False  # an operator that sends to other ranks, or receives from them, has run
        self.everything_written = False  # a tensor without a storage was written to: it may have been any

    @property
    def random(self) -> bool:
        """True if random numbers are drawn."""
        return self.draws > 0

    def draw(self) -> None:
        """Count a random draw."""
        self.draws += 1

    def loosen(self, memory: torch.UntypedStorage) -> None:
        """Record that views of this memory were made without gradients, unknown to autograd."""
        self.loose[memory._cdata] = memory

    def write_by_operator(self, tensors: Sequence[Any]) -> None:
        """Record an operator's write. Raises UnknownView where autograd would have to know a view."""
        if self.loose and torch.is_grad_enabled():
            for tensor in tensors:
                storage = storage_of(tensor) if isinstance(tensor, torch.Tensor) else None
                if storage is not None and storage._cdata in self.loose:
                    raise UnknownView("memory that was viewed without gradients is written to with them")
        self.write(tensors)

    def write(self, tensors: Iterable[Any]) -> None:
        """Record writes to the memory of these tensors."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                for storage in storages_of(tensor):
                    self.writes.append(0 if storage is None else storage._cdata)
                    if storage is None:
                        self.everything_written = True
                        self.latest.add(0)
                    else:
                        self.written[storage._cdata] = storage
                        self.latest.add(storage._cdata)
            elif isinstance(tensor, (tuple, list)):
                self.write(tensor)

    def replace(self, tensor: torch.Tensor) -> None:
        """Record that a tensor is given other memory, as `tensor.data = other` does: a write to what it had, too."""
        self.write([tensor])
        self.replaced.append(tensor)

    def is_replaced(self, tensor: Any) -> bool:
        """Return whether a tensor was given other memory."""
        return any(each is tensor for each in self.replaced)

    def changed(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor may have been written to, or was given other memory."""
        return self.is_replaced(tensor) or self.wrote_to(storage_of(tensor))

    def copied_from(self, memory: int) -> Iterator[int]:
        """Yield this memory's address, then those of the memory that it is a copy of, in turn."""
        while True:
            yield memory
            if memory not in self.copies:
                return
            memory = self.copies[memory][1]._cdata

    def wrote_to(self, storage: torch.UntypedStorage | None) -> bool:
        """Return whether a storage may have been written to; None counts as any."""
        return self.everything_written or storage is None or storage._cdata in self.written

    def has_resized(self, storage: torch.UntypedStorage | None) -> bool:
        """Return whether an operator has given a tensor another size that has this storage: no compiler knows that."""
        return storage is not None and storage._cdata in self.resized


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None for sparse tensors and some subclasses."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def address_of(tensor: torch.Tensor) -> int | None:
    """Return what tells the memory of a tensor from other memory; None for sparse tensors and some subclasses."""
    storage = storage_of(tensor)
    return None if storage is None else storage._cdata


def storages_of(tensor: torch.Tensor) -> list[torch.UntypedStorage | None]:
    """Return the storage of a tensor; of a wrapper, those of the tensors inside."""
    if type(tensor) is torch_compat.fake_tensor_type() or not wrappers.is_wrapper(tensor):
        return [storage_of(tensor)]
    return [storage_of(each) for each in wrappers.leaves(tensor)]


# Operators that update their running statistics in training, although their schemas declare no write.
WRITE_STATISTICS = frozenset(
    f"aten::{name}"
    for name in (
        *("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats"),
        *("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"),
    )
)
STATISTICS = ("running_mean", "running_var")
# Arguments of operators that draw random numbers: none is drawn while one of them is false or zero.
NO_DRAW_IF_FALSE = frozenset({"dropout", "dropout_p", "training", "train"})
# Operators whose result is a copy of their first argument.
COPYING = frozenset(("aten::clone", "aten::_to_copy", "aten::copy", "aten::_reshape_copy", "prims::clone"))
# Namespaces of operators whose schemas declare all their side effects.
OWN_NAMESPACES = frozenset({"aten", "prim", "prims"})
# Namespaces of operators that communicate, but for the one that waits until they have.
COLLECTIVES = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"})
COLLECTIVES |= {"symm_mem", "_dtensor"}
WAIT = "wait_tensor"


def is_foreign(op: Any) -> bool:
    """Return whether this is an operator of which the schema may not declare all side effects: a custom one, or one
    that calls functions.
    """
    if isinstance(op, torch._ops.OpOverloadPacket):
        return op._qualified_op_name.partition("::")[0] not in OWN_NAMESPACES
    if isinstance(op, torch._ops.OpOverload):
        return op.namespace not in OWN_NAMESPACES
    return isinstance(op, torch._ops.HigherOrderOperator)


def is_collective(op: Any) -> bool:
    """Return whether this is an operator that communicates with other ranks."""
    if isinstance(op, torch._ops.OpOverloadPacket):
        namespace, _, name = op._qualified_op_name.partition("::")
        return namespace in COLLECTIVES and name != WAIT
    return isinstance(op, torch._ops.OpOverload) and op.namespace in COLLECTIVES and op._opname != WAIT


class _Effect:
    """The side effects of an ATen operator, read off its schema."""

    __slots__ = ("collective", "copies", "foreign", "outs", "random", "switches", "training", "written")

    def __init__(self, op: torch._ops.OpOverload) -> None:
        self.foreign = is_foreign(op)
        self.collective = is_collective(op)
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        self.copies = op._schema.name in COPYING
        arguments = op._schema.arguments
        hidden = STATISTICS if op._schema.name in WRITE_STATISTICS else ()
        self.written = [
            (index, argument.name)
            for index, argument in enumerate(arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in hidden
        ]
        self.outs = [argument.name for argument in arguments if argument.is_out]
        statistics = {name for _, name in self.written} <= set(STATISTICS)
        at = [index for index, argument in enumerate(arguments) if statistics and argument.name == "training"]
        self.training = at[0] if at else -1  # position of the argument without which nothing is written
        self.switches = [
            (index, argument.name, argument.default_value)
            for index, argument in enumerate(arguments)
            if self.random and argument.name in NO_DRAW_IF_FALSE
        ]

    def draws(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments draws random numbers."""
        return self.random and all(
            given is None or given
            for given in (
                args[index] if index < len(args) else kwargs.get(name, default)
                for index, name, default in self.switches
            )
        )

    def writes(self, args: Sequence[Any]) -> bool:
        """Return whether a call with these arguments writes."""
        return bool(self.written) and (not 0 <= self.training < len(args) or bool(args[self.training]))


@cache
def _effect(op: Any) -> _Effect | None:
    if not isinstance(op, torch._ops.OpOverload):
        return None  # a higher-order operator, whose body's operators are recorded themselves
    effect = _Effect(op)
    return effect if effect.random or effect.written or effect.foreign or effect.copies else None


def plain_sizes(tensor: torch.Tensor) -> list[Any]:
    """Return the sizes of a tensor, to be compared without a guard on symbolic ones."""
    return [size.node.expr if isinstance(size, torch.SymInt) else size for size in tensor.shape]


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
                self.record.communicates |= effect.collective
                if effect.draws(args, kwargs):
                    self.record.draw()
                if effect.writes(args):
                    written = [args[at] if at < len(args) else kwargs.get(name) for at, name in effect.written]
                    overlap.refuse(func, written, args)
                    self.record.write_by_operator(written)
                if effect.outs:
                    return self.filled([kwargs.get(name) for name in effect.outs], func, types, args, kwargs)
                if effect.copies:
                    return self.copied(args[0], super().__torch_dispatch__(func, types, args, kwargs))
            return super().__torch_dispatch__(func, types, args, kwargs)

        def filled(self, outs: Sequence[Any], *call: Any) -> Any:
            """Run an operator that writes into `outs`, and record those that it gives another size."""
            tensors = [each for each in pytree.tree_leaves(outs) if isinstance(each, torch.Tensor)]
            before = [plain_sizes(each) for each in tensors]
            result = super().__torch_dispatch__(*call)
            for tensor, sizes in zip(tensors, before, strict=True):
                if plain_sizes(tensor) != sizes:
                    self.record.resized.update(each._cdata for each in storages_of(tensor) if each is not None)
            return result

        def copied(self, of: Any, copy: torch.Tensor) -> torch.Tensor:
            # torch.func passes numbers where operators take tensors; operators of wrappers are not run here
            if not isinstance(of, torch.Tensor) or copy is NotImplemented:
                return copy
            memory, source = storage_of(copy), storage_of(of)
            if memory is not None and source is not None and memory._cdata != source._cdata:
                self.record.copies[memory._cdata] = memory, source
            return copy

    return RecordingMode


def recording_mode(shape_env: ShapeEnv | None, record: WorldRecord) -> FakeTensorMode:
    """Return a fake mode that records side effects."""
    mode = _mode_class()(shape_env=shape_env)
    mode.record = record  # type: ignore[attr-defined]
    mode.cache_enabled = False  # torch's cache costs more than it saves, with symbols twice as much
    return mode
