"""The FX graph under construction: nodes, and a fake tensor for what each one will give.

`node.meta` of every node: `example_value` (fake tensors, as the operation returns them) and `stack_trace` (the user's
line). Placeholders also have `source` (an InputSource) and `static_input` (a parameter or buffer, whose memory stays
where it is from call to call).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.core.call_sites import CallSite, call
from torchdynamo.core.source import Position, Source
from torchdynamo.graph import torch_compat, wrappers
from torchdynamo.graph.cond import choose
from torchdynamo.graph.constants import AtEntry, evaluate
from torchdynamo.graph.custom_backward import gradient_like, twin
from torchdynamo.graph.errors import UnsupportedTensor
from torchdynamo.graph.fake_cache import Answer
from torchdynamo.graph.fake_execution import FakeExecution, examples, memories_of
from torchdynamo.graph.flex_attention import Part, attend
from torchdynamo.graph.input_fakes import InputFakes
from torchdynamo.graph.inputs import InputSource
from torchdynamo.graph.modules import close, graph_module
from torchdynamo.graph.mutation import Effects, keeps_leaves, makes_leaves, note_effects
from torchdynamo.graph.node_places import describe
from torchdynamo.graph.numbers import SYMBOLIC, Numbers
from torchdynamo.graph.passes.dead_code import remove_unused
from torchdynamo.graph.passes.enclose import NodeRange, enclose
from torchdynamo.graph.recording import WorldRecord
from torchdynamo.graph.sizes import Extents, InnerLayouts, SizeLayout, fake_with_sizes, layout_of_input, note_sizes
from torchdynamo.graph.steps import ERASED, GIVEN, INPUT, ITEM, TRIED, Step
from torchdynamo.graph.tracebacks import PROGRAMS, Program
from torchdynamo.graph.while_loop import repeat

Node = torch.fx.Node
Target = Callable[..., Any] | str
_set_args: Any = Node.args.fset  # type: ignore[attr-defined]


class GraphMark(NamedTuple):
    """A place in the graph, and what had been done by then."""

    last: Node | None
    writes: int
    draws: int


class GraphBuilder(FakeExecution):
    """Adds operations to a graph, trying each on fake tensors first: what fails leaves no node.

    Operations run under the grad mode, autocast and so on of the process. An operation that changes such a mode
    (`torch._C._set_grad_enabled`) really changes it, so that what follows sees it: the caller puts it back.
    """

    def __init__(self, scalars: bool = False, shapes: bool = False, varying: Collection[Any] = ()) -> None:
        super().__init__(Numbers(scalars, shapes, varying), WorldRecord())
        self.call_sites: dict[str, CallSite] = {}  # by node: where the program stood
        self.may_end, self.exporting = True, False  # may it end before the frame; is it for `torchdynamo.export`
        self.branches = False  # whether both ways of branches on tensors' values are captured
        self.followed()
        self._hints: dict[Any, str] = {}  # what nodes of a target are called
        self._last_placeholder: Node | None = None
        self._numbers = 0  # inputs that are numbers, so far
        self._layouts: dict[str, SizeLayout | InnerLayouts] = {}  # by placeholder: of inputs whose sizes may vary
        self._stretches: list[NodeRange] = []
        self._bodies: dict[str, Any] = {}

    def followed(self) -> None:
        """Note that the program is not followed any more, so that nobody needs to say where it stands."""
        self.steps: list[Step] = []
        self.where: Callable[[], CallSite | None] = lambda: None
        self.calling = lambda: call

    def forget_inputs(self) -> None:
        """Drop what leads to the real tensors that are inputs: nobody asks for more fake tensors of them."""
        if "fake_mode" in self.__dict__:
            torch_compat.forget_tensors(self.fake_mode)
        if "entrants" in self.__dict__:
            self.entrants.forget_tensors()

    @cached_property
    def entrants(self) -> InputFakes:
        """Fake tensors for what exists at entry."""
        return InputFakes(self.fake_cache.known_metadata)

    # -- nodes ----------------------------------------------------------------------------------------------------
    def input(
        self,
        name_hint: str,
        tensor: torch.Tensor,
        source: Source,
        static: bool,
        varying: Extents = Extents({}, ()),  # noqa: B008 - immutable
        parts: Mapping[str, tuple[Source, Extents]] = MappingProxyType({}),
    ) -> tuple[Node, Any]:
        """Return a tensor that exists before the graph runs. The caller asks once for each distinct tensor.

        `varying` is what may be another next time; `parts` has that of tensors inside of a nested tensor, by name.
        """
        with self.graph.inserting_after(self._last_placeholder):
            node = self.graph.placeholder(name_hint)
        if node.target != node.name:
            node.target = node.name
        origin = InputSource(node.name, source, static)
        try:
            shape = layout_of_input(self.numbers, tensor, source, varying, parts)
            if shape is None:
                fake = self.entrants.fake_of(self.fake_mode, tensor, origin)
            else:
                self._layouts[node.name], fake = shape, fake_with_sizes(self.fake_mode, tensor, shape)
        except Exception as raised:
            self.graph.erase_node(node)
            raise UnsupportedTensor(node.name, raised) from raised
        node.meta.update(example_value=fake, source=origin, static_input=static)
        self._last_placeholder = node
        self._memory[node] = memories_of([fake])
        self.wrapped |= wrappers.is_wrapper(fake)
        self.steps.append(Step(node, INPUT, source=source))
        return node, fake

    def number_input(self, number: Any, source: Source) -> Node:
        """Return a number that exists before the graph runs: `s0`, `s1`, ..."""
        self._numbers += 1
        return self.object_input(f"s{self._numbers - 1}", number, source)

    def object_input(self, name_hint: str, example: Any, source: Source, memory: Any = None) -> Node:
        """Make an input of something that exists before the graph runs. memory: a fake tensor that has what it has."""
        with self.graph.inserting_after(self._last_placeholder):
            node = self.graph.placeholder(name_hint)
        node.target = node.name
        origin = InputSource(node.name, source, static=False)
        node.meta = {"example_value": example, "source": origin, "static_input": False}
        if memory is not None:
            self._memory[node] = memories_of([memory])
        self._last_placeholder = node
        return node

    def layout(self, node: Node) -> SizeLayout | InnerLayouts | None:
        """Return the sizes and strides of an input, if some of them may vary."""
        return self._layouts.get(node.name)

    def call(
        self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], position: Position | None
    ) -> tuple[Node, Any]:
        """Return an operation on tensors (as nodes) and constants, nested as the user wrote them; raises a
        GraphError.
        """
        example = self.example(op, target, args, kwargs)
        return self.add(op, target, args, kwargs, example, describe(position), TRIED, self.fake_cache.latest), example

    def add(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        example: Any,
        place: str,
        how: str = GIVEN,
        answer: Answer | None = None,
    ) -> Node:
        """Return a node, of which `how` and `answer` tell where its example is from (see Step)."""
        if target is operator.pow and torch_compat.is_printed_wrongly(args[0]):
            target = pow
        hint = self._hints.get(target)
        if hint is None:
            hint = self._hints[target] = torch_compat.name_hint(self.graph, target)
        node = self.graph.create_node(op, target, (), kwargs, hint)
        if args:  # made with them, they would be searched for what is none
            _set_args(node, args)
        node.meta["example_value"] = example
        node.meta["stack_trace"] = place
        site = self.where()
        if site is not None:
            self.call_sites[node.name] = site
        self.steps.append(Step(node, how, op, target, args, kwargs, answer))
        return node

    def note(
        self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], example: Any, position: Position | None
    ) -> Node:
        """Add an operation whose result is settled, without trying it."""
        return self.add("call_function", target, args, kwargs, example, describe(position))

    def seed(self, op: str, target: Target, args: tuple[Any, ...], example: Any, position: Position | None) -> Node:
        """Add an operation that reads or sets torch's own generators: the graph is run as it was captured."""
        self.record.draw()
        self.record.as_captured = True
        return self.on_host(op, target, args, {}, example, position)

    def on_host(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        example: Any,
        position: Position | None,
    ) -> Node:
        """Add an operation, without trying it, of which compilers know nothing: see host_nodes.py."""
        return self.add(op, target, args, kwargs, example, describe(position))

    def keep_as_captured(self) -> None:
        """Have the graph run operator by operator, whatever the backend."""
        self.record.as_captured = True

    def switch(self, target: Callable[..., Any], args: tuple[Any, ...], position: Position | None) -> tuple[Node, Any]:
        """Add a change of the process's state. It is made for real, and outside the fake tensors' world: leaving a
        mode puts back the state it found, so where it was entered it has to be left.
        """
        result = target(*examples(args))
        return self.add("call_function", target, args, {}, result, describe(position)), result

    def getitem(self, node: Node, index: Any) -> tuple[Node, Any]:
        """Return one element of an operation's several results; it is at the operation's own position."""
        example = node.meta["example_value"][index]
        place = node.meta.get("stack_trace", "")
        return self.add("call_function", operator.getitem, (node, index), {}, example, place, ITEM), example

    def erase(self, node: Node) -> None:
        """Take back a node that nothing uses."""
        if node is self._last_placeholder:
            previous = node.prev
            self._last_placeholder = previous if previous.op == "placeholder" else None
        self.graph.erase_node(node)
        self.steps.append(Step(node, ERASED))

    # -- bodies of higher-order operators -------------------------------------------------------------------------
    def begin(self) -> GraphMark:
        """Mark the beginning of what may become the body of an operator."""
        return GraphMark(next(iter(reversed(self.graph.nodes)), None), len(self.record.writes), self.record.draws)

    def since(self, mark: GraphMark) -> GraphMark:
        """Return how often memory that was there before was written to, and random numbers were drawn, since then."""
        draws = self.record.draws - mark.draws
        if len(self.record.writes) == mark.writes:
            return GraphMark(mark.last, 0, draws)
        own = {id(node) for node in self.added(mark)}
        before = [node.meta["example_value"] for node in self.graph.nodes if id(node) not in own]
        memory = {0, *(memory._cdata for memory in memories_of(before) if memory is not None)}
        written = [where for where in self.record.writes[mark.writes :] if where in memory]
        return GraphMark(mark.last, len(written), draws)

    def added(self, mark: GraphMark) -> list[Node]:
        """Return the operations added since then."""
        known = [*self.graph.nodes]
        since = known[known.index(mark.last) + 1 if mark.last is not None else 0 :]
        return [node for node in since if node.op != "placeholder"]

    def enclose(self, mark: GraphMark, target: Any, kwargs: dict[str, Any]) -> None:
        """Move the nodes that were added since then into the body of an operator."""
        nodes = self.added(mark)
        if nodes and not any(node in inner.nodes for node in nodes for inner in self._stretches):
            self._stretches.append(NodeRange(nodes, target, kwargs))

    def inner(self) -> GraphBuilder:
        """Return the builder of a body that runs at another time, in the same world of fake tensors and numbers."""
        made = GraphBuilder()
        made.numbers, made.record, made.exporting = self.numbers, self.record, self.exporting
        made.__dict__["fake_mode"] = self.fake_mode
        return made

    def argument(self, name_hint: str, like: Any, gradient: bool = False) -> Node:
        """Return an input of a body: a number, or a tensor as this fake tensor is now; or as its gradient will be."""
        with self.graph.inserting_after(self._last_placeholder):
            node = self.graph.placeholder(name_hint)
        node.target = node.name
        if isinstance(like, torch.Tensor):
            with self.fake_mode, torch.no_grad():
                like = gradient_like(like) if gradient else twin(like)
        node.meta = {"example_value": like}
        self._last_placeholder = node
        return node

    def as_body(self, outputs: Sequence[Node], own_leaves: bool = False) -> torch.fx.GraphModule | None:
        """Close the graph of a body; None if it asks for gradients itself, but of its `own_leaves` where it may."""
        self.followed()
        close(self.graph, outputs)
        remove_unused(self.graph)
        body = graph_module(self.root(), self.graph)
        PROGRAMS[body] = Program(None, self.call_sites)
        return None if makes_leaves(body) and not (own_leaves and keeps_leaves(body)) else body

    def hold(self, hint: str, body: Any, position: Position | None) -> Node:
        """Return the node that stands for a body."""
        name = f"{hint}_{len(self._bodies)}"
        self._bodies[name] = body
        node = self.graph.create_node("get_attr", name)
        node.meta = {"example_value": body, "stack_trace": describe(position)}
        return node

    def root(self) -> torch.nn.Module:
        """Return what holds the bodies."""
        made = torch.nn.Module()
        for name, body in self._bodies.items():
            setattr(made, name, body)
        return made

    def choose(
        self, condition: Node, sides: Sequence[tuple[list[Node], list[Node]]], position: Position | None
    ) -> tuple[Node, Any]:
        """Return one of two stretches at the end of the graph, as a condition says: see `branches`."""
        return choose(self, condition, sides, position)

    def repeat(
        self,
        carried: Sequence[Node],
        standing: Sequence[Node],
        parts: Sequence[tuple[list[Node], list[Node]]],
        position: Position | None,
    ) -> tuple[Node, Any]:
        """Return two stretches at the end of the graph, run again and again: see `loops`."""
        return repeat(self, carried, standing, parts, position)

    def attend(
        self,
        tensors: Sequence[Node],
        score: Part,
        mask: Part,
        blocks: Sequence[Any],
        settings: Sequence[Any],
        position: Position | None,
    ) -> tuple[Node, Any]:
        """Make attention of two stretches at the end of the graph, its functions of scores."""
        return attend(self, tensors, score, mask, blocks, settings, position)

    def count_bodies(self) -> int:
        """Return how many parts of the graph are, or will be, the bodies of operators."""
        return len(self._stretches) + len(self._bodies)

    def evaluate(self, node: Node, at_entry: AtEntry) -> torch.Tensor | None:
        """Return the tensor of a node made of constants alone, and of inputs that `at_entry` knows; None where it is
        not.
        """
        return evaluate(node, self.record, at_entry, written=bool(self.mutated()))

    # -- the end --------------------------------------------------------------------------------------------------
    def count_operators(self) -> int:
        """Return how many operators on tensors there are so far, as against those on numbers."""
        calls = (node for node in self.graph.nodes if node.op.startswith("call_"))
        return sum(not isinstance(node.meta.get("example_value"), SYMBOLIC) for node in calls)

    def finish(self, outputs: Sequence[Node], order: Sequence[Node] = ()) -> torch.fx.GraphModule:
        """Close the graph. Inputs nothing uses go; those in `order` come first and in that order.

        `gm.graph.find_nodes(op="placeholder")` says which inputs remain.
        """
        close(self.graph, outputs)
        remove_unused(self.graph)
        remaining = set(self.graph.find_nodes(op="placeholder"))
        previous: Node | None = None
        for node in order:
            if node in remaining:
                (previous.append if previous is not None else next(iter(self.graph.nodes)).prepend)(node)
                previous = node
        root = self.root()
        enclose(root, self.graph, self._stretches)
        gm = graph_module(root, self.graph)
        note_sizes(gm, self.numbers, self._layouts)
        mutated = frozenset(node.name for node in self.mutated() if node in remaining)
        overwritten = frozenset(node.name for node in self.graph.nodes if self.is_overwritten(node))
        record = self.record
        resized = (record.has_resized(memory) for node in remaining for memory in self._memory.get(node, ()))
        as_captured = record.as_captured or any(resized)
        note_effects(gm, Effects(mutated, record.random, as_captured, overwritten, record.communicates))
        return gm

    def is_overwritten(self, node: Node) -> bool:
        """Return whether operations so far may have written to the memory of a node's value, or to a part of it."""
        written = bool(self.record.written) or self.record.everything_written
        example = node.meta.get("example_value")
        return written and (self.record.is_replaced(example) or any(map(self.record.wrote_to, memories_of([example]))))

    def mutated(self) -> list[Node]:
        """Return the inputs that operations so far may have written to."""
        return [node for node, memory in self._memory.items() if any(map(self.record.wrote_to, memory))]
