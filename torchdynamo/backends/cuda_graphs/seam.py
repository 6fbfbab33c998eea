"""Wrap compilers so that what they compile is recorded and replayed.

Inductor's own CUDA graphs are off in all versions of torch: its compiled graphs are wrapped as the inner compile
returns them, whether they were compiled now or found in its cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.backends.aot import uncaptured
from torchdynamo.backends.cuda_graphs.device import Run, device_of
from torchdynamo.backends.cuda_graphs.lanes import Lanes
from torchdynamo.backends.cuda_graphs.limits import MOST_RECORDINGS, Ledger
from torchdynamo.backends.cuda_graphs.recording import Plan
from torchdynamo.backends.cuda_graphs.runner import Runner
from torchdynamo.backends.preserve import mutated_positions
from torchdynamo.errors import UnknownSetting
from torchdynamo.graph.concretize import serving
from torchdynamo.graph.mutation import has_sparse_gradients, makes_leaves

INDUCTORS = "triton.cudagraphs"  # Inductor's setting: its modes have it, and users set it
_KEY = "torchdynamo_cuda_graphs"
Compiler = Callable[..., Any]


class Wanted(NamedTuple):
    """Options that say whether graphs are recorded, and how often: "cudagraphs" and "cudagraph_recordings"."""

    on: bool | None = None  # None: as the backend has it
    required: bool = False
    limit: int = MOST_RECORDINGS


def wanted_in(options: Mapping[str, Any] | None) -> tuple[Wanted, dict[str, Any] | None]:
    """Return what options say of recordings, and the other options.

    Raises UnknownSetting for a value that they cannot have.
    """
    if not options:
        return Wanted(), None
    rest = dict(options)
    on, limit = rest.pop("cudagraphs", None), rest.pop("cudagraph_recordings", MOST_RECORDINGS)
    if on not in (None, True, False, "required"):
        raise UnknownSetting(f"option 'cudagraphs' is True, False or 'required', and not {on!r}")
    if type(limit) is not int or limit < 1:
        raise UnknownSetting(f"option 'cudagraph_recordings' is a positive number, and not {limit!r}")
    return Wanted(None if on is None else bool(on), on == "required", limit), rest or None


def ledger_for(captured: torch.fx.GraphModule, wanted: Wanted) -> Ledger:
    """Return a new ledger for a captured graph, which `outcome_of` finds."""
    captured.meta[_KEY] = ledger = Ledger(wanted.limit, wanted.required)
    return ledger


def outcome_of(captured: torch.fx.GraphModule) -> list[str]:
    """Return what became of a graph's recordings, a line for forward and backward; none if none were wanted."""
    ledger = captured.meta.get(_KEY)
    lines = ledger.describe() if isinstance(ledger, Ledger) else []
    return lines + [
        f"at {', '.join(map(str, sizes))}: {line}" for sizes, gm in serving(captured).items() for line in outcome_of(gm)
    ]


class Pair:
    """State that the forward and the backward of a graph share, made when the device is known."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.lanes: Lanes | None = None

    def recorded(self, make: Callable[..., Plan], kind: str, inputs: Sequence[Any], why: str | None) -> Runner | None:
        """Return a runner for a compiled graph; None if it cannot be recorded, which the ledger tells.

        make: makes the plan from a device and a place. why: it cannot for this reason.
        """
        found = device_of(inputs)
        if found is None:
            places = sorted({str(each.device) for each in inputs if isinstance(each, torch.Tensor)})
            why = f"its inputs are on {', '.join(places)}" if places else "it has no tensors as inputs"
        if why is not None or found is None:
            self.ledger.refuse(kind, str(why))
            return None
        if self.lanes is None:
            self.lanes = Lanes(found[0], self.ledger)
        return Runner(make(*found), self.lanes)


def recorded_kernels(compiler: Compiler, ledger: Ledger) -> Compiler:
    """Wrap Inductor's compiler of forward and backward so that their kernels are recorded."""
    pair = Pair(ledger)

    @functools.wraps(compiler)
    def compile_recorded(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        kind = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
        why, visible = not_repeatable(gm), visible_of(gm, kind)  # before the compiler changes the graph
        compiled = compiler(gm, example_inputs, **kwargs)
        run = getattr(compiled, "current_callable", None)
        if run is None:
            ledger.refuse(kind, "it has no kernels")
            return compiled
        place = device_of(example_inputs)
        others = set() if place is None else set(compiled.device_types) - {place[1].type, "meta"}
        if others:
            why = why or f"it computes on {', '.join(sorted(others))} too"
        constants = (compiled.constants or {}).values()

        def plan(device: Any, place: torch.device) -> Plan:
            return Plan(
                run,
                kind,
                device,
                place,
                visible,
                frozenset(kwargs.get("static_input_idxs") or ()),
                frozenset(compiled.mutated_input_idxs),
                constants=tuple(each for each in constants if isinstance(each, torch.Tensor)),
            )

        runner = pair.recorded(plan, kind, example_inputs, why)
        if runner is not None:
            compiled.current_callable = runner
        return compiled

    return compile_recorded


def recorded_operators(compiler: Callable[..., Run], ledger: Ledger) -> tuple[Compiler, Compiler]:
    """Return compilers of forward and backward whose graphs run by `compiler`, and are recorded."""
    pair = Pair(ledger)

    def compile_as(backward: bool, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        meta: Any = torch._guards.TracingContext.get().fw_metadata
        count = len(results_of(gm))
        kind = "backward" if backward else "forward" if count > visible_of(gm, "forward") else "inference"
        why = not_repeatable(gm) or on_another_device(gm, example_inputs)
        written = written_inputs(gm)
        run = compiler(gm, example_inputs)

        def plan(device: Any, place: torch.device) -> Plan:
            fixed = range(len(example_inputs) - count_tangents(gm)) if backward else meta.static_input_indices or ()
            constants = (*gm.parameters(), *gm.buffers())
            return Plan(
                run, kind, device, place, visible_of(gm, kind), frozenset(fixed), written, tuple(written), constants
            )

        runner = pair.recorded(plan, kind, example_inputs, why)
        return run if runner is None else uncaptured(runner)

    return functools.partial(compile_as, False), functools.partial(compile_as, True)


def recorded_as_captured(gm: torch.fx.GraphModule, inputs: Sequence[Any], ledger: Ledger) -> Run | None:
    """Return a captured graph that computes gradients itself, as a training step does, with its operators recorded.

    None if it cannot be: then it runs as it is.
    """
    code: Callable[..., Any] = gm.forward
    results, spec = pytree.tree_flatten(results_of(gm))
    examples = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    static = [bool(node.meta.get("static_input")) for node in gm.graph.find_nodes(op="placeholder")]
    tracked = [
        each for each in results if isinstance(each, torch.fx.Node) and needs_gradient(each.meta.get("example_value"))
    ]
    why = "it returns results that need gradients" if tracked else None
    if any(needs_gradient(each) and not stays for each, stays in zip(examples, static, strict=True)):
        why = "it computes gradients of inputs that move"
    if not torch.is_grad_enabled() or not makes_leaves(gm) or has_sparse_gradients(gm):
        return None

    def run(given: list[Any]) -> Any:
        args = tuple(given)
        given.clear()
        with torch.enable_grad():
            return pytree.tree_leaves(code(*args))

    written = frozenset(mutated_positions(gm))

    def plan(device: Any, place: torch.device) -> Plan:
        fixed = frozenset(at for at, stays in enumerate(static) if stays)
        return Plan(run, "inference", device, place, len(results), fixed, written, tuple(written))

    runner = Pair(ledger).recorded(plan, "inference", inputs, why)
    if runner is None:
        return None
    return lambda *args: pytree.tree_unflatten(runner([*args]), spec)


def needs_gradient(value: Any) -> bool:
    """Return whether a value is a tensor that needs a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def visible_of(gm: torch.fx.GraphModule, kind: str) -> int:
    """Return how many results of a graph leave it; tensors saved for the backward follow them."""
    count = len(results_of(gm))
    if kind != "forward":
        return count
    meta: Any = torch._guards.TracingContext.get().fw_metadata
    return min(count, int(len(meta.tokens) + meta.num_forward))


def results_of(gm: torch.fx.GraphModule) -> Sequence[Any]:
    """Return the results of a graph of ATen operators."""
    value = gm.graph.output_node().args[0]
    return value if isinstance(value, (list, tuple)) else [value]


def count_tangents(gm: torch.fx.GraphModule) -> int:
    """Return how many inputs of a backward are gradients of results."""
    return sum("tangents" in node.name for node in gm.graph.find_nodes(op="placeholder"))


def written_inputs(gm: torch.fx.GraphModule) -> frozenset[int]:
    """Return the positions of inputs to which a graph of ATen operators copies something."""
    copies = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    targets = {node.args[0] for node in copies}
    return frozenset(at for at, node in enumerate(gm.graph.find_nodes(op="placeholder")) if node in targets)


def not_repeatable(gm: torch.fx.GraphModule) -> str | None:
    """Return why a graph cannot be recorded whatever it runs on: it asks the device for a value, or waits for it."""
    from torch._inductor.utils import get_first_incompatible_cudagraph_node

    if any(isinstance(node.meta.get("val"), dict) for node in gm.graph.nodes):
        return None  # kernels of the program's own, of which torch's check knows nothing; recording fails if they wait
    node = get_first_incompatible_cudagraph_node(gm)
    return None if node is None else f"it contains {node.target}"


def on_another_device(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """Return why a graph is not all on the device of its inputs; None if it is."""
    found = device_of(inputs)
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if found is not None and isinstance(value, torch.Tensor) and value.device != found[1]:
            return f"{node.target} is on {value.device}"
    return None
