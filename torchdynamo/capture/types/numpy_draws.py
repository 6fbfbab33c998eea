"""Random numbers of NumPy's in a graph: drawn whenever it runs, in their order, from generators that existed before.

What is drawn is a number or an array of the graph, of which nothing is known but its type,
its shape and, of integers, its bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch.fx

from torchdynamo.capture.speculate import may_raise
from torchdynamo.capture.torch import numpy_arrays
from torchdynamo.capture.torch.numpy_arrays import Flowing
from torchdynamo.capture.torch.numpy_tables import DRAWN_OF, NOTHING
from torchdynamo.capture.types.random_generators import Entered
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Model
from torchdynamo.capture.vm.state import input_name
from torchdynamo.core.signals import Assumption, Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, Symbol, Value
from torchdynamo.graph.numpy_nodes import is_array, np

LARGEST = 1 << 20  # bytes: an array of the shape of what is drawn is made while the frame is captured


class GraphObject(NamedTuple):
    """The payload of a generator that is an input of the graph, or of an object that the graph makes."""

    node: torch.fx.Node


def drawing(name: str, seeded: Model) -> Model:
    """Return the model of a method that draws. seeded: its model for a generator that the frame has seeded."""

    def row(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        entity = vm.entity(self)
        if entity.items is not None or entity.real is MISSING or not may_draw(vm):
            return seeded(vm, self, *args, **kwargs)
        return draw(vm, entity, name, list(args), kwargs)

    return row


def may_draw(vm: Machine) -> bool:
    """Return whether the graph may draw: one whose sizes vary cannot be cut around that, and would not be compiled."""
    numbers = vm.builder.numbers
    return numbers.scalars or (not numbers.entries and Assumption.DRAWS not in numbers.dropped)


def draw(vm: Machine, entity: Entity, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Add a node that draws, and return its value."""
    called = f"{entity.pytype.__name__}.{name}"
    if entity.pytype not in (np.random.RandomState, np.random.Generator):  # a subclass, which may do more
        raise Break("builtin with effects", name=called)
    rules = DRAWN_OF.get(name, NOTHING).rules(args, kwargs)
    if any(rule == "." and holds_symbols(vm, each) for rule, each in rules):
        raise Break("data-dependent value", name=called)
    given = [argument(vm, each, called) for each in args]
    named = {key: argument(vm, each, called) for key, each in kwargs.items()}
    example = tried(vm, entity.pytype, name, args, kwargs)
    if name in NOT_IN_GRAPHS or example is None or nbytes(example) > LARGEST:
        raise Break("builtin with effects", name=called)
    if type(example) not in (int, float) and (not is_array(example) or example.dtype.kind not in "biuf"):
        raise Break("unsupported type", type=type(example).__name__)
    shares_no_bits(vm, entity)
    may_raise.be_careful(vm, called)
    vm.ops += 1
    vm.builder.record.draw()
    node = vm.builder.on_host("call_method", name, (generator(vm, entity), *given), named, example, vm.position())
    if type(example) is int:
        return number(vm, node, int, bounds(name, args, kwargs))
    return number(vm, node, float) if type(example) is float else array(vm, node, example)


NOT_IN_GRAPHS = frozenset({"bytes", "multivariate_normal"})  # what is drawn is no number; what warns


def shares_no_bits(vm: Machine, entity: Entity) -> None:
    """Refuse a generator that shares its numbers with another that the frame has drawn from or seeded."""
    for each in vm.heap.entities:
        if each is not entity and isinstance(each.real, (np.random.RandomState, np.random.Generator)):
            used = each.items is not None or each.payload_if(GraphObject) is not None
            if used and each.real is not entity.real and each.real._bit_generator is entity.real._bit_generator:
                raise Break("builtin with effects", name="numpy.random")


def holds_symbols(vm: Machine, value: Value) -> bool:
    """Return whether a value is a number of the graph, or a list or tuple with some."""
    if value.__class__ is Object and value.pytype in (list, tuple):
        return any(holds_symbols(vm, item) for item in vm.iterate(value))
    return value.__class__ is Symbol


def argument(vm: Machine, value: Value, called: str) -> Any:
    """Return an argument of a node: constants, and numbers of the graph."""
    if numpy_arrays.holds_tensors(value) or numpy_arrays.flows(vm, value):
        raise Break("data-dependent value", name=called)
    return value.node if value.__class__ is Symbol else plain(vm, value, called)


def plain(vm: Machine, value: Value, called: str) -> Any:
    """Return a constant that can stand in a graph."""
    known = vm.concretely(value)
    if isinstance(known, np.ndarray) or type(known) in (list, dict, set):
        raise Break("builtin with effects", name=called)
    return np.dtype(known).str if isinstance(known, (type, np.dtype)) else numpy_arrays.plain(known)


def tried(vm: Machine, cls: Any, name: str, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """Return what a generator of our own draws, with 1 for numbers that are not known."""
    own = cls(np.random.PCG64(0)) if cls is np.random.Generator else cls(0)
    real = [standing(vm, each) for each in args]
    named = {key: standing(vm, each) for key, each in kwargs.items()}
    unknown = any(each.__class__ is Symbol for each in (*args, *kwargs.values()))
    try:
        return getattr(own, name)(*real, **named)
    except Exception as error:
        if unknown:  # perhaps only of these numbers
            raise Break("builtin with effects", name=f"{cls.__name__}.{name}") from error
        raise vm.refused(error) from None


def standing(vm: Machine, value: Value) -> Any:
    return value.pytype(1) if value.__class__ is Symbol else vm.concretely(value)


def nbytes(drawn: Any) -> int:
    return int(getattr(drawn, "nbytes", 0))


def generator(vm: Machine, entity: Entity) -> torch.fx.Node:
    """Return the input of the graph that is a generator."""
    known = entity.payload_if(GraphObject)
    if known is None:
        source, real = entity.source, entity.real
        if source is None:
            raise Break("builtin with effects", name="numpy.random")
        legacy = isinstance(real, np.random.RandomState)
        bits = Source("attr", source, "_bit_generator")
        if legacy and type(real._bit_generator) is not np.random.MT19937:  # its state could not be put back
            raise Break("builtin with effects", name="numpy.random")
        if legacy:
            vm.guard(bits, "TYPE_MATCH", np.random.MT19937)
        example = np.random.RandomState(0) if legacy else np.random.default_rng(0)
        node = vm.builder.object_input(input_name(source), example, source)
        vm.input_objects[node] = real
        vm.objects_in.append(Entered(node, source))
        known = entity.payload = GraphObject(node)
    return known.node


def number(vm: Machine, node: torch.fx.Node, pytype: type, least_and_most: tuple[Any, Any] | None = None) -> Value:
    """Return the value of a node that gives one of Python's numbers."""
    numbers = vm.builder.numbers
    fresh = node.meta["example_value"] = numbers.fresh(pytype)
    if least_and_most is not None:
        least, most = least_and_most
        numbers.learn(fresh >= least)
        numbers.learn(fresh <= most)
    return Symbol(node, fresh, pytype)


def bounds(name: str, args: list[Value], kwargs: dict[str, Value]) -> tuple[Any, Any] | None:
    """Return the least and the most that `randint` may give; None for what has no bounds."""
    if name != "randint":
        return None
    given = dict(zip(("low", "high"), args, strict=False)) | kwargs
    low, high = given.get("low", NONE), given.get("high", NONE)
    if high is NONE or (high.__class__ is Known and high.obj is None):
        low, high = Known(0), low
    ends = [each.fake if each.__class__ is Symbol else each.obj for each in (low, high)]  # type: ignore[union-attr]
    if not all(isinstance(each, (int, torch.SymInt)) for each in ends):
        return None
    return ends[0], ends[1] - 1


def array(vm: Machine, node: torch.fx.Node, example: Any) -> Value:
    """Return the value of a node that gives an array, or a number of NumPy's."""
    return vm.new(type(example), Flowing(node, drawn=True))
