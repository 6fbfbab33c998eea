"""`torch.autograd.Function`: where nothing is to be differentiated, `apply` is `forward` without grad mode."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx, _SingleLevelFunction

from torchdynamo.capture.heap import Entity
from torchdynamo.capture.model import Emitter, function, rebuilds
from torchdynamo.capture.signals import Break, Restart
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import Graphed, Known, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

SET_GRAD = Known(torch._C._set_grad_enabled)


class Context(FunctionCtx):
    """What stands for `ctx`: no backward will ask for what is put there."""


@rebuilds(Context)
def rebuild_context(emit: Emitter, entity: Entity) -> None:
    """A context that outlives the call would have to be the real one."""
    raise Restart(entity.born - 1)


@function(torch.autograd.Function.apply.__func__)  # type: ignore[attr-defined]
def apply(vm: Machine, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """The forward of a custom function."""
    name = vm.known(cls, "class").__qualname__
    if kwargs or torch._C._are_functorch_transforms_active():
        raise Break("unknown call", name=f"{name}.apply")
    if torch.is_grad_enabled() and any(wants_grad(arg) for arg in args):
        raise Break("autograd function", name=name)
    grad_mode = torch.is_grad_enabled()
    if grad_mode:
        vm.call(SET_GRAD, [Known(False)], {})
    try:
        return alias_inputs(vm, args, *forward(vm, cls, list(args)))
    finally:
        if grad_mode:
            vm.call(SET_GRAD, [Known(True)], {})


def wants_grad(value: Value) -> bool:
    return value.__class__ is Graphed and value.fake.requires_grad


def forward(vm: Machine, cls: Value, args: list[Value]) -> tuple[Value, Object]:
    """The result and the context, in either of the two styles a function can be written in."""
    context = vm.new(Context)
    setup = vm.getattr(cls, "setup_context")
    separate = vm.known(setup, "setup_context") is not _SingleLevelFunction.setup_context
    run = vm.getattr(cls, "forward")
    if separate:
        args = with_defaults(vm, run, args)
    needs = vm.make_tuple([boolean(wants_grad(arg)) for arg in args])
    vm.entity(context).attrs["needs_input_grad"] = needs
    if not separate:
        return vm.call(run, [context, *args], {}), context
    result = vm.call(run, args, {})
    vm.call(setup, [context, vm.make_tuple(args), result], {})
    return result, context


def with_defaults(vm: Machine, run: Value, args: list[Value]) -> list[Value]:
    """A separate `setup_context` sees the defaults of `forward` among its inputs."""
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
    return args


def alias_inputs(vm: Machine, args: tuple[Value, ...], result: Value, context: Object) -> Value:
    """An input that is given back unchanged becomes a view of itself, unless it is marked dirty."""
    dirty = vm.entity(context).attrs.get("dirty_tensors")
    given = {id(arg.fake) for arg in args if arg.__class__ is Graphed}
    given -= {id(item.fake) for item in vm.iterate(dirty) if item.__class__ is Graphed} if dirty else set()

    def fresh(value: Value) -> Value:
        if value.__class__ is Graphed and id(value.fake) in given:
            return vm.emit("call_method", "view_as", [value, value], {})
        return value

    if result.__class__ is Object and result.pytype is tuple:
        return vm.make_tuple([fresh(item) for item in vm.iterate(result)])
    return fresh(result)


def unfollowed(name: str) -> Any:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        raise Break("unknown call", name=name)

    return row


function(torch.autograd.backward)(unfollowed("torch.autograd.backward"))
