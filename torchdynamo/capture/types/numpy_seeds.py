"""numpy.random.SeedSequence: known if made of constants; if made of a number of the graph, an object of the graph."""

from __future__ import annotations

from typing import Any

from torchdynamo.capture.speculate import may_raise
from torchdynamo.capture.types.numpy_draws import GraphObject, array, plain, standing
from torchdynamo.capture.types.numpy_random import named_method
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models, rebuilds
from torchdynamo.capture.vm.shadows import Shadow, method
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Symbol, TensorNode, Value
from torchdynamo.graph.numpy_nodes import np

SEEDS = Shadow(reads={"generate_state"})


def new_seeds(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """Model `SeedSequence(entropy, spawn_key=..., pool_size=...)`, of constants or numbers of the graph."""
    entropy = args[0] if args else kwargs.get("entropy", NONE)
    if entropy.__class__ is Known and entropy.obj is None:
        raise Break("builtin with effects", name="numpy.random.SeedSequence")  # by the system
    if any(each.__class__ is Symbol and each is not entropy for each in (*args, *kwargs.values())):
        raise Break("data-dependent value", name="numpy.random.SeedSequence")
    given = [standing(vm, each) for each in args]
    named = {key: standing(vm, each) for key, each in kwargs.items()}
    try:
        made = np.random.SeedSequence(*given, **named)
    except (TypeError, ValueError) as error:
        raise vm.refused(error) from None
    if entropy.__class__ is not Symbol:
        return vm.new(cls.obj, items=made)  # of constants
    rest = [plain(vm, each, "numpy.random.SeedSequence") for each in args[1:]]
    settings = {key: plain(vm, each, "numpy.random.SeedSequence") for key, each in kwargs.items() if key != "entropy"}
    may_raise.be_careful(vm, "numpy.random.SeedSequence")
    vm.ops += 1
    node = vm.builder.on_host(
        "call_function", np.random.SeedSequence, (entropy.node, *rest), settings, made, vm.position()
    )
    return vm.new(cls.obj, payload=GraphObject(node))


def init_seeds(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    return NONE


def generate_state(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Model `SeedSequence.generate_state`, which gives an array of the graph if the seed is a number of the graph."""
    known = vm.entity(self).payload_if(GraphObject)
    if known is None:
        return STATE_OF_CONSTANTS(vm, self, *args, **kwargs)
    given = [plain(vm, each, "generate_state") for each in args]
    named = {key: plain(vm, each, "generate_state") for key, each in kwargs.items()}
    try:
        example = known.node.meta["example_value"].generate_state(*given, **named)
    except (TypeError, ValueError) as error:
        raise vm.refused(error) from None
    vm.ops += 1
    node = vm.builder.on_host("call_method", "generate_state", (known.node, *given), named, example, vm.position())
    return array(vm, node, example)


STATE_OF_CONSTANTS = method(SEEDS, "generate_state")


def rebuild_seeds(emit: Any, entity: Entity) -> None:
    """Take seeds out of the graph."""
    known = entity.payload_if(GraphObject)
    if known is None:
        raise Restart(entity.born - 1)
    emit.computed(TensorNode(known.node, None, entity.pytype))


if np is not None:
    models(np.random.SeedSequence, "__new__")(new_seeds)
    models(np.random.SeedSequence, "__init__")(init_seeds)
    named_method(np.random.SeedSequence, "generate_state", generate_state)
    rebuilds(np.random.SeedSequence)(rebuild_seeds)
