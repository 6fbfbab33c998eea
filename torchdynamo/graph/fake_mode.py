"""Compute the metadata of operators' results without running them, with our corrections to torch's fake mode.

Making a FakeTensorMode imports a large part of torch (1.5 s), so nothing here is imported before it is needed.
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
    """Return our subclass of FakeTensorMode, made when it is first needed.

    Where an operator's own rule asks for the value of a symbol, its decomposition may do without.
    """
    from torch._decomp import decomposition_table
    from torch._higher_order_ops.utils import registered_hop_fake_fns
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental import symbolic_shapes

    refused = getattr(symbolic_shapes, "_ShapeEnvGuardError", symbolic_shapes.GuardOnDataDependentSymNode)
    undecided = (refused, *torch_compat.data_dependent_errors())
    ruled: Collection[Any] = registered_hop_fake_fns  # higher-order operators whose rule the base class knows
    # Operators whose rule converts every size to an integer, and so specializes it.
    squeezing = (torch.ops.aten.squeeze, torch.ops.aten.squeeze_, torch.ops.aten.squeeze_copy)
    apart: set[Any] = set()  # operators that are being decomposed
    integers_only = (torch.ops.aten.constant_pad_nd.default, torch.ops.aten.roll.default)

    class FakeMode(FakeTensorMode):
        supports_higher_order_operators = True  # torch looks up their rules by the mode's own class

        def __torch_dispatch__(
            self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            given = self.fake_result(func, types, args, kwargs or {})
            laid_out = rules.LAYOUTS.get(func)
            if laid_out is None or given is NotImplemented or rules.is_known(given):
                return given
            return laid_out(given, *args, **kwargs or {})

        def fake_result(self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            """Return the fake result of an operator by our rules, by its decomposition, or by torch's rule."""
            if isinstance(func, torch._ops.HigherOrderOperator) and func not in ruled:
                return func.python_key_table[FakeTensorMode](self, *args, **kwargs)
            if any(each is not FakeTensor for each in types):  # a wrapper's own dispatch decides what is computed
                return super().__torch_dispatch__(func, types, args, kwargs)
            if getattr(func, "overloadpacket", None) in squeezing and self.shape_env is not None:
                with shape_env.presuming(self.shape_env, False):
                    guard_sizes_of_one(*args, **kwargs)
            if func is torch.ops.aten.convolution.default and self.shape_env is not None:
                with self.shape_env.suppress_guards():  # the rule asks only which library computes it
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
                with refusing_guards(self.shape_env):
                    return super().__torch_dispatch__(func, types, args, kwargs)
            except undecided:
                del drawn[before:]  # symbols of the result that was not computed
            apart.add(func)  # some decompositions call their own operator
            try:
                with self, refusing_guards(self.shape_env):
                    return simpler(*args, **kwargs)
            except Exception:
                del drawn[before:]
                return super().__torch_dispatch__(func, types, args, kwargs)
            finally:
                apart.discard(func)

    return FakeMode


def guard_sizes_of_one(tensor: torch.Tensor, dims: Any = None) -> None:
    """Guard which dimensions have size 1, which decides how many `squeeze` leaves."""
    among = range(tensor.dim()) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
    for dim in among if tensor.dim() else ():  # a 0-dim tensor accepts -1 and 0 but has no sizes
        bool(tensor.size(dim) == 1)


@contextlib.contextmanager
def refusing_guards(env: ShapeEnv | None) -> Iterator[None]:
    """Make questions for a symbol's value raise inside of the block, rather than guard its current value."""
    refusing = getattr(env, "error_on_new_guards", contextlib.nullcontext)
    quiet.install()
    before, quiet.trying.now = quiet.trying.now, True
    try:
        with refusing():
            yield
    finally:
        quiet.trying.now = before


def has_symbolic_sizes(value: Any) -> bool:
    """Return whether there is a symbol among these values or in the sizes of these tensors."""
    if isinstance(value, torch.Tensor):
        return shape_env.is_symbolic(tuple(value.shape))
    if isinstance(value, (tuple, list)):
        return any(map(has_symbolic_sizes, value))
    return shape_env.is_symbolic(value)


def make(shape_env: ShapeEnv | None) -> FakeTensorMode:
    """Return a fake mode for a backend.

    Outside of export mode, a number read from a 0-dim input would become the example's value, without a guard.
    """
    return mode_type()(shape_env=shape_env, export=True)
