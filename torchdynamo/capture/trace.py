"""Everything one capture accumulates: graph, inputs, guards, heap, process state, and where it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.fx

from torchdynamo.capture import sizes
from torchdynamo.capture.call_sites import Call, CallSite, Passed, call_site, calling_from
from torchdynamo.capture.effects import SideEffects
from torchdynamo.capture.heap import Entity, Heap
from torchdynamo.capture.signals import Break, Presumption, Steps
from torchdynamo.capture.source import Guard, Position, Roots, Source
from torchdynamo.capture.value import Graphed, Known, Object, Symbol, Value

ABOUT_OBJECTS = frozenset({"TYPE_MATCH", "ID_MATCH", "FUNCTION_MATCH", "CLASS_ATTR"})


class Numbers(Protocol):
    """The numbers of the graph (graph/numbers.py)."""

    scalars: bool
    varying: Collection[Any]  # sources of what is not the same in every call
    always: bool
    never: bool
    entries: dict[Any, tuple[Source, int]]
    named: Collection[str]
    bucketed: Mapping[str, Collection[int]]
    where: Any
    schedules: bool  # what a scheduler changes, or a count of steps, is not the same in every call
    scheduled: bool  # there was such a number
    passed: bool
    dropped: Collection[Presumption]

    def at_entry(self, value: int, source: Source, least: int | None = None, most: int | None = None) -> Any: ...

    def equated(self, fact: Any) -> tuple[Any, ...]: ...

    def is_term(self, number: Any, term: Any) -> bool: ...

    def fixed(self, number: Any) -> Any: ...

    def unknown(self, number: Any) -> bool: ...

    def is_counted(self, number: Any) -> bool: ...

    def decide(self, number: Any) -> bool: ...

    def now(self, number: Any) -> int: ...

    def settle(self, number: Any) -> Any: ...

    def presumed(self) -> int: ...

    def letting_in(self) -> contextlib.AbstractContextManager[None]: ...

    def learn(self, condition: Any) -> None: ...

    def closed(self) -> None: ...

    def fresh(self, pytype: type) -> Any: ...

    def is_about_values(self, raised: BaseException) -> bool: ...


class GraphBuilder(Protocol):
    """The FX graph under construction (graph/build.py)."""

    graph: torch.fx.Graph
    where: Callable[[], CallSite | None]
    calling: Callable[[], Call]
    may_end: bool

    def followed(self) -> None: ...

    @property
    def numbers(self) -> Numbers: ...

    def input(
        self,
        name_hint: str,
        tensor: torch.Tensor,
        source: Source,
        static: bool,
        sizes: Mapping[int, tuple[int, int, bool]] = MappingProxyType({}),
        strides: Collection[int] = (),
    ) -> tuple[torch.fx.Node, Any]: ...

    def number_input(self, number: Any, source: Source) -> torch.fx.Node: ...

    def object_input(self, name_hint: str, example: Any, source: Source) -> torch.fx.Node: ...

    def forget_inputs(self) -> None: ...

    def seed(
        self, op: str, target: Any, args: tuple[Any, ...], example: Any, position: Position | None
    ) -> torch.fx.Node: ...

    def untried(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        example: Any,
        position: Position | None,
    ) -> torch.fx.Node: ...

    def keep_as_captured(self) -> None: ...

    def example(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def layout(self, node: torch.fx.Node) -> Any: ...

    def call(
        self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], position: Position | None
    ) -> tuple[torch.fx.Node, Any]: ...

    def note(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], example: Any, position: Position | None
    ) -> torch.fx.Node: ...

    def switch(self, target: Any, args: tuple[Any, ...], position: Position | None) -> tuple[torch.fx.Node, Any]: ...

    def evaluate(
        self, node: torch.fx.Node, at_entry: Callable[[torch.fx.Node], torch.Tensor | None]
    ) -> torch.Tensor | None: ...

    def getitem(self, node: torch.fx.Node, index: Any) -> tuple[torch.fx.Node, Any]: ...

    def erase(self, node: torch.fx.Node) -> None: ...

    def begin(self) -> Any: ...

    def added(self, mark: Any) -> list[torch.fx.Node]: ...

    def choose(
        self,
        condition: torch.fx.Node,
        sides: Any,
        position: Position | None,
    ) -> tuple[torch.fx.Node, Any]: ...

    def repeat(
        self,
        carried: Sequence[torch.fx.Node],
        standing: Sequence[torch.fx.Node],
        parts: Sequence[tuple[list[torch.fx.Node], list[torch.fx.Node]]],
        position: Position | None,
    ) -> tuple[torch.fx.Node, Any]: ...

    def attend(
        self,
        tensors: Sequence[torch.fx.Node],
        score: tuple[list[torch.fx.Node], list[torch.fx.Node], torch.fx.Node],
        mask: tuple[list[torch.fx.Node], list[torch.fx.Node], torch.fx.Node],
        blocks: Sequence[Any],
        settings: Sequence[Any],
        position: Position | None,
    ) -> tuple[torch.fx.Node, Any]: ...

    def since(self, mark: Any) -> Any: ...

    def enclose(self, mark: Any, target: Any, kwargs: dict[str, Any]) -> None: ...

    def inner(self) -> GraphBuilder: ...

    def argument(self, name_hint: str, like: Any, gradient: bool = False) -> torch.fx.Node: ...

    def as_body(self, outputs: Sequence[torch.fx.Node]) -> torch.fx.GraphModule | None: ...

    def with_backward(
        self,
        plan: tuple[Any, ...],
        ways: Sequence[tuple[tuple[bool, ...], Any]],
        groups: Sequence[list[torch.fx.Node]],
        position: Position | None,
    ) -> tuple[torch.fx.Node, Any]: ...


MAX_TURNS = 100_000
IDLE_TURNS = 20_000  # so many without an operator are no work for a graph


class Trace:
    """One capture in progress."""

    def __init__(self, builder: GraphBuilder, roots: Roots) -> None:
        self.builder = builder
        self.roots = roots
        self.heap = Heap()
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.by_source: dict[Source, Value] = {}
        self.functions: dict[int, Value] = {}  # by id: those whose identity is guarded
        self.inputs: list[Graphed] = []
        self.boxes: list[Graphed] = []  # inputs that bring numbers
        self.numbers_in: list[Symbol] = []  # inputs that are numbers
        self.objects_in: list[Any] = []  # inputs that are neither tensors nor numbers
        self.layouts: dict[Source, Any] = {}  # of tensors whose sizes are numbers
        self.sizes: dict[Any, Value] = {}  # by expression: numbers of the graph that were read off a tensor
        self.step = 0  # root instructions begun
        self.stops: Steps = ()
        self.direct = False  # what is called next returns to the instruction itself
        self.frames: list[Any] = []  # the frames being executed, innermost last
        self.passed: Sequence[Passed] = ()  # functions that a model stands for, which call the one called next
        self.ops = 0
        self.hooks: list[Any] = []  # on tensors, in the order they were registered
        self.turns = 0  # calls followed, and turns of loops
        self.patience, self.ops_by_then = IDLE_TURNS, 0  # how many of them before it is looked whether there was an op
        self.may_begin_again = False  # whether checks may be noted: after one that fails the frame runs as written
        self.checks: list[Any] = []  # see raising.py
        self.effects = SideEffects(self.heap, builder, self.checks)
        self.may_raise = False  # an operator may, and the frame would catch it: see catching.py
        self.sizes_fit = False  # or sizes are taken to be the same: see fitting.py

    # -- guards ---------------------------------------------------------------------------------------------------
    def guard(self, source: Source, kind: str, arg: Any = None) -> None:
        """Rest on a fact about the state at entry."""
        if kind in ABOUT_OBJECTS:  # which may say themselves what they equal
            key: tuple[Any, ...] = (source, kind, id(arg) if kind != "CLASS_ATTR" else arg[0])
            if key in self.guards:
                return
        else:
            try:
                key = (source, kind, type(arg), arg)
                if key in self.guards:
                    return
            except TypeError:  # unhashable arguments are rare: keep them all
                key = (source, kind, id(arg))
        self.guards[key] = Guard(source, kind, arg, self.position())

    def count_turn(self, name: str) -> None:
        """One more call or turn of a loop; there is a limit to what is worth following."""
        self.turns += 1
        if self.turns > self.patience:
            if self.turns > MAX_TURNS or self.ops == self.ops_by_then:
                raise Break("too long to follow", name=name)
            self.patience, self.ops_by_then = self.turns + IDLE_TURNS, self.ops

    def position(self) -> Position | None:
        """Where the user's program is: the innermost frame that has a line."""
        return self.frames[-1].position() if self.frames else None

    def call_site(self) -> CallSite | None:
        """The calls that the user's program is in."""
        return call_site(self.frames, self.passed)

    def calling(self) -> Call:
        """Make what calls operators as if from the line where the user's program is."""
        return calling_from(self.frames)

    # -- heap -----------------------------------------------------------------------------------------------------
    def new(self, pytype: type, items: Any = None, note: Any = None, **attrs: Value) -> Object:
        """A fresh object of exactly this type."""
        value = self.heap.new(pytype, items=items, born=self.step, note=note)
        if attrs:
            self.heap.entities[value.ref].attrs.update(attrs)
        return value

    def entity(self, value: Object) -> Entity:
        """The contents of an object."""
        return self.heap.entities[value.ref]

    def let_go(self) -> None:
        """Drop what leads to the program's objects: nobody needs the capture any more."""
        self.heap.let_go()
        self.effects.let_go()
        self.builder.forget_inputs()

    # -- graph ----------------------------------------------------------------------------------------------------
    def tensor_input(self, tensor: torch.Tensor, source: Source, static: bool) -> Graphed:
        """A tensor that exists at entry becomes an input of the graph, and the sizes that vary become inputs too."""
        lengths = sizes.varying_sizes(self, tensor, source, static)  # type: ignore[arg-type]
        strides = sizes.varying_strides(self, tensor, source) if lengths else ()  # type: ignore[arg-type]
        node, fake = self.builder.input(input_name(source), tensor, source, static, lengths, strides)
        layout = self.builder.layout(node) if lengths else None
        if layout is None:
            self.guard(source, "TENSOR_MATCH")
        else:
            sizes.enter_sizes(self, source, layout)  # type: ignore[arg-type]
        value = Graphed(node, fake, type(tensor), source)
        self.inputs.append(value)
        return value

    def known(self, value: Value, what: str) -> Any:
        """The object of a value that has to be a constant here."""
        if value.__class__ is Known:
            return value.obj
        if value.__class__ is Symbol:
            return self.builder.numbers.settle(value.fake)
        raise Break("unsupported argument", what=what, type=value.pytype.__name__)


def input_name(source: Source) -> str:
    """A placeholder's name: the path as words, `self_fc1_weight`."""
    text = str(source)
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return "_".join(words) or "arg"
