"""Autocast, gradients on or off, inference mode and layers of torch.func in an exported graph.

A captured graph sets what `with torch.autocast(...)` sets, one function call for each part; torch.export records only
an autocast that is entered and left as a whole. So the state is followed here, and each stretch of operators that runs
under autocast is put between the two calls that torch.export knows, also if the whole call runs under one. Whether
gradients are recorded is set where an operator on tensors finds it otherwise: torch cannot load stretches without any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.errors import ExportError

enter_autocast, exit_autocast = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
DEVICES = ("cpu", "cuda")
CHECKS = {torch._check, torch._check_index, torch._check_value, torch._check_type, torch._check_not_implemented}
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Autocast(NamedTuple):
    """Arguments of `torch.autocast`."""

    device: str
    dtype: torch.dtype
    enabled: bool
    cache: bool


class ModeFollower:
    """The modes in which the operators of a graph run. `add` adds a call to the graph."""

    def __init__(self, add: Callable[[Any, tuple[Any, ...]], torch.fx.Node]) -> None:
        self.add = add
        self.enabled = {device: torch.is_autocast_enabled(device) for device in DEVICES}
        self.dtypes = {device: torch.get_autocast_dtype(device) for device in DEVICES}
        self.cache = torch.is_autocast_cache_enabled()
        self.now: Autocast | None = None  # what has been entered in the exported graph
        self.entered: torch.fx.Node | None = None
        self.saved: list[Any] = []  # what is put back when an autocast or inference mode that was entered is left
        self.gradients = self.recording = self.outside = torch.is_grad_enabled()  # wanted, set now, set by the caller
        self.steps: dict[Any, Callable[..., None]] = {
            torch.set_autocast_enabled: self.set_enabled,
            torch.set_autocast_dtype: self.set_dtype,
            torch.set_autocast_cache_enabled: self.set_cache,
            torch.clear_autocast_cache: lambda: None,
            torch._C._set_grad_enabled: self.set_gradients,
            enter_autocast: self.enter,
            exit_autocast: self.leave,
            torch.autograd.grad_mode._enter_inference_mode: self.enter_inference,
            torch.autograd.grad_mode._exit_inference_mode: self.leave_inference,
        }

    def follow(self, node: torch.fx.Node) -> bool:
        """Follow a node of the captured graph; return whether it only changes modes, and is not to be exported."""
        step = self.steps.get(node.target) if node.op == "call_function" else None
        if step is None:
            return False
        step(*node.args)
        return True

    def set_enabled(self, *args: Any) -> None:
        device, enabled = args if len(args) == 2 else ("cuda", *args)
        self.enabled[device] = enabled

    def set_dtype(self, device: str, dtype: torch.dtype) -> None:
        self.dtypes[device] = dtype

    def set_cache(self, enabled: bool) -> None:
        self.cache = enabled

    def enter(self, device: str, dtype: torch.dtype | None, enabled: bool, cache: bool | None) -> None:
        self.saved.append((dict(self.enabled), dict(self.dtypes), self.cache))
        self.enabled[device] = enabled
        self.dtypes[device] = dtype or self.dtypes.get(device) or torch.get_autocast_dtype(device)
        self.cache = self.cache if cache is None else cache

    def leave(self, _: Any) -> None:
        self.enabled, self.dtypes, self.cache = self.saved.pop()

    def enter_inference(self, inference: bool) -> None:
        """Enter or leave inference mode: for a graph it is whether gradients are recorded."""
        self.saved.append(self.gradients)
        self.gradients = not inference

    def leave_inference(self, _: Any) -> None:
        self.gradients = self.saved.pop()

    def set_gradients(self, enabled: bool) -> None:
        self.gradients = bool(enabled)

    def prepare(self, node: torch.fx.Node) -> None:
        """Enter what an operator runs under. Raises ExportError for autocast of two devices at once.

        What makes numbers, or checks them, runs as the caller has it: torch cannot save truths that go from stretch to
        stretch.
        """
        wanted = [Autocast(device, self.dtypes[device], True, self.cache) for device, on in self.enabled.items() if on]
        if len(wanted) > 1:
            raise ExportError(
                "the program runs under autocast of two devices at once, which torch.export does not record"
            )
        of_number = node.target in CHECKS or isinstance(node.meta.get("example_value"), NUMBERS)
        self.switch(wanted[0] if wanted else None, self.outside if of_number else self.gradients)

    def finish(self) -> None:
        """Leave what was entered."""
        self.switch(None, self.outside)

    def switch(self, wanted: Autocast | None, gradients: bool) -> None:
        """Leave what was entered, and enter what is wanted: autocast inside of whether gradients are recorded."""
        if (wanted, gradients) == (self.now, self.recording):
            return
        if self.entered is not None:
            self.add(exit_autocast, (self.entered,))
        if gradients != self.recording:
            self.add(torch._C._set_grad_enabled, (gradients,))
        self.entered = None if wanted is None else self.add(enter_autocast, tuple(wanted))
        self.now, self.recording = wanted, gradients


@functools.cache
def recorded() -> dict[Any, Any]:
    """Return, for the functions of torch.func's layers that a graph calls, those by which torch.export records them."""
    import torch._functorch.predispatch as layers

    names = [name for name in vars(torch._C._functorch) if callable(getattr(layers, name, None))]
    return {getattr(torch._C._functorch, name): getattr(layers, name) for name in names}


class ModesInterpreter(torch.fx.Interpreter):
    """Runs a graph for torch.export, which sees autocast when `torch.autocast` itself is entered and left."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is enter_autocast:
            device, dtype, enabled, cache = args
            block = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache)
            block.__enter__()
            return block
        if target is exit_autocast:
            return args[0].__exit__(None, None, None)
        return super().call_function(recorded().get(target, target), args, kwargs)


STRETCHES = (torch.ops.higher_order.wrap_with_set_grad_enabled, torch.ops.higher_order.wrap_with_autocast)


def complete_stretches(program: torch.export.ExportedProgram) -> None:
    """Have each stretch of operators under a mode of its own return a tensor, and drop those without any.

    torch saves stretches of which nothing is used, such as assertions under `no_grad`, and cannot load them.
    """
    for module in list(program.graph_module.modules()):
        for node in list(module.graph.nodes) if isinstance(module, torch.fx.GraphModule) else ():
            if node.target in STRETCHES and not node.meta.get("val"):
                body = node.args[1 if node.target is STRETCHES[0] else 4]
                inner = module.get_submodule(body.target)
                made = [each for each in inner.graph.nodes if is_tensor_of_operator(each)]
                if made:
                    inner.graph.output_node().args = ((made[-1],),)
                    inner.recompile()
                    node.meta["val"] = (made[-1].meta["val"],)
                else:
                    module.graph.erase_node(node)
                    module.recompile()


def is_tensor_of_operator(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
