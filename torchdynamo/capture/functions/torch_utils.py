"""torch.utils: hooks and their handles, checkpoints.

A backward comes after the frame, or after a graph break, as `torch.autograd.grad` ends a graph that has such a hook. So
nobody can tell when in the forward it was registered; but for tensors that are written to afterwards, whose history is
another one then. A hook on what the graph computes is on all its uses, those in the graph too: such a graph is run
operator by operator.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
import torch.jit
import torch.profiler
import torch.utils.checkpoint
from torch.utils.hooks import RemovableHandle

from torchdynamo.capture.functions.torch_checkpoint import draws_from_outside, note_run
from torchdynamo.capture.types.identity import NumberOf
from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, Model, function, models, polyfill, rebuilds
from torchdynamo.core.policy import CHECKPOINT
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, TensorNode, Value
from torchdynamo.graph.selective_checkpoint import SelectiveCheckpoint

BASE = torch._C.TensorBase
NO_GRADIENT = "cannot register a hook on a tensor that doesn't require gradient"
NO_LEAF = "post accumulate grad hooks cannot be registered on non-leaf tensors"


class Registration:
    """Describe a hook that the frame registers; the payload of its handle."""

    __slots__ = ("fn", "handle", "method", "removed", "tensor", "version")

    def __init__(self, vm: Machine, tensor: TensorNode, method: str, fn: Value) -> None:
        self.tensor = tensor
        self.method = method
        self.fn = fn
        self.version = tensor.fake._version
        self.removed = False
        self.handle = vm.new(RemovableHandle, payload=self)

    def remove(self, vm: Machine) -> Value:
        """Take the hook off again; a second time does no harm."""
        self.removed = True
        vm.effects.defer(f"remove a hook ({self.method})", lambda emit: None)  # by the registration, which sees it
        return NONE


def registers(method: str, leaves_only: bool) -> Model:
    """Return the model of a method of Tensor that registers a hook and returns its handle."""

    def row(vm: Machine, self: Value, hook: Value) -> Value:
        if self.__class__ is not TensorNode or torch._C._are_functorch_transforms_active():
            raise Break("unsupported method", name=method, type="Tensor")
        vm.refuse_copies_with_gradients()
        if not self.fake.requires_grad:
            raise vm.error(RuntimeError, NO_GRADIENT)
        if leaves_only and not self.fake.is_leaf:
            raise vm.error(RuntimeError, NO_LEAF)
        registration = Registration(vm, self, method, hook)
        vm.hooks.append(registration)

        def emit_registration(emit: Emitter) -> None:
            """Emit code that registers the hook, unless the frame has removed it again."""
            if not registration.removed:
                emit.value(registration.handle)
                emit.op("POP")

        vm.effects.defer(method, emit_registration, in_backward=True)
        return registration.handle

    return row


models(BASE, "register_hook")(registers("register_hook", leaves_only=False))
models(BASE, "register_post_accumulate_grad_hook")(registers("register_post_accumulate_grad_hook", leaves_only=True))


@models(BASE, "retain_grad")
def retain_grad(vm: Machine, self: Value) -> Value:
    """Keep the gradient of what is no leaf, from the next backward on."""
    if self.__class__ is not TensorNode or torch._C._are_functorch_transforms_active():
        raise Break("unsupported method", name="retain_grad", type="Tensor")
    vm.refuse_copies_with_gradients()
    if not self.fake.requires_grad:
        raise vm.error(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False")
    if self.fake.is_leaf:
        return NONE
    version, step = self.fake._version, vm.step

    def emit_retain(emit: Emitter) -> None:
        push_watched(emit, self, version, step)
        emit.op("LOAD_METHOD", "retain_grad")
        emit.op("CALL", (0, ()))
        emit.op("POP")

    vm.effects.defer("retain_grad", emit_retain, in_backward=True)
    return NONE


def push_watched(emit: Any, tensor: TensorNode, version: int, step: int) -> None:
    """Push a tensor whose history autograd is to change. The graph ends at `step` if that is another by now."""
    if tensor.fake._version != version or not tensor.fake.requires_grad:
        raise Restart(step - 1)
    if tensor.source is None and tensor.node.users:
        emit.capture.machine.builder.keep_as_captured()  # compiled, these uses would not lead through this tensor
    emit.value(tensor)


@models(RemovableHandle, "__getattr__")
def attribute(vm: Machine, self: Object, name: str) -> Value:
    """Raise Break: a handle gets its attributes when the hook is registered, after the graph."""
    if vm.entity(self).payload.__class__ is Registration:
        raise Break("unsupported attribute", name=name, type="RemovableHandle")
    raise vm.error(AttributeError, f"'RemovableHandle' object has no attribute {name!r}")


@rebuilds(RemovableHandle)
def register(emit: Any, entity: Entity) -> None:
    """Emit code that registers a hook, after those before it on that tensor; registering makes the handle.

    The handle of a module's hook is materialized like any instance.
    """
    made = entity.payload
    if made.__class__ is not Registration:
        emit.function(object.__new__)
        emit.const(RemovableHandle)
        emit.op("CALL", (1, ()))
        emit.fields(entity.attrs)
        return
    hooks = emit.capture.machine.hooks
    for earlier in hooks[: hooks.index(made)]:
        if earlier.tensor.node is made.tensor.node and not earlier.removed:
            emit.value(earlier.handle)
            emit.op("POP")
    push_watched(emit, made.tensor, made.version, entity.born)
    emit.op("LOAD_METHOD", made.method)
    emit.value(made.fn)
    emit.op("CALL", (1, ()))
    if made.removed:
        emit.op("COPY", 1)
        emit.op("LOAD_METHOD", "remove")
        emit.op("CALL", (0, ()))
        emit.op("POP")


# -- handles ----------------------------------------------------------------------------------------------------------
@polyfill(RemovableHandle.__init__)
def initialize(self, hooks_dict, *, extra_dict=None):  # type: ignore[no-untyped-def]
    """Number a handle, and hold weakly the table of its hook."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = number_handle(self)
    tables = [extra_dict] if isinstance(extra_dict, dict) else extra_dict if isinstance(extra_dict, list) else []
    self.extra_dict_ref = tuple([weakref.ref(table) for table in tables])


def number_handle(handle: RemovableHandle) -> int:
    """Return the number of a new handle."""
    return next_number()


@function(number_handle)
def number(vm: Machine, handle: Value) -> Value:
    return vm.new(int, payload=NumberOf(handle, next_number))


def next_number() -> int:
    """Take the next number, as PyTorch does for each handle."""
    taken = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return taken


@function(RemovableHandle.remove)
def remove(vm: Machine, self: Value) -> Value:
    """Remove a hook. A handle that existed at entry ends the graph.

    Most likely this very call made it, before a graph break: inlined, `remove()` would be compiled for each number.
    """
    if self.__class__ is Object and vm.entity(self).real is not MISSING:
        raise Break("unknown call", name="RemovableHandle.remove")
    registration = vm.entity(self).payload_if(Registration) if self.__class__ is Object else None
    if registration is None:
        return vm.inline(Known(RemovableHandle.remove), [self], {})
    return registration.remove(vm)


# -- checkpoint -------------------------------------------------------------------------------------------------------
USUAL = {"preserve_rng_state": True, "debug": False, "early_stop": True}  # what these are if nobody says
CHECKPOINT_OPTIONS = frozenset("use_reentrant context_fn determinism_check debug early_stop preserve_rng_state".split())


@function(torch.utils.checkpoint.checkpoint)
def checkpoint(vm: Machine, fn: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Inline a function whose results a backward computes again; without grad mode, simply call it.

    The backward draws the random numbers again that torch draws by itself, and other ones from a generator. Those, and
    side effects, which would happen once more with each backward, end the graph.
    """
    given = {name: arg for name, arg in kwargs.items() if name not in CHECKPOINT_OPTIONS}
    contexts = kwargs.pop("context_fn", None)
    if getattr(contexts, "obj", None) is torch.utils.checkpoint.noop_context_fn:
        contexts = None
    if contexts is None and not torch.is_grad_enabled():
        return vm.call(fn, list(args), given)
    name = getattr(getattr(fn, "obj", None), "__qualname__", "a function")
    reentrant = kwargs.get("use_reentrant", NONE)
    usual = {key for key, arg in kwargs.items() if getattr(arg, "obj", None) is USUAL.get(key, CHECKPOINT_OPTIONS)}
    again = "preserve_rng_state" in kwargs.keys() - usual  # others are drawn in the backward
    if (kwargs.keys() & UNUSUAL) - usual or reentrant.__class__ is not Known or reentrant.obj is not False:
        raise Break("activation checkpoint", name=name)
    run_again = CHECKPOINT if contexts is None else SelectiveCheckpoint(context_fn(vm, contexts, name))
    mark, writes = vm.effects.mark(), len(vm.builder.record.writes)
    result = vm.call(fn, list(args), given)
    if contexts is not None and len(vm.builder.record.writes) > writes:  # an error, of what is kept and written to
        raise Break("activation checkpoint", name=name)
    nodes, draws = vm.builder.added(mark.graph), vm.builder.since(mark.graph).draws > 0
    if vm.effects.net(mark, TOLERATED) or draws_from_outside(nodes) or (again and draws):
        raise Break("activation checkpoint", name=name)
    if not torch._C._are_functorch_transforms_active():
        note_run(vm, [fn, *args, *given.values()], nodes)
        vm.builder.enclose(mark.graph, run_again, {"use_reentrant": False, "preserve_rng_state": draws})
    return result


UNUSUAL = frozenset({"debug"})


def context_fn(vm: Machine, value: Value, name: str) -> Any:
    """Return the program's own function that makes the contexts of a checkpoint, guarded; or an equal partial of it.

    name: the function that is checkpointed. Raises Break for a function that the frame has made.
    """
    if value.__class__ is Known:
        return vm.concretely(value)
    if value.__class__ is not Object:
        raise Break("activation checkpoint", name=name)
    entity = vm.entity(value)
    if entity.real is not MISSING and entity.source is not None and not entity.changed:
        vm.guard(entity.source, "ID_MATCH", entity.real)
        return entity.real
    if entity.pytype is list:  # of operators whose results are kept
        return [context_fn(vm, each, name) for each in vm.iterate(value)]
    if entity.pytype is functools.partial and not vm.dict_items(vm.getattr(value, "keywords")):
        fn = context_fn(vm, vm.getattr(value, "func"), name)
        return functools.partial(fn, *(context_fn(vm, each, name) for each in vm.iterate(vm.getattr(value, "args"))))
    raise Break("activation checkpoint", name=name)


# The same random numbers are drawn again; an assumption is checked once, by the graph.
TOLERATED = frozenset({EffectKind.RANDOM, EffectKind.ASSUMPTION})
