"""torch.autograd: `Function.apply`, inference mode, and what ends the graph."""

from __future__ import annotations

import functools
import inspect

import torch
import torch.jit
import torch.profiler
import torch.utils.checkpoint
from torch.autograd.function import _SingleLevelFunction
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from torchdynamo.capture.functions.torch_autograd_backward import give_backward
from torchdynamo.capture.functions.torch_autograd_inliner import BackwardContext, Call
from torchdynamo.capture.functions.torch_autograd_layers import call_in_layers
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, ends_graph, function, models, rebuilds
from torchdynamo.core.call_sites import Passed
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, TensorNode, Value, boolean
from torchdynamo.graph.torch_compat import APPLY_IN_PYTHON

FUNCTION = torch._C._FunctionBase
SET_GRAD = Known(torch._C._set_grad_enabled)


@function(*APPLY_IN_PYTHON)
@models(torch.autograd.Function, "apply")
def apply(vm: Machine, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Inline the forward of a custom autograd function without grad mode, and give its results their own backward."""
    name = vm.known(cls, "class").__qualname__
    if kwargs:
        raise Break("unknown call", name=f"{name}.apply")
    if vm.grad_mode_unknown:
        raise Break("autograd function", name=name)
    if torch._C._are_functorch_transforms_active() and cls.__class__ is Known:
        return call_in_layers(vm, cls, list(args))
    grad_mode = torch.is_grad_enabled()
    differentiated = grad_mode and any(wants_grad(arg) for arg in args)
    if grad_mode:
        vm.call(SET_GRAD, [Known(False)], {})
    try:
        result, context = forward(vm, cls, given := list(args))
        if not differentiated:
            return alias_inputs(vm, args, result, context)
    finally:
        if grad_mode:
            vm.call(SET_GRAD, [Known(True)], {})
    several = result.__class__ is Object and issubclass(result.pytype, tuple)
    results = list(vm.iterate(result)) if several else [result]
    items = give_backward(vm, Call(name, cls, given, results, context))
    return vm.make_tuple(items) if several else items[0]


@models(FUNCTION, "__new__")
def new_function(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """Make an instance of a custom function, of which old programs call `apply`. Its `__init__` warns of that."""
    return vm.new(cls.obj)


@rebuilds(FUNCTION)
def rebuild_function(emit: Emitter, entity: Entity) -> None:
    """Restart the capture before the call: an instance is a node of autograd's, which only its class makes."""
    raise Restart(entity.born - 1)


def wants_grad(value: Value) -> bool:
    return value.__class__ is TensorNode and value.fake.requires_grad


def forward(vm: Machine, cls: Value, args: list[Value]) -> tuple[Value, Object]:
    """Inline `forward`, and `setup_context` where that is separate. Returns the result and the context."""
    context = vm.new(BackwardContext)
    setup = vm.getattr(cls, "setup_context")
    separate = vm.known(setup, "setup_context") is not _SingleLevelFunction.setup_context
    run = vm.getattr(cls, "forward")
    if separate:
        append_defaults(vm, run, args)
    needs = vm.make_tuple([boolean(wants_grad(arg)) for arg in args])
    vm.effects.write(vm.entity(context), "needs_input_grad", needs)
    given = args if separate else [context, *args]
    result = vm.call_through(passed_to_forward(), run, given, {})
    if not separate:
        return result, context
    vm.call(setup, [context, vm.make_tuple(args), result], {})
    return result, context


@functools.cache
def passed_to_forward() -> tuple[Passed, ...]:
    """Return PyTorch's functions between a call of `apply` and `forward`, for tracebacks."""
    return tuple(Passed.calling(fn, "apply") for fn in APPLY_IN_PYTHON)


def append_defaults(vm: Machine, run: Value, args: list[Value]) -> None:
    """Append the defaults of `forward` to its arguments: a separate `setup_context` gets them among its inputs."""
    if run.__class__ is not Known:
        raise Break("unknown call", name="a forward made in the frame")
    fn = run.obj
    parameters = list(inspect.signature(fn).parameters.values())[len(args) :]
    count = sum(each.default is not each.empty for each in parameters)
    defaults = fn.__defaults__ or ()
    source = run.source
    if count and (source is None or count > len(defaults)):
        raise Break("unknown call", name=f"{fn.__qualname__} with defaults")
    for index in range(len(defaults) - count, len(defaults)):
        args.append(vm.wrap(defaults[index], Source("item", Source("attr", source, "__defaults__"), index)))


def alias_inputs(vm: Machine, args: tuple[Value, ...], result: Value, context: Object) -> Value:
    """Replace inputs among the results by views of themselves, unless they are marked dirty."""
    dirty = vm.entity(context).attrs.get("dirty_tensors")
    given = {id(arg.fake) for arg in args if arg.__class__ is TensorNode}
    given -= {id(item.fake) for item in vm.iterate(dirty) if item.__class__ is TensorNode} if dirty else set()

    def fresh(value: Value) -> Value:
        if value.__class__ is TensorNode and id(value.fake) in given:
            return vm.emit("call_method", "view_as", [value, value], {})
        return value

    if result.__class__ is Object and result.pytype is tuple:
        return vm.make_tuple([fresh(item) for item in vm.iterate(result)])
    return fresh(result)


function(torch.autograd.backward)(ends_graph("unknown call", name="torch.autograd.backward"))


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
    """Restart the capture before the mode is entered: it cannot be materialized otherwise."""
    raise Restart(entity.born - 1)


@function(RAII.__dict__["__enter__"].__func__)
def enter_inference_mode(vm: Machine, self: Object) -> Value:
    """Enter inference mode, for real and as a node. A graph break inside goes back to before it."""
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
