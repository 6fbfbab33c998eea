"""Close the graph of a capture, compile it by the backend, and wrap the result for the hook."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
import torch.compiler

from torchdynamo import _native
from torchdynamo.backends import registry
from torchdynamo.backends.failed_graph import failed_graph
from torchdynamo.backends.host_pieces import between_host_nodes, whole_if_untraced
from torchdynamo.backends.replaceable import Replaceable, reporting_failures
from torchdynamo.backends.run import Careful, Handler, Leaving, compile_graph, on_error
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.torch.float_inputs import from_boxes, in_boxes
from torchdynamo.capture.torch.tensor_subclasses import is_left_to_torch, overrides, switches_off
from torchdynamo.codegen import codegen, resume
from torchdynamo.codegen.deopt import Bailout
from torchdynamo.core.call_sites import CallSite
from torchdynamo.core.source import Source
from torchdynamo.graph import shape_env, torch_compat
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.deopt_safety import stages
from torchdynamo.graph.host_nodes import has_host_nodes
from torchdynamo.graph.mutation import effects_of, mutated_inputs
from torchdynamo.graph.numpy_nodes import shrink_examples
from torchdynamo.graph.tracebacks import Program
from torchdynamo.graph.wrappers import is_wrapper
from torchdynamo.guards import later
from torchdynamo.guards.aliases import written_apart
from torchdynamo.hook import collector, interrupts
from torchdynamo.report import ranges
from torchdynamo.report.compiles import GraphId
from torchdynamo.specialization import CompilerSettings

_graph_numbers = itertools.count(0)


class CalledGraph(NamedTuple):
    """A compiled graph as a frame's code calls it; all empty if nothing was captured."""

    graph: Any = None  # for the hook
    arguments: Sequence[str] = ()  # names of locals that it takes
    bound: Sequence[Source] = ()  # sources of its other inputs
    module: Any = None  # the graph module
    made: Any = None  # what the backend has made of it
    boxes: tuple[int, ...] = ()  # positions of floats, which the graph gets in tensors
    rerun: Bailout | None = None  # runs the frame as written if the graph raises
    leaving: Sequence[Leaving] = ()  # what an error calls on its way out
    only_here: str = ""  # why it cannot be called in the same way without a capture; "" if it can


def next_graph_name() -> str:
    """Return the name of the next compiled graph of this process."""
    return f"__compiled_fn_{next(_graph_numbers)}"


class GraphInputs(NamedTuple):
    """The inputs of a graph: what capture knows of them, the objects that the call has there, and where they are."""

    values: list[Any]
    examples: list[Any]
    arguments: list[str]  # names of locals
    bound: list[Source]  # of those that come after the locals, in one tuple


def inputs_in_order(captured: Capture) -> list[Any]:
    """Return what the frame has looked at that may be an input, in the order of the places where it is."""
    vm = captured.machine
    values: list[Any] = [*vm.numbers_in, *vm.inputs, *vm.boxes, *vm.objects_in]
    return sorted(values, key=lambda value: place_of(carrier_of(value.source), captured.code))


def inputs_of(gm: torch.fx.GraphModule, captured: Capture, values: Sequence[Any]) -> GraphInputs:
    """Return those of some inputs that the graph has. If a size must precede its tensor, all come in the tuple."""
    remaining = set(gm.graph.find_nodes(op="placeholder"))
    used = [value for value in values if value.node in remaining]
    sources = [value.source for value in used if value.source is not None]
    in_order = any(source.how in ("size", "stride") for source in sources)
    arguments = [source.arg for source in sources if is_plain_local(source, captured.code) and not in_order]
    bound = [source for source in sources if not is_plain_local(source, captured.code) or in_order]
    return GraphInputs(used, [captured.machine.input_objects[value.node] for value in used], arguments, bound)


def with_pieces(
    backend: registry.Backend, gm: torch.fx.GraphModule, compile_with: Callable[..., Any], reads_later: bool
) -> registry.Backend:
    """Return a backend that gets the pieces between the nodes that run as they are: the given one if there are none, or
    if it runs graphs as they are.

    compile_with: compiles a graph by a backend. reads_later: a backward in it may run as the program wrote it.
    """
    on_host = has_host_nodes(gm)
    if on_host:
        shrink_examples(gm.graph)
    if registry.has_mark(backend, "runs_as_captured"):
        return backend
    if on_host:
        return between_host_nodes(backend, compile_with)
    return whole_if_untraced(backend, compile_with) if reads_later else backend


def compile_captured(
    captured: Capture,
    draft: codegen.Draft,
    builder: GraphBuilder,
    compiler: CompilerSettings,
    backend: registry.Backend,
    graph_id: GraphId,
) -> CalledGraph:
    """Close the graph, compile it with the real tensors as examples, and wrap the result.

    graph_id: its name in profiles, and in what torch logs of it.
    """
    vm = captured.machine
    if vm.ops == 0:
        return CalledGraph()
    values = inputs_in_order(captured)
    gm = builder.finish(draft.outputs, [value.node for value in values])
    reads_later = later.settle(gm, vm.roots)
    used, examples, arguments, bound = inputs_of(gm, captured, values)
    name, shown = next_graph_name(), str(graph_id)
    rerun = draft.rerun
    told, leaving = rerun.raised if rerun else None, blocks_left(captured)
    effects = effects_of(gm)
    written = captured.code if draft.does_nothing_else and not effects.communicates else None
    program = Program(starting(captured), builder.call_sites)
    mutates = mutated_inputs(gm)
    advice = failed_graph(gm, backend).advice
    handler = on_error(gm, compiler.backend_name, mutates, shown, told, leaving, program, written is not None, advice)
    overriding = [each for each in examples if overrides(type(each)) or switches_off(each)]
    subclasses = builder.wrapped or bool(overriding)
    closed = subclasses and not (takes_wrappers(backend) and all(map(is_wrapper, overriding)))
    layered = torch_compat.is_layered(examples)  # the call is inside of a torch.func transform that was not captured
    plain = written_apart(vm, gm) and not (closed or layered or effects.as_captured)
    compile_with = functools.partial(compile_graph, name=shown, fullgraph=compiler.fullgraph)
    backend = with_pieces(backend, gm, compile_with, reads_later) if plain else decline_graph
    compile_part = functools.partial(compile_with, backend=backend)
    torchs_id = torch_compat.compile_id(graph_id.number, graph_id.version)
    open_sizes = shape_env.sizes_zero_and_one_like_others()
    inlined = subclasses and not any(map(is_left_to_torch, classes_in(gm)))
    as_inlined = torch._C.DisableTorchFunctionSubclass() if inlined else contextlib.nullcontext()
    phase = ranges.phase(captured.code, "backend")
    with phase, collector.awake(), open_sizes, interrupts.allowed(), torchs_id, as_inlined:
        if rerun is None:
            fn = compile_part(gm, examples)
        else:
            rerun.final = compiler.fullgraph
            fn = rerun.compile(gm, examples, compile_part, draft.outputs, stages(gm.graph, vm.checks))
    made = fn.made if isinstance(fn, Careful) else fn
    if isinstance(made, Replaceable):
        handler = reporting_failures(handler, made)
    if inlined:
        fn = without_torch_function(fn)
    boxes = tuple(index for index, value in enumerate(used) if value in vm.boxes)
    graph = callable_graph(fn, name, handler, boxes, bool(bound), written, graph_id)
    if isinstance(made, Replaceable) and made is graph.fn:
        made.held_by(graph)
    reasons = (
        (subclasses or layered, "its tensors are of a subclass, or inside of a torch.func transform"),
        (effects.communicates, "it communicates with other ranks"),
        (reads_later, "a backward in it may run as the program wrote it"),
    )
    only_here = next((text for holds, text in reasons if holds), "")
    return CalledGraph(graph, arguments, bound, gm, made, boxes, rerun, leaving, only_here)


def callable_graph(
    fn: Any,
    name: str,
    handler: Handler,
    boxes: tuple[int, ...],
    splat: bool,
    written: CodeType | None,
    graph_id: GraphId,
) -> Any:
    """Return a compiled graph as the hook takes it: floats go in boxes, and errors to the handler."""
    if boxes:
        fn, handler = from_boxes(fn, boxes), handled_in_boxes(handler, boxes)
    label = f"torchdynamo: {graph_id}"
    return _native.CompiledGraph(fn, name, splat=splat, on_error=handler, written=written, label=label)


def takes_wrappers(backend: registry.Backend) -> bool:
    """Return whether a backend takes tensors of wrapper subclasses: those by AOTAutograd, and users' own."""
    return registry.has_mark(backend, "takes_wrappers") or not registry.is_ours(backend)


def classes_in(gm: torch.fx.GraphModule) -> set[type]:
    """Return the types of what the nodes of a graph give."""
    return {type(node.meta.get("example_value")) for node in gm.graph.nodes}


def starting(captured: Capture) -> CallSite:
    """Return the call site of the frame before its first instruction."""
    return CallSite(weakref.ref(captured.code), 0, captured.machine.roots.globals.get("__name__", ""), None)


def blocks_left(captured: Capture) -> list[Leaving]:
    """Return the calls that an error makes on its way out of a continuation, to leave its `with` blocks."""
    if not resume.is_continuation(captured.code):
        return []
    return [Leaving(*each) for each in captured.machine.effects.switched()]


def without_torch_function(fn: Any) -> Any:
    """Wrap a graph so that `__torch_function__` is not called: capture has inlined it already."""

    def run(*args: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return fn(*args)

    return run


def handled_in_boxes(handler: Handler, positions: tuple[int, ...]) -> Handler:
    """Wrap a graph's error handler for a graph that gets floats in tensors at these positions."""

    def handled(error: BaseException, args: Any) -> Any:
        return handler(error, args if args is None else in_boxes(args, positions))

    return handled


def carrier_of(source: Source | None) -> Source | None:
    """Return the tensor's source for a size or stride; other sources are returned as they are."""
    return source.base if source is not None and source.how in ("size", "stride") else source


def place_of(source: Source | None, code: CodeType) -> int:
    """Return the sort key of a graph input: the position of a frame's argument; after all of these for others."""
    if source is None or not is_plain_local(source, code):
        return len(code.co_varnames)
    return code.co_varnames.index(source.arg)


def is_plain_local(source: Source | None, code: CodeType) -> bool:
    """Return whether LOAD_FAST can read the source."""
    return source is not None and source.how == "local" and source.arg not in code.co_cellvars


def decline_graph(gm: Any, example_inputs: Any) -> None:
    """Decline a graph, as a backend: for inputs that share memory, and for first runs."""
