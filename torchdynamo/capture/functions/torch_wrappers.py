"""What torch wraps functions in: TorchScript, checkpointing, profiler labels, inference mode."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
import torch.jit
import torch.profiler
import torch.utils.checkpoint
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds
from torchdynamo.core.policy import CHECKPOINT
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import instance_attr
from torchdynamo.core.value import FALSE, NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

ORIGINAL = "_torchdynamo_inline"  # where torch.jit leaves the Python function it compiled


@models(torch.jit.ScriptFunction, "__call__")
def call_scripted(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """A scripted function is its Python original; a traced one is not: it has lost its branches."""
    entity = vm.entity(self)
    own = entity.real.__dict__
    original = own.get(ORIGINAL)
    if type(original) is not types.FunctionType or own.get("__name__") != "ScriptFunction":
        raise Break("unknown call", name="a traced function")
    assert entity.source is not None
    return vm.call(vm.wrap(original, instance_attr(entity.source, ORIGINAL)), list(args), dict(kwargs))


USUAL = {"preserve_rng_state": True, "debug": False, "early_stop": True}  # what these are if nobody says
CHECKPOINT_OPTIONS = frozenset("use_reentrant context_fn determinism_check debug early_stop preserve_rng_state".split())


@function(torch.utils.checkpoint.checkpoint)
def checkpoint(vm: Machine, fn: Value, /, *args: Value, **kwargs: Value) -> Value:
    """A function whose results a backward makes again; without grad mode, a call.

    Random numbers are drawn again, the same ones. What acts on the program would act once more with each backward,
    which a graph does not do.
    """
    given = {name: arg for name, arg in kwargs.items() if name not in CHECKPOINT_OPTIONS}
    if "context_fn" not in kwargs and not torch.is_grad_enabled():
        return vm.call(fn, list(args), given)
    name = getattr(getattr(fn, "obj", None), "__qualname__", "a function")
    reentrant = kwargs.get("use_reentrant", NONE)
    usual = {key for key, arg in kwargs.items() if getattr(arg, "obj", None) is USUAL.get(key, CHECKPOINT_OPTIONS)}
    if (kwargs.keys() & UNUSUAL) - usual or reentrant.__class__ is not Known or reentrant.obj is not False:
        raise Break("activation checkpoint", name=name)
    mark = vm.effects.mark()
    result = vm.call(fn, list(args), given)
    if vm.effects.net(mark, TOLERATED):
        raise Break("activation checkpoint", name=name)
    if not torch._C._are_functorch_transforms_active():
        draws = vm.builder.since(mark.graph).draws > 0
        vm.builder.enclose(mark.graph, CHECKPOINT, {"use_reentrant": False, "preserve_rng_state": draws})
    return result


UNUSUAL = frozenset({"context_fn", "preserve_rng_state", "debug"})
# The same random numbers are drawn again; an assumption is checked once, by the graph.
TOLERATED = frozenset({EffectKind.RANDOM, EffectKind.ASSUMPTION})


def label(cls: type) -> None:
    """A profiler's label around operators: the profiler sees the graph instead."""

    def nothing(vm: Machine, self: Value, exc_type: Value, exc_value: Value, traceback: Value) -> Value:
        return FALSE

    def enter(vm: Machine, self: Value) -> Value:
        return self

    function(cls.__dict__["__enter__"])(enter)
    function(cls.__dict__["__exit__"])(nothing)


label(torch.autograd.profiler.record_function)


# -- inference mode ---------------------------------------------------------------------------------------------------
RAII = torch._C._InferenceMode


@models(RAII, "__new__")
def new_inference_mode(vm: Machine, cls: Known, mode: Value) -> Value:
    return vm.new(cls.obj, payload=vm.known(mode, "mode"))


@models(RAII, "__init__")
def init_inference_mode(vm: Machine, self: Value, mode: Value) -> Value:
    return NONE


@rebuilds(RAII)
def rebuild_inference_mode(emit: Emitter, entity: Entity) -> None:
    """There is one way to have it: to enter the mode."""
    raise Restart(entity.born - 1)


@function(RAII.__dict__["__enter__"].__func__)
def enter_inference_mode(vm: Machine, self: Object) -> Value:
    """The graph holds the mode as a node; a break inside goes back to before it, for it cannot be made again."""
    entity = vm.entity(self)
    if entity.real is not MISSING:
        raise Break("unknown context manager", type="torch.inference_mode")
    node, guard = vm.state_node(_enter_inference_mode, (entity.payload,))
    entity.items = node, guard
    vm.effects.open_layer(id(guard), lambda: _exit_inference_mode(guard))
    return NONE


@function(RAII.__dict__["__exit__"].__func__)
def exit_inference_mode(vm: Machine, self: Object, *error: Value) -> Value:
    if vm.entity(self).items is None:  # it was entered before the frame began
        raise Break("unknown context manager", type="torch.inference_mode")
    node, guard = vm.entity(self).items
    vm.effects.close_layer(id(guard))
    vm.state_node(_exit_inference_mode, (node,))
    return NONE


def unfollowed(name: str) -> Any:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        raise Break("unknown call", name=name)

    return row


function(torch.compile)(unfollowed("torch.compile"))
