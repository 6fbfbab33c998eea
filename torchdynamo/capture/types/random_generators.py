"""torch.Generator, and the seeds and states of torch's random numbers: operations of the graph, in their place in it.

A graph with such operations is run as it was captured: a compiler would seed once, while it traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.cuda
import torch.fx

from torchdynamo.capture.torch import arguments
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import enters, function, models, rebuilds
from torchdynamo.capture.vm.state import input_name
from torchdynamo.core.policy import OWN
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, Symbol, TensorNode, Value


class Entered(NamedTuple):
    """A generator that is an input of the graph."""

    node: torch.fx.Node
    source: Source


@enters(torch.Generator)
def enter(vm: Machine, obj: torch.Generator, source: Source) -> Value:
    vm.guard(source, "TYPE_MATCH", type(obj))
    vm.guard(Source("attr", source, "device"), "EQUALS_MATCH", obj.device)
    return vm.heap.adopt(obj, source)


def node_of(vm: Machine, self: Object) -> torch.fx.Node:
    """Return the node that gives the generator; one that existed becomes an input of the graph."""
    entity = vm.entity(self)
    if entity.items is None:
        assert entity.source is not None
        example = torch.Generator(entity.real.device)
        entity.items = vm.builder.object_input(input_name(entity.source), example, entity.source)
        vm.input_objects[entity.items] = entity.real
        vm.objects_in.append(Entered(entity.items, entity.source))
    node: torch.fx.Node = entity.items
    return node


def operation(vm: Machine, op: str, target: Any, args: tuple[Any, ...], example: Any) -> torch.fx.Node:
    """Add a node that decides what random numbers torch draws, and return it."""
    vm.ops += 1
    return vm.builder.seed(op, target, args, example, vm.position())


def on_generator(vm: Machine, op: str, target: Any, args: tuple[Any, ...], example: Any) -> torch.fx.Node:
    """Add a node that makes, sets or reads a generator, and return it."""
    vm.ops += 1
    return vm.builder.on_host(op, target, args, {}, example, vm.position())


@models(torch.Generator, "__new__")
def new(vm: Machine, cls: Known, device: Value = NONE) -> Value:
    given = () if device is NONE else (vm.known(device, "device"),)
    try:
        example = cls.obj(*given)
    except (RuntimeError, TypeError) as error:
        raise vm.refused(error) from None
    return vm.new(cls.obj, items=on_generator(vm, "call_function", cls.obj, given, example))


@models(torch.Generator, ".device")
def device(vm: Machine, self: Object) -> Value:
    return Known(example_of(vm, self).device)


arguments.AS_NODES[torch.Generator] = node_of


def example_of(vm: Machine, self: Object) -> torch.Generator:
    made: torch.Generator = node_of(vm, self).meta["example_value"]
    return made


@models(torch.Generator, "manual_seed")
def manual_seed(vm: Machine, self: Object, seed: Value) -> Value:
    on_generator(vm, "call_method", "manual_seed", (node_of(vm, self), number(vm, seed)), example_of(vm, self))
    return self


@models(torch.Generator, "get_state")
def get_state(vm: Machine, self: Object) -> Value:
    return state(vm, "call_method", "get_state", (node_of(vm, self),), example_of(vm, self).get_state())


@models(torch.Generator, "set_state")
def set_state(vm: Machine, self: Object, new: Value) -> Value:
    on_generator(vm, "call_method", "set_state", (node_of(vm, self), tensor(new)), example_of(vm, self))
    return self


@rebuilds(torch.Generator)
def rebuild(emit: Any, entity: Entity) -> None:
    """Take a generator out of the graph."""
    emit.computed(TensorNode(entity.items, None, entity.pytype))


def number(vm: Machine, value: Value) -> Any:
    """Return a seed as an argument of a node: a constant, or a number of the graph."""
    if value.__class__ is Symbol:
        return value.node
    given = vm.known(value, "seed")
    try:
        torch.Generator().manual_seed(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise vm.refused(error) from None
    return int(given)


def tensor(value: Value) -> torch.fx.Node:
    if value.__class__ is not TensorNode:
        raise Break("unsupported argument", what="state", type=value.pytype.__name__)
    return value.node


def state(vm: Machine, op: str, target: Any, args: tuple[Any, ...], real: torch.Tensor) -> Value:
    """Add a node that gives a generator's state, and return its value, a tensor."""
    like = vm.builder.example("call_function", OWN.empty, (tuple(real.shape),), {"dtype": real.dtype})
    return TensorNode(operation(vm, op, target, args, like), like, torch.Tensor)


# -- the generators that torch draws from by itself -------------------------------------------------------------------
@function(torch.manual_seed, torch.random.manual_seed)
def seed_all(vm: Machine, seed: Value) -> Value:
    operation(vm, "call_function", torch.manual_seed, (number(vm, seed),), None)
    return vm.getattr(vm.constant(torch), "default_generator")


def seeding(fn: Callable[..., Any]) -> None:
    """Register a function that takes a seed."""

    def row(vm: Machine, seed: Value) -> Value:
        operation(vm, "call_function", fn, (number(vm, seed),), None)
        return NONE

    function(fn)(row)


@function(torch.get_rng_state)
def get_rng_state(vm: Machine) -> Value:
    return state(vm, "call_function", torch.get_rng_state, (), torch.get_rng_state())


@function(torch.set_rng_state)
def set_rng_state(vm: Machine, new_state: Value) -> Value:
    operation(vm, "call_function", torch.set_rng_state, (tensor(new_state),), None)
    return NONE


seeding(torch.cuda.manual_seed)
seeding(torch.cuda.manual_seed_all)

if torch.cuda.is_available():  # there is a state of which to know the size
    THE_CURRENT = Known("cuda")

    @function(torch.cuda.get_rng_state)
    def get_gpu_state(vm: Machine, device: Value = THE_CURRENT) -> Value:
        where = vm.known(device, "device")
        return state(vm, "call_function", torch.cuda.get_rng_state, (where,), torch.cuda.get_rng_state(where))

    @function(torch.cuda.set_rng_state)
    def set_gpu_state(vm: Machine, new_state: Value, device: Value = THE_CURRENT) -> Value:
        operation(vm, "call_function", torch.cuda.set_rng_state, (tensor(new_state), vm.known(device, "device")), None)
        return NONE
