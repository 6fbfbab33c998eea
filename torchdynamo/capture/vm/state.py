"""Everything one capture accumulates: graph, inputs, guards, heap, process state, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.capture.torch import sizes
from torchdynamo.capture.vm.effects import SideEffects
from torchdynamo.capture.vm.heap import Entity, Heap
from torchdynamo.core.call_sites import Call, CallSite, Passed, call_site, calling_from
from torchdynamo.core.signals import Break, StopPath
from torchdynamo.core.source import Guard, Position, Roots, Source
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.sizes import SizeLayout

if TYPE_CHECKING:
    from torchdynamo.capture.vm.cached_calls import CachedCall
    from torchdynamo.capture.vm.constant_calls import ConstantCall

ABOUT_OBJECTS = frozenset({"TYPE_MATCH", "ID_MATCH", "FUNCTION_MATCH", "CLASS_ATTR"})


MAX_TURNS = 100_000
IDLE_TURNS = 20_000  # so many without an operator are no work for a graph


def guard_key(source: Source, kind: str, arg: Any) -> tuple[Any, ...]:
    """Return the key under which a capture keeps a guard: equal for guards that say the same."""
    if kind in ABOUT_OBJECTS:  # which may say themselves what they equal
        return source, kind, id(arg) if kind != "CLASS_ATTR" else arg[0]
    try:
        hash(arg)
    except TypeError:  # unhashable arguments are rare: keep them all
        return source, kind, id(arg)
    return source, kind, type(arg), arg


class CaptureState:
    """Hold all that one capture accumulates."""

    def __init__(self, builder: GraphBuilder, roots: Roots) -> None:
        self.builder = builder
        self.roots = roots
        self.heap = Heap()
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.by_source: dict[Source, Value] = {}
        self.functions: dict[int, Value] = {}  # by id: those whose identity is guarded
        self.inputs: list[TensorNode] = []
        self.boxes: list[TensorNode] = []  # inputs that bring numbers
        self.numbers_in: list[Symbol] = []  # inputs that are numbers
        self.objects_in: list[Any] = []  # inputs that are neither tensors nor numbers
        self.layouts: dict[Source, Any] = {}  # of tensors whose sizes are numbers
        self.sizes: dict[Any, Value] = {}  # by expression: numbers of the graph that were read off a tensor
        self.step = 0  # root instructions begun
        self.stops: StopPath = ()
        self.direct = False  # what is called next returns to the instruction itself
        self.frames: list[Any] = []  # the frames being executed, innermost last
        self.passed: Sequence[Passed] = ()  # functions that a model stands for, which call the one called next
        self.ops = 0
        self.hooks: list[Any] = []  # on tensors, in the order they were registered
        self.turns = 0  # calls followed, and turns of loops
        self.patience, self.ops_by_then = IDLE_TURNS, 0  # how many of them before it is looked whether there was an op
        self.may_begin_again = False  # whether checks may be noted: after one that fails the frame runs as written
        self.checks: list[Any] = []  # see assertions.py
        self.effects = SideEffects(self.heap, builder, self.checks)
        self.may_raise = False  # an operator may, and the frame would catch it: see may_raise.py
        self.in_block = False  # or would leave a `try` or `with` block
        self.sizes_fit = False  # or sizes are taken to be the same: see unify_sizes.py
        # What another process must know to use what is captured: see cache/store
        self.followed: dict[int, CodeType] = {}  # by id: code that was executed
        self.cached_calls: list[CachedCall] = []  # of functions with `functools.lru_cache`, in their order
        self.constant_calls: list[ConstantCall] = []  # of functions declared to return the same each time
        self.set_orders = self.heap.set_orders
        self.of_process = self.heap.of_process  # what it rests on that is so in this process only
        self.answers: dict[tuple[type, type], bool] = {}  # (class, abstract class): whether it is a subclass

    # -- guards ---------------------------------------------------------------------------------------------------
    def guard(self, source: Source, kind: str, arg: Any = None) -> None:
        """Add a guard: a fact about the state at entry that the capture rests on."""
        key = guard_key(source, kind, arg)
        if key not in self.guards:
            self.guards[key] = Guard(source, kind, arg, self.position())

    def count_turn(self, name: str) -> None:
        """Count one more call or turn of a loop. Raises Break beyond what is worth executing symbolically."""
        self.turns += 1
        if self.turns > self.patience:
            if self.turns > MAX_TURNS or self.ops == self.ops_by_then:
                raise Break("too long to follow", name=name)
            self.patience, self.ops_by_then = self.turns + IDLE_TURNS, self.ops

    def position(self) -> Position | None:
        """Return where the user's program is: the innermost frame that has a line."""
        return self.frames[-1].position() if self.frames else None

    def call_site(self) -> CallSite | None:
        """Return the calls that the user's program is in."""
        return call_site(self.frames, self.passed)

    def calling(self) -> Call:
        """Return a function that calls operators as if from the line where the user's program is."""
        return calling_from(self.frames)

    # -- heap -----------------------------------------------------------------------------------------------------
    def new(self, pytype: type, items: Any = None, payload: object = None, **attrs: Value) -> Object:
        """Make a fresh object of exactly this type."""
        value = self.heap.new(pytype, items=items, born=self.step, payload=payload)
        if attrs:
            self.heap.entities[value.ref].attrs.update(attrs)
        return value

    def entity(self, value: Object) -> Entity:
        """Return the contents of an object."""
        return self.heap.entities[value.ref]

    def let_go(self) -> None:
        """Drop all references to the program's objects, when nobody needs the capture any more."""
        self.heap.let_go()
        self.effects.let_go()
        self.builder.forget_inputs()

    # -- graph ----------------------------------------------------------------------------------------------------
    def tensor_input(self, tensor: torch.Tensor, source: Source, static: bool) -> TensorNode:
        """Make a tensor that exists at entry an input of the graph, and each of its sizes that varies another."""
        vm: Any = self
        varying, parts = sizes.varying(vm, tensor, source, static), sizes.varying_parts(vm, tensor, source)
        node, fake = self.builder.input(input_name(source), tensor, source, static, varying, parts)
        layout = self.builder.layout(node)
        if isinstance(layout, SizeLayout):
            sizes.enter_sizes(vm, source, layout)
        else:
            self.guard(source, "TENSOR_MATCH")
        for name, (place, _) in parts.items():
            sizes.enter_sizes(vm, place, layout.parts[name])  # type: ignore[union-attr]
        value = TensorNode(node, fake, type(tensor), source)
        self.inputs.append(value)
        return value

    def known(self, value: Value, what: str) -> Any:
        """Return the object of a value that has to be a constant; else Break, in whose text `what` names it."""
        if value.__class__ is Known:
            return value.obj
        if value.__class__ is Symbol:
            return self.builder.numbers.settle(value.fake)
        raise Break("unsupported argument", what=what, type=value.pytype.__name__)


def input_name(source: Source) -> str:
    """Return the name of a placeholder: the path as words, `self_fc1_weight`."""
    text = str(source)
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return "_".join(words) or "arg"
