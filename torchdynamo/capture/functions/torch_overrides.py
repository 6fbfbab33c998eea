"""The stack of modes, the switches that leave `__torch_function__` out, and becoming a subclass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.overrides

from torchdynamo.capture.functions.builtins_classes import instance_of, subclass_of
from torchdynamo.capture.torch import overrides
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import FALSE, NO_ITEMS, NONE, Known, Object, TensorNode, Value, boolean

C = torch._C


@function(C._push_on_torch_function_stack)
def push(vm: Machine, mode: Value) -> Value:
    """Push a mode. One that a graph break leaves on the stack is pushed for real after the graph."""
    vm.modes.append(mode)
    vm.watching = vm.watching_modes = True
    return NONE


@function(C._pop_torch_function_stack)
def pop(vm: Machine) -> Value:
    if not vm.modes:  # it was open when the frame began
        raise Break("unknown context manager", type="TorchFunctionMode")
    return vm.modes.pop()


AT_ENTRY = Source("pinned", None, Pinned(C._get_function_stack_at))


@function(C._get_function_stack_at)
def stack_at(vm: Machine, index: Value) -> Value:
    """Return a mode by its place on the stack; those that were on when the frame began lie below its own."""
    at, below, opened = vm.known(index, "index"), C._len_torch_function_stack(), opened_modes(vm)
    if not 0 <= at < below + len(opened):
        raise Break("unknown context manager", type="TorchFunctionMode")
    if at >= below:
        return opened[at - below]
    return vm.wrap(C._get_function_stack_at(at), Source("call", AT_ENTRY, (at,)))


def opened_modes(vm: Machine) -> list[Value]:
    """Return the modes that the frame has put on the stack. Ends the graph where devices are on it, which are modes."""
    if vm.devices:
        raise Break("unknown context manager", type="torch.device")
    return vm.modes


@function(C._len_torch_function_stack)
def stack_length(vm: Machine) -> Value:
    return Known(C._len_torch_function_stack() + len(opened_modes(vm)))


@function(C._is_torch_function_mode_enabled)
def mode_enabled(vm: Machine) -> Value:
    return boolean(C._is_torch_function_mode_enabled() or bool((vm.modes or vm.devices) and not vm.modes_off))


@function(C._is_torch_function_enabled)
def subclasses_are_asked(vm: Machine) -> Value:
    return boolean(C._is_torch_function_enabled() and not vm.subclasses_off)


@function(C._is_torch_function_all_disabled)
def nobody_is_asked(vm: Machine) -> Value:
    return boolean(C._is_torch_function_all_disabled() or bool(vm.modes_off))


# -- leaving it out ---------------------------------------------------------------------------------------------------
def model_block(cls: Any, modes: bool) -> None:
    """Model a block in which subclasses, and with `modes` also modes, are not asked."""

    def new(vm: Machine, made: Known) -> Value:
        return vm.new(made.obj)

    def step(by: int) -> Callable[..., Value]:
        def row(vm: Machine, self: Object, *error: Value) -> Value:
            if vm.entity(self).source is not None:
                raise Break("unknown context manager", type=cls.__name__)
            vm.subclasses_off += by
            vm.modes_off += by * modes
            return NONE if by > 0 else FALSE

        return row

    @rebuilds(cls)
    def rebuild(emit: Emitter, entity: Entity) -> None:
        """Restart the capture before the block: a graph break inside would have to enter it again."""
        raise Restart(entity.born - 1)

    models(cls, "__new__")(new)
    models(cls, "__enter__")(step(1))
    models(cls, "__exit__")(step(-1))


model_block(C.DisableTorchFunctionSubclass, False)
model_block(C.DisableTorchFunction, True)
NOWRAP = frozenset(torch.overrides.get_default_nowrap_functions())


@function(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
def inherited_torch_function(
    vm: Machine, cls: Known, func: Known, types: Value, args: Value = NO_ITEMS, kwargs: Value = NONE
) -> Value:
    """Run what subclasses inherit, `Tensor.__torch_function__`: torch's own result, as an instance of the subclass."""
    if not all(subclass_of(vm, cls.obj, vm.known(each, "class")) for each in vm.iterate(types)):
        return Known(NotImplemented)
    named = {} if kwargs is NONE else {vm.known(key, "name"): value for key, value in vm.dict_items(kwargs)}
    vm.subclasses_off += 1
    try:
        result = vm.call(func, list(vm.iterate(args)), named)
    finally:
        vm.subclasses_off -= 1
    return result if func.obj in NOWRAP else as_subclass_of(vm, result, cls.obj)


def as_subclass_of(vm: Machine, value: Value, cls: type) -> Value:
    """Return a result as an instance of a subclass; of several results, each."""
    if cls is torch.Tensor:
        return value
    if isinstance(value, TensorNode) and not instance_of(vm, value, cls):
        return overrides.of_class(vm, value, cls)
    if isinstance(value, Object) and issubclass(value.pytype, (list, tuple)):
        items = vm.make_tuple([as_subclass_of(vm, item, cls) for item in vm.iterate(value)])
        return vm.call(Known(value.pytype), [items], {})
    return value


def asked_by_torch(vm: Machine) -> bool:
    """Return whether a function of torch's asks: it would hand its call to a device, which has it done all the same."""
    return str(vm.frames[-1].globals.real.get("__name__")).split(".")[0] == "torch"


def model_question(several: bool) -> Callable[..., Value]:
    """Model torch's question whether one of its arguments overrides; with `several`, one of the items of the first."""

    def row(vm: Machine, *args: Value) -> Value:
        values = list(vm.iterate(args[0])) if several else args
        if not vm.watching:
            vm.watching = any(overrides.is_other(vm, each) for each in values)
        found = vm.watching and any(overrides.overriding(vm, each) for each in values)
        opened = vm.modes or (vm.devices and not asked_by_torch(vm))
        return boolean(found or (bool(opened) and not vm.modes_off))

    return row


function(C._has_torch_function)(model_question(True))
function(C._has_torch_function_unary, C._has_torch_function_variadic)(model_question(False))


# -- classes ----------------------------------------------------------------------------------------------------------
@models(C.TensorBase, "as_subclass")
def as_subclass(vm: Machine, self: TensorNode, cls: Value) -> Value:
    made = vm.known(cls, "class")
    if not issubclass(made, torch.Tensor) or issubclass(made, torch.nn.Parameter):
        raise Break("unsupported type", type=made.__name__)
    return overrides.of_class(vm, self, made)


@models(C.TensorBase, "__new__")
def new_instance(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """Make an instance of a subclass of a tensor, as `as_subclass` does, if the class's `__init__` is no other."""
    given = args[0] if len(args) == 1 and not kwargs else None
    own = guarded_lookup(vm, cls.obj, "__init__") is not object.__dict__["__init__"]
    if not isinstance(given, TensorNode) or given.pytype is not torch.Tensor or own:
        raise Break("unsupported type", type=cls.obj.__name__)
    return as_subclass(vm, given, cls)
