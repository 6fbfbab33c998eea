"""State what members require of a graph. A requirement returns None if it is met, else a sentence that says why not."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.preserve import is_for_eager
from torchdynamo.graph.mutation import changes_modes, makes_leaves
from torchdynamo.graph.torch_compat import LEAF_MAKERS, MODE_CHANGES, OPENERS

Requirement: TypeAlias = Callable[[Subgraph], str | None]

# Function that switches a mode -> function that reads it.
_READERS: dict[Any, Callable[..., Any]] = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
}
_DIVISIONS = frozenset(
    {operator.floordiv, operator.mod, operator.truediv, torch.div, torch.floor_divide, torch.remainder, torch.fmod}
    | {torch.true_divide, torch.divide}
)
_DIVIDING_METHODS = frozenset("div divide floor_divide remainder fmod true_divide __floordiv__ __mod__".split())
_ROUNDING = frozenset({operator.floordiv, operator.mod, torch.floor_divide, torch.remainder, torch.fmod})
MISSING = "is not installed"
"""Words of the reason of a `package` that is missing."""
_PLAIN = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool}
    | {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
)


def constants_allowed(subgraph: Subgraph) -> str | None:
    if not subgraph.constants:
        return 'it makes constants of the parameters, which options={"constants": True} allows'
    return None if subgraph.static else "no input of the graph can be a constant"


def no_gradients(subgraph: Subgraph) -> str | None:
    return "it does not differentiate, and the graph is trained" if subgraph.wants_gradients else None


def fixed_sizes(subgraph: Subgraph) -> str | None:
    return "it takes no symbols, and a size or number of the graph is one" if subgraph.is_symbolic else None


def no_writes(subgraph: Subgraph) -> str | None:
    return "the graph writes to its inputs" if subgraph.effects.mutated else None


def no_random_numbers(subgraph: Subgraph) -> str | None:
    return "the graph draws random numbers, which only eager draws as eager does" if subgraph.effects.random else None


def no_modes(subgraph: Subgraph) -> str | None:
    if subgraph.effects.as_captured:
        return "the graph has operators that only run as they were captured"
    if changes_modes(subgraph.gm):
        return "the graph switches grad mode, autocast or a torch.func transform"
    return "the graph makes leaves or computes gradients" if makes_leaves(subgraph.gm) else None


def idle_switches(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the nodes that switch grad mode, or autocast off, and that no result shows if no gradients are wanted.

    They leave the modes as they are now. If autocast is switched on, its switches are not among them.
    """
    found: list[torch.fx.Node] = []
    left: dict[tuple[Any, ...], Any] = {}
    for node in gm.graph.nodes:
        if node.target in _READERS:
            left[(_READERS[node.target], *node.args[:-1])] = node.args[-1]
            found.append(node)
        elif node.target is torch.clear_autocast_cache:
            found.append(node)
        elif node.target is torch.amp.autocast_mode._enter_autocast and node.users:
            left[operator.not_, node.args[2]] = True  # the third argument: whether it is on
            found += [*node.users, node]
        if node.target is torch.set_autocast_enabled and node.args[-1]:
            return []
    return found if all(read(*args) == value for (read, *args), value in left.items()) else []


def no_lasting_modes(subgraph: Subgraph) -> str | None:
    """Decline modes and leaves, but for switches that nobody sees: runtimes without modes leave them out."""
    if subgraph.effects.as_captured:
        return "the graph has operators that only run as they were captured"
    idle = {*idle_switches(subgraph.gm)}
    if any(node.target in MODE_CHANGES | OPENERS and node not in idle for node in subgraph.nodes):
        return "the graph switches autocast, inference mode or a torch.func transform"
    leaves = any(each.requires_grad for each in subgraph.results if isinstance(each, torch.Tensor))
    if leaves or any(node.target in LEAF_MAKERS for node in subgraph.nodes):
        return "the graph makes leaves or computes gradients"
    return None


def traceable(subgraph: Subgraph) -> str | None:
    if is_for_eager(subgraph.gm, subgraph.example_inputs):
        return "a trace of its operators would not do what it does"
    return None


def tensors_only(subgraph: Subgraph) -> str | None:
    if not subgraph.example_inputs or len(subgraph.tensors) != len(subgraph.example_inputs):
        return "it takes tensors only, and an input of the graph is a number, or there is none"
    plain = all(type(each) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) for each in subgraph.tensors)
    strided = all(each.layout is torch.strided and each.dtype in _PLAIN for each in subgraph.examples)
    if not plain or not strided or any(each.is_quantized or each.is_nested for each in subgraph.tensors):
        return "it takes strided tensors of ordinary dtypes, and the graph has others"
    return None


def on_cpu(subgraph: Subgraph) -> str | None:
    return _on(subgraph, "cpu")


def on_cuda(subgraph: Subgraph) -> str | None:
    return _on(subgraph, "cuda")


def _on(subgraph: Subgraph, device: str) -> str | None:
    there = all(each.device.type == device for each in subgraph.examples)
    return None if there else f"it computes on {device}, and tensors of the graph are elsewhere"


def results_own_their_memory(subgraph: Subgraph) -> str | None:
    memory = {_memory(node.meta.get("example_value")) for node in subgraph.placeholders}
    for each in subgraph.results:
        if isinstance(each, torch.Tensor):
            if _memory(each) in memory:
                return "a result shares memory with an input or another result"
            memory.add(_memory(each))
    return None


def _memory(example: object) -> int:
    return example.untyped_storage()._cdata if isinstance(example, torch.Tensor) else 0


def no_inference_parameters(subgraph: Subgraph) -> str | None:
    made = any(subgraph.example_inputs[position].is_inference() for position in subgraph.static)
    return "parameters were made in inference mode, where writes are not counted" if made else None


def no_integer_division(subgraph: Subgraph) -> str | None:
    """Decline a division of integers by a tensor: runtimes differ in what a zero does."""
    for node in subgraph.nodes:
        method = node.op == "call_method" and node.target in _DIVIDING_METHODS
        if not (method or node.target in _DIVISIONS) or len(node.args) < 2:
            continue
        divisor = node.args[1]
        example = divisor.meta.get("example_value") if isinstance(divisor, torch.fx.Node) else None
        result = node.meta.get("example_value")
        if not isinstance(example, torch.Tensor) or example.is_floating_point() or not isinstance(result, torch.Tensor):
            continue
        if not result.is_floating_point() or node.target in _ROUNDING:
            return "the graph divides integers by a tensor, which may hold a zero"
    return None


def no_autocast(subgraph: Subgraph) -> str | None:
    device = subgraph.tensors[0].device.type if subgraph.tensors else "cpu"
    return "autocast is on" if torch.is_autocast_enabled(device) else None


def package(name: str, extra: str) -> Requirement:
    """Return the requirement that a package is installed. extra: the extra of this project that installs it."""

    def installed(subgraph: Subgraph) -> str | None:
        if importlib.util.find_spec(name) is not None:
            return None
        return f"the package {name} {MISSING}: pip install torchdynamo-standalone[{extra}]"

    return installed


def has_linear(subgraph: Subgraph) -> str | None:
    found = any(node.target in (F.linear, torch.addmm) for node in subgraph.nodes)
    return None if found else "the graph has no linear layer"


PLAIN_INFERENCE: tuple[Requirement, ...] = (
    no_gradients,
    fixed_sizes,
    no_random_numbers,
    no_writes,
    no_modes,
    tensors_only,
    results_own_their_memory,
    no_autocast,
)
"""Requirements of runtimes that know tensors and nothing else of PyTorch's state."""

FOREIGN: tuple[Requirement, ...] = (
    *(no_lasting_modes if each is no_modes else each for each in PLAIN_INFERENCE),
    no_inference_parameters,
    no_integer_division,
)
"""Requirements of other projects' runtimes, which get the graph as ATen operators."""
