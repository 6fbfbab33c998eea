"""Set up the environment in which a user's backend is called on a graph with symbols.

A backend may trace its graph again by any means. It gets the call's real tensors, numbers as symbols, and a tracing
context whose fake tensors belong to the example inputs; a trace through these keeps symbols. Code that asks for a value
(`int(n)`) leaves a guard in the shape environment. Code that computes with the real tensors would see sizes and
contents as plain values, unnoticed by the environment; it is detected, and its result serves these values only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._guards import TracingContext, tracing
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchdynamo.graph import fake_mode, shape_env, torch_compat
from torchdynamo.graph.concretize import is_boxed
from torchdynamo.graph.numbers import SYMBOLIC
from torchdynamo.graph.sizes import fakes_for, sizes_of

# Python functions that read a tensor's sizes.
READERS: frozenset[Any] = frozenset(
    {torch.Tensor.size, torch.Tensor.stride, torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.__len__}
    | {torch.Tensor.shape.__get__, torch.numel}  # type: ignore[attr-defined]
)


class Watch(TorchDispatchMode):
    """Notes whether operators run on the memory of given tensors, and whether any operator is traced."""

    supports_higher_order_operators = True

    def __init__(self, tensors: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.memory = {each.untyped_storage()._cdata for each in tensors if each.layout is torch.strided}
        self.computed = False
        self.traced = False

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.traced = self.traced or torch_compat.is_tracing()
        if self.memory and not self.computed:
            self.computed = any(map(self.is_watched, pytree.tree_leaves((args, kwargs))))
        return func(*args, **kwargs or {})

    def is_watched(self, value: Any) -> bool:
        """Return whether a value is one of the given tensors, or a view of one."""
        if not isinstance(value, torch.Tensor) or torch_compat.has_fakes([value]) or value.layout is not torch.strided:
            return False
        return value.untyped_storage()._cdata in self.memory


class SizesAsSymbols(TorchFunctionMode):
    """Answers questions for the sizes of given tensors with the symbols of their fake tensors."""

    def __init__(self, fakes: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self.fakes = fakes  # by the id of the tensor

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in READERS and args and id(args[0]) in self.fakes:
            args = (self.fakes[id(args[0])], *args[1:])
        return func(*args, **kwargs or {})


class NotingContext(TracingContext):
    """A tracing context that notes whether somebody has asked for its fake mode, as tracers do."""

    def __init__(self, mode: Any) -> None:
        self.asked = False
        super().__init__(mode)

    @property
    def fake_mode(self) -> Any:
        self.asked = True
        return self.mode

    @fake_mode.setter
    def fake_mode(self, mode: Any) -> None:
        self.mode = mode

    def fake_of(self, value: Any) -> Any:
        """Return the fake tensor of an example input, of fixed sizes if it is no input; other values are returned as
        is.
        """
        return torch_compat.static_fake(self.fake_mode, value) if isinstance(value, torch.Tensor) else value


class BackendStage:
    """Calls a backend on one graph and observes what it does.

    computed: the backend computed with tensors whose sizes or contents vary. traced: it traced with symbols.
    """

    def __init__(self, gm: torch.fx.GraphModule, examples: Sequence[Any]) -> None:
        sizes = sizes_of(gm)
        if sizes is None:
            env, layouts = shape_env.make_shape_env(scalars=True, shapes=True), {}
        else:
            env, layouts = shape_env.for_a_backend(sizes.numbers.env), sizes.layouts
        self.mode = fake_mode.make(env)
        self.inputs: list[Any] = []
        self.fakes: dict[int, torch.Tensor] = {}  # id of an input with symbolic sizes -> its fake tensor
        self.varying: list[torch.Tensor] = []  # inputs whose sizes or contents vary
        self.computed = self.traced = False
        unknown, made = reads_values(gm), fakes_for(gm, examples, self.mode, sizes)
        for node, real, fake in zip(gm.graph.find_nodes(op="placeholder"), examples, made, strict=True):
            if not isinstance(real, torch.Tensor):
                self.inputs.append(fake)
                continue
            self.inputs.append(real)
            torch_compat.remember_fake(self.mode, real, fake)
            if node.name in layouts:
                self.fakes[id(real)] = fake
            if unknown or node.name in layouts or is_boxed(node):
                self.varying.append(real)

    def call(self, backend: Callable[..., Any], gm: torch.fx.GraphModule) -> Any:
        """Call the backend on the graph and return its result."""
        context = NotingContext(self.mode)
        try:
            with tracing(context), SizesAsSymbols(self.fakes), Watch(self.varying) as watch:
                made = backend(gm, self.inputs)
                self.computed, self.traced = watch.computed, context.asked
        finally:
            torch_compat.forget_tensors(self.mode)
        return made


def reads_values(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph reads numbers from tensors, other than from the inputs that carry its floats."""
    return any(
        isinstance(node.meta.get("example_value"), SYMBOLIC)
        and node.op.startswith("call_")
        and any(
            isinstance(each.meta.get("example_value"), torch.Tensor) and not is_boxed(each)
            for each in node.all_input_nodes
        )
        and shape_env.unbacked_symbols(node.meta["example_value"])
        for node in gm.graph.nodes
    )


class Trial:
    """Makes one call of a function and records whether it traced anything (`traced`)."""

    traced = False

    def call(self, run: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Call the function; return its result, raise what it raises."""
        context = NotingContext(None)
        try:
            with tracing(context), Watch() as watch:
                try:
                    return run(*args)
                finally:
                    self.traced = watch.traced or context.asked
        except Exception as error:
            vars(error).pop("real_stack", None)  # a note of `tracing`, for users of torch.compile
            raise
