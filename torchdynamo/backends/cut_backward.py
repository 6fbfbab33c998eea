"""Compile a backward as several parts that run one after the other, each of which finishes some of the gradients.

A graph of ATen operators is cut after the last operator that a gradient needs, in the order in which gradients are
wanted. What one part computes for later ones goes between them directly.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.fx
from torch._guards import TracingContext

from torchdynamo.graph import torch_compat
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.passes.stages import with_inputs

Node = torch.fx.Node
Order: TypeAlias = tuple[int | None, ...]
"""For each input of a graph, when its gradient is wanted: with the first ones (0), the second; None if no matter."""
MOST_PARTS = 16
LEAST_WORK = 1e12  # operations of a part on an accelerator: about two milliseconds of a current one
ITSELF = "_torchdynamo_parts"  # attribute of a compiled backward in parts, and so of what torch wraps it in


class Part(NamedTuple):
    """A compiled part; inputs, results and what nobody needs afterwards are names of nodes of the whole graph."""

    run: Callable[[list[Any]], Any]
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    layouts: dict[str, tuple[Any, ...]]  # strides of inputs that earlier parts have computed
    unneeded: tuple[str, ...]  # once it has got its inputs
    delivered: tuple[str, ...]  # once its gradients were returned


class CutBackward:
    """A compiled backward in parts, which is called as a whole one is: with a list, which is emptied."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str | None], parts: list[Part]) -> None:
        self.inputs, self.outputs, self.parts = inputs, outputs, parts
        where = {name: at for at, part in enumerate(parts) for name in part.results}
        self.positions: Sequence[list[int]] = [[] for _ in parts]
        for position, name in enumerate(outputs):
            if name is not None:  # an input that is returned as it is comes with the first ones
                self.positions[where.get(name, 0)].append(position)
        self._boxed_call = True  # as AOTAutograd asks for the calling convention
        setattr(self, ITSELF, weakref.ref(self))
        self.proven = False  # all parts have run once

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        begun, found = self.begin(args), [None] * len(self.outputs)
        for at, positions in enumerate(self.positions):
            for position, gradient in zip(positions, begun.gradients(at), strict=True):
                found[position] = gradient
        return tuple(found)

    def begin(self, args: list[Any]) -> Run:
        """Return a run of the parts on these arguments. The list is emptied."""
        return Run(self, args)


class Run:
    """The parts of one backward, run one by one."""

    def __init__(self, cut: CutBackward, args: list[Any]) -> None:
        self.cut = cut
        self.known = dict(zip(cut.inputs, args, strict=True))
        args.clear()

    def gradients(self, at: int) -> list[Any]:
        """Run one part, after those before it; return the gradients that it has finished."""
        cut, known = self.cut, self.known
        part = cut.parts[at]
        given = [known[name] for name in part.inputs]
        if not cut.proven:
            check_layouts(part, given)
        for name in part.unneeded:
            del known[name]
        made = part.run(given)
        known.update(zip(part.results, made if isinstance(made, (list, tuple)) else [made], strict=True))
        found = [known[cut.outputs[position]] for position in cut.positions[at]]  # type: ignore[index]
        for name in part.delivered:
            del known[name]
        cut.proven = cut.proven or part is cut.parts[-1]
        return found


def check_layouts(part: Part, given: Sequence[Any]) -> None:
    """Raise RuntimeError if a part gets a tensor in another memory layout than it was compiled for."""
    for name, value in zip(part.inputs, given, strict=True):
        expected = part.layouts.get(name)
        if expected is not None and value.stride() != expected:
            raise RuntimeError(f"{name} has strides {value.stride()}, and a backward in parts expects {expected}")


def parts_of(compiled: Any) -> CutBackward | None:
    """Return a compiled backward in parts; None for one that is whole, or not compiled yet."""
    found: Callable[[], CutBackward | None] = getattr(compiled, ITSELF, lambda: None)
    return found()


# -- making the parts -------------------------------------------------------------------------------------------------
def cutting(compile_one: Callable[..., Any], order: Order, most: int = MOST_PARTS) -> Callable[..., Any]:
    """Wrap a compiler of backward graphs, of AOTAutograd or Inductor's, so that it compiles them in parts.

    A part costs the host some time, and fusion: on an accelerator, most have enough work to pay for that. most: parts.
    """

    def compile_in_parts(gm: torch.fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Any:
        after = places(gm, order, most) if settings.get("is_backward", True) else []
        if not after:
            return compile_one(gm, inputs, **settings)
        return compiled_parts(gm, inputs, after, compile_one, settings)

    return compile_in_parts if order and most > 1 else compile_one


def places(gm: torch.fx.GraphModule, order: Order, most: int) -> list[Node]:
    """Return the nodes after which a backward is cut; none if its results are not just the gradients of all inputs."""
    outputs: Sequence[Any] = gm.graph.output_node().args[0]  # type: ignore[assignment]
    if len(outputs) != len(order):
        return []
    at = {node: number for number, node in enumerate(computed(gm.graph))}
    ready: dict[int, int] = {}  # when wanted -> where the last of these gradients is computed
    sizes: dict[int, int] = {}
    for output, wanted in zip(outputs, order, strict=True):
        if wanted is not None and isinstance(output, Node):
            ready[wanted] = max(ready.get(wanted, -1), at.get(output, -1))
            sizes[wanted] = sizes.get(wanted, 0) + size_of(output.meta["val"])
    held: dict[int, int] = {}  # after which node -> how many bytes of gradients can be handed over by then
    last, size = -1, 0
    for wanted in sorted(ready):
        last, size = max(last, ready[wanted]), size + sizes[wanted]
        held[last] = size
    possible = [end for end in held if 0 <= end < len(at) - 1]
    work = work_until(gm)
    ends = by_bytes(possible, held, size, most) if work is None else by_work(possible, work, most)
    nodes = list(at)
    return [nodes[end] for end in ends]


def by_bytes(possible: Sequence[int], held: dict[int, int], whole: int, most: int) -> list[int]:
    """Return where parts end that hand over about the same number of bytes each."""
    ends: list[int] = []
    for end in possible:
        if (held[end] - (held[ends[-1]] if ends else 0)) * most >= whole:
            ends.append(end)
    return ends


def by_work(possible: Sequence[int], work: Sequence[float], most: int) -> list[int]:
    """Return where parts end that are long on an accelerator, and shorter and shorter at the end of the backward.

    What the last parts finish is communicated when there is little left to compute. The last one begins when all is
    handed over but what is wanted last. A backward too short for two parts stays whole.
    """
    final = possible[-1] if possible else 0
    if not possible or most < 2 or work[final] < 2 * LEAST_WORK:
        return []
    long, short = max(LEAST_WORK, 2 * work[final] / most), LEAST_WORK / 8
    ends: list[int] = []
    for end in possible:
        done = work[ends[-1]] if ends else 0.0
        enough = max(min(long, (work[final] - done) / 2), short)
        fits = len(ends) < most - 2 and work[final] - work[end] >= short
        if end == final or (fits and work[end] - done >= enough):
            ends.append(end)
    return ends


def work_until(gm: torch.fx.GraphModule) -> list[float] | None:
    """Return how many floating-point operations products have taken by each node; None on a CPU.

    Attention and products of symbolic sizes are not counted.
    """
    nodes = computed(gm.graph)
    values = [node.meta.get("val") for node in nodes]
    flat = [each for value in values for each in (value if isinstance(value, (list, tuple)) else [value])]
    if not any(isinstance(each, torch.Tensor) and each.device.type != "cpu" for each in flat):
        return None
    return list(itertools.accumulate(operations_of(gm, node) for node in nodes))


def operations_of(gm: torch.fx.GraphModule, node: Node) -> float:
    """Return how many operations of products a node takes, those of bodies that it calls included."""
    from torch.utils.flop_counter import flop_registry

    packet = getattr(node.target, "overloadpacket", None)
    if packet in COUNTED and all("val" in each.meta for each in (node, *node.all_input_nodes)):
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        found = flop_registry[packet](*args, **kwargs, out_val=node.meta["val"])
        return found if isinstance(found, (int, float)) else 0
    held = [operator.attrgetter(str(each.target))(gm) for each in node.all_input_nodes if each.op == "get_attr"]
    bodies = [each for each in held if isinstance(each, torch.fx.GraphModule)]
    return sum(operations_of(body, inner) for body in bodies for inner in computed(body.graph))


def computed(graph: torch.fx.Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]


aten = torch.ops.aten
COUNTED = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution, aten.convolution_backward}


def size_of(value: Any) -> int:
    """Return how many bytes a tensor has, at the sizes at hand."""
    count = value.numel()
    return int((count if type(count) is int else count.node.hint or 1) * value.element_size())


def compiled_parts(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    after: Sequence[Node],
    compile_one: Callable[..., Any],
    settings: dict[str, Any],
) -> CutBackward:
    """Compile a backward in parts, cut after some nodes. settings: what the compiler gets for the whole graph."""
    graph = gm.graph
    placeholders = graph.find_nodes(op="placeholder")
    update_layouts(gm, placeholders, inputs)
    values = {node.name: value for node, value in zip(placeholders, inputs, strict=True)}
    symbols = [node for node, value in zip(placeholders, inputs, strict=True) if not isinstance(value, torch.Tensor)]
    outputs: Sequence[Any] = graph.output_node().args[0]  # type: ignore[assignment]
    wanted = {each for each in outputs if isinstance(each, Node)}
    where = part_numbers(graph, after, wanted)
    groups = [[node for node in where if where[node] == at] for at in range(len(after) + 1)]
    made = [part_of(gm, group, wanted, symbols) for group in groups]
    fixed = {placeholders[at].name for at in settings.get("static_input_idxs", ())}
    metadata = getattr(TracingContext.try_get(), "fw_metadata", None)
    given_away = list(getattr(metadata, "bw_donated_idxs", None) or ())
    donated = {placeholders[at] for at in given_away}
    parts: list[Part] = []
    for at, (module, names, results) in enumerate(made):
        later = {node for _, names, _ in made[at + 1 :] for node in names}
        due = {node for node in wanted if where.get(node, 0) == at}
        past = {node for node in wanted if where.get(node, 0) < at}
        examples = [values[node.name] if node.name in values else node.meta["val"] for node in names]
        if "static_input_idxs" in settings:
            settings["static_input_idxs"] = [place for place, node in enumerate(names) if node.name in fixed]
        layouts = {
            node.name: value.stride()
            for node, value in zip(names, examples, strict=True)
            if node.op != "placeholder" and isinstance(value, torch.Tensor) and is_fixed(value)
        }
        if given_away:
            inside = set(groups[at])
            metadata.bw_donated_idxs = [  # type: ignore[union-attr]
                place for place, node in enumerate(names) if node in donated and stays_inside(node, inside, wanted)
            ]
        run = compile_one(module, examples, **settings)
        parts.append(
            Part(
                run,
                tuple(node.name for node in names),
                tuple(node.name for node in results),
                layouts,
                tuple(node.name for node in names if node not in later and (node in past or node not in wanted)),
                tuple(node.name for node in due if node not in later),
            )
        )
    if given_away:
        metadata.bw_donated_idxs = given_away  # type: ignore[union-attr]
    return CutBackward(
        [node.name for node in placeholders],
        [each.name if isinstance(each, Node) else None for each in outputs],
        parts,
    )


def part_numbers(graph: torch.fx.Graph, after: Sequence[Node], wanted: set[Node]) -> dict[Node, int]:
    """Return in which part each node is computed, in the graph's order.

    What is computed from saved tensors only is computed where it is first used, rather than kept until then.
    """
    where: dict[Node, int] = {}
    saved = {node for node in graph.nodes if node.op == "get_attr"}
    saved |= {node for node in graph.find_nodes(op="placeholder") if not node.name.startswith("tangents")}
    at = 0
    for node in computed(graph):
        where[node] = at
        at += node in after
        if node not in wanted and not node.is_impure() and all(each in saved for each in node.all_input_nodes):
            saved.add(node)
    for node in reversed(where):
        if node in saved and node.users:
            where[node] = min(where[user] for user in node.users)
    return where


def stays_inside(node: Node, inside: set[Node], wanted: set[Node]) -> bool:
    """Return whether nothing outside of a part may read the memory of a value."""
    if node in wanted or any(user not in inside for user in node.users):
        return False
    return all(stays_inside(user, inside, wanted) for user in node.users if may_alias(user))


def may_alias(node: Node) -> bool:
    """Return whether a node's result may be in the memory of what it is computed from."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or any(each.alias_info is not None for each in schema.returns):
        return True
    return getattr(node.target, "overloadpacket", None) in COPIES


COPIES = {
    *(torch.ops.aten._unsafe_view, torch.ops.aten.clone, torch.ops.aten._to_copy, torch.ops.aten.lift_fresh_copy),
    *(torch.ops.aten.reshape, torch.ops.aten.contiguous, torch.ops.prims.convert_element_type),
}  # what a compiler may make views, or nothing, of


def part_of(
    gm: torch.fx.GraphModule, nodes: Sequence[Node], wanted: set[Node], symbols: Sequence[Node]
) -> tuple[torch.fx.GraphModule, list[Node], list[Node]]:
    """Return these nodes as a graph of their own, with the nodes that it takes and gives.

    wanted: results of the whole graph. symbols: its numbers, which each part takes.
    """
    inside = set(nodes)
    taken = dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside)
    held = [each for each in taken if each.op == "get_attr"]
    inputs = [*symbols, *(each for each in taken if each not in held and each not in symbols)]
    results = [node for node in nodes if node in wanted or any(user not in inside for user in node.users)]
    inner = torch.fx.Graph()
    here = with_inputs(inner, inputs)
    for node in (*held, *nodes):
        here[node] = inner.node_copy(node, here.__getitem__)
        here[node].meta = dict(node.meta)
    end = inner.output(tuple(here[node] for node in results))
    end.meta["user_visible_output_idxs"] = list(range(len(results)))  # they keep their strides
    return graph_module(gm, inner), inputs, results


def update_layouts(gm: torch.fx.GraphModule, placeholders: Sequence[Node], inputs: Sequence[Any]) -> None:
    """Compute the examples of all nodes again if the forward saves tensors in other layouts than were traced."""
    known = [node.meta["val"] for node in placeholders]
    if all(
        not isinstance(given, torch.Tensor) or given is value or given.stride() == value.stride()
        for given, value in zip(inputs, known, strict=True)
    ):
        return
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = next(each.fake_mode for each in inputs if torch_compat.has_fakes([each]))
    FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*inputs)


def is_fixed(value: torch.Tensor) -> bool:
    return all(type(each) is int for each in (*value.shape, *value.stride()))
