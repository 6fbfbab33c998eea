"""The world of fake tensors: what an operator gives, told without computing it.

Making a FakeTensorMode imports a good deal of torch (1.5 s), so nothing here is imported before it is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.graph import quiet, rules, shape_env, torch_compat

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


@cache
def mode_type() -> type[FakeTensorMode]:
    """Return the class of worlds of fake tensors.

    Where an operator's own rule wants the value of a number, what the operator is made of may not.
    """
    from torch._decomp import decomposition_table
    from torch._higher_order_ops.utils import registered_hop_fake_fns
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental import symbolic_shapes

    refused = getattr(symbolic_shapes, "_ShapeEnvGuardError", symbolic_shapes.GuardOnDataDependentSymNode)
    undecided = (refused, *torch_compat.data_dependent_errors())
    ruled: Collection[Any] = registered_hop_fake_fns  # of these the base class knows the rule
    # Operators whose rule takes every size for an integer, and so fixes it.
    squeezing = (torch.ops.aten.squeeze, torch.ops.aten.squeeze_, torch.ops.aten.squeeze_copy)
    apart: set[Any] = set()  # operators that are being taken apart
    integers_only = (torch.ops.aten.constant_pad_nd.default, torch.ops.aten.roll.default)

    class FakeMode(FakeTensorMode):
        supports_higher_order_operators = True  # torch looks up their rules by the mode's own class

        def __torch_dispatch__(
            self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            given = self.told(func, types, args, kwargs or {})
            laid_out = rules.LAYOUTS.get(func)
            if laid_out is None or given is NotImplemented or rules.is_known(given):
                return given
            return laid_out(given, *args, **kwargs or {})

        def told(self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            """Return what the operator gives, as rules of ours or torch's have it."""
            if isinstance(func, torch._ops.HigherOrderOperator) and func not in ruled:
                return func.python_key_table[FakeTensorMode](self, *args, **kwargs)
            if getattr(func, "overloadpacket", None) in squeezing and self.shape_env is not None:
                with shape_env.presuming(self.shape_env, False):
                    decide_what_is_one(*args, **kwargs)
            if func is torch.ops.aten.convolution.default and self.shape_env is not None:
                with self.shape_env.suppress_guards():  # which library computes it; what it gives is the same
                    return super().__torch_dispatch__(func, types, args, kwargs)
            varying = has_symbolic_sizes(args)
            if not varying and func in rules.RULES:
                known = rules.RULES[func](*args, **kwargs)
                if known is not None:
                    return known
            simpler = rules.ALIKE.get(func, decomposition_table.get(func)) if varying else None
            if simpler is None or func._schema.is_mutable or func in apart:
                return super().__torch_dispatch__(func, types, args, kwargs)
            if func in integers_only:
                with contextlib.suppress(*torch_compat.data_dependent_errors()), self:
                    return simpler(*args, **kwargs)
            drawn = getattr(self.shape_env, "pending_fresh_unbacked_symbols", [])
            before = len(drawn)
            try:
                with deciding_nothing(self.shape_env):
                    return super().__torch_dispatch__(func, types, args, kwargs)
            except undecided:
                del drawn[before:]  # of a result that is not to be
            apart.add(func)  # some come round to themselves
            try:
                with self, deciding_nothing(self.shape_env):
                    return simpler(*args, **kwargs)
            except Exception:
                del drawn[before:]
                return super().__torch_dispatch__(func, types, args, kwargs)
            finally:
                apart.discard(func)

    return FakeMode


def decide_what_is_one(tensor: torch.Tensor, dims: Any = None) -> None:
    """Decide which sizes are 1, by which `squeeze` drops dimensions: a fact, whatever torch's rule says."""
    among = range(tensor.dim()) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
    for dim in among if tensor.dim() else ():  # a scalar's only dimension, -1 or 0, is not there
        bool(tensor.size(dim) == 1)


@contextlib.contextmanager
def deciding_nothing(env: ShapeEnv | None) -> Iterator[None]:
    """Raise, while this is open, where a number's value is needed, instead of deciding by the value at hand."""
    refusing = getattr(env, "error_on_new_guards", contextlib.nullcontext)
    quiet.install()
    before, quiet.trying.now = quiet.trying.now, True
    try:
        with refusing():
            yield
    finally:
        quiet.trying.now = before


def has_symbolic_sizes(value: Any) -> bool:
    """Return whether there is a number without a value among these, or a tensor with one in its sizes."""
    if isinstance(value, torch.Tensor):
        return shape_env.is_symbolic(tuple(value.shape))
    if isinstance(value, (tuple, list)):
        return any(map(has_symbolic_sizes, value))
    return shape_env.is_symbolic(value)


def make(shape_env: ShapeEnv | None) -> FakeTensorMode:
    """Return a world of fake tensors for a backend.

    Else than for export, a number read from an input of no dimensions would be what the example holds, unguarded.
    """
    return mode_type()(shape_env=shape_env, export=True)
