"""nn.Module: parameters, buffers and submodules are found in its dicts; calling one without hooks is its forward."""

from __future__ import annotations

import collections
import functools

import torch
import torch.nn.modules.module as module_file

from torchdynamo._native import type_name
from torchdynamo.capture.types import mapping
from torchdynamo.capture.types.items import lookup
from torchdynamo.capture.vm import attributes
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models, passes_on
from torchdynamo.capture.vm.wrap import class_attribute
from torchdynamo.core.call_sites import Passed
from torchdynamo.core.source import Pinned, Source, instance_attr
from torchdynamo.core.value import Known, Object, Value

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)
GLOBALS = Source("dict", Source("module", None, module_file.__name__))


@models(torch.nn.Module, "__getattr__")
def module_getattr(vm: Machine, self: Object, name: str) -> Value:
    """Return an attribute that neither the class nor the instance has: a parameter, a buffer or a submodule."""
    for space in ("_parameters", "_buffers", "_modules"):
        box = attributes.generic_getattr(vm, self, space)
        if box is None:
            continue
        found = item(vm, box, name)
        if found is not None:
            return found
    raise vm.error(AttributeError, f"{type_name(self.pytype)!r} object has no attribute {name!r}")


@models(torch.nn.Module, "__call__")
@passes_on
def module_call(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Call `forward`, unless a hook or another callable is in place: then PyTorch's own Python decides."""
    direct, vm.direct = vm.direct, False
    other = attributes.generic_getattr(vm, self, "_compiled_call_impl")
    if other is not None and not (other.__class__ is Known and other.obj is None):
        return vm.call(other, list(args), kwargs)
    inner = vm.method(self, "_call_impl")
    if inner is None:
        return vm.call(vm.getattr(self, "_call_impl"), list(args), kwargs)
    given: list[Value] = [self, *args]
    way = way_to_forward()
    if goes_to_forward(vm, inner):
        if has_hooks(vm, self):
            way = way[:1]
            let_numbers_differ(vm, self)
        else:
            forward = vm.method(self, "forward")
            inner, given = (forward, given) if forward is not None else (vm.getattr(self, "forward"), list(args))
    else:
        way = ()
    vm.direct = direct
    return vm.call_through(way, inner, given, kwargs)


@functools.cache
def way_to_forward() -> tuple[Passed, ...]:
    """Return PyTorch's functions between a call of a module and its `forward`."""
    (call, _), (call_impl, _) = CALLS["__call__"], CALLS["_call_impl"]
    return Passed.calling(call, "_call_impl"), Passed.calling(call_impl, "forward_call")


CALLS = {name: (fn, fn.__code__) for name, fn in vars(torch.nn.Module).items() if name in ("__call__", "_call_impl")}


def goes_to_forward(vm: Machine, inner: Value) -> bool:
    """Return whether PyTorch's own functions lead to `forward`, and are what they were."""
    for name, (function, code) in CALLS.items():
        if function.__code__ is not code:
            return False
        where = class_attribute(vm, torch.nn.Module, name)
        if vars(torch.nn.Module).get(name) is not function:
            where = Source("pinned", None, Pinned(function))  # a wrapper of somebody's is there, and calls it
        vm.guard(where, "FUNCTION_MATCH", function)
    return inner.__class__ is Known and inner.obj is CALLS["_call_impl"][0]


def has_hooks(vm: Machine, self: Object) -> bool:
    for name in HOOKS:
        box = attributes.generic_getattr(vm, self, name)
        if box is None or not is_empty(vm, box):  # without it, PyTorch's own call raises
            return True
    if vm.hookless and not any(entity.touched for entity in vm.hookless):
        return False  # nor were there any when this was asked before
    boxes = []
    for name in GLOBAL_HOOKS:
        box = vm.wrap(getattr(module_file, name), instance_attr(GLOBALS.base, name))  # type: ignore[arg-type]
        if not is_empty(vm, box):
            return True
        boxes.append(box)
    vm.hookless = [vm.entity(box) for box in boxes if box.__class__ is Object]
    return False


def let_numbers_differ(vm: Machine, self: Object) -> None:
    """Leave open under which numbers a module's hooks are registered: each module has others.

    PyTorch asks only which hooks get keywords, except where some are called on errors, too.
    """
    always = attributes.generic_getattr(vm, self, "_forward_hooks_always_called")
    if always is not None and not is_empty(vm, always):
        return
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        box = attributes.generic_getattr(vm, self, name)
        source = vm.entity(box).source if isinstance(box, Object) and box.pytype in PLAIN_DICTS else None
        if source is not None:
            vm.numbered_hooks.add(source)


def calls_hooks_on_errors(vm: Machine) -> bool:
    """Return whether the innermost frame is a call of a module that has forward hooks with `always_call=True`: an error
    of `forward` has to come by them, which PyTorch leaves out where it is told that somebody compiles.
    """
    frame = vm.frames[-1] if vm.frames else None
    if frame is None or frame.raw is not CALLS["_call_impl"][1]:
        return False
    module = vm.cell_get(frame.cells["self"]) if "self" in frame.cells else frame.locals["self"]
    everybodys = vm.wrap(
        module_file._global_forward_hooks_always_called,
        instance_attr(GLOBALS.base, "_global_forward_hooks_always_called"),  # type: ignore[arg-type]
    )
    own = attributes.generic_getattr(vm, module, "_forward_hooks_always_called")  # type: ignore[arg-type]
    return not is_empty(vm, everybodys) or (own is not None and not is_empty(vm, own))


PLAIN_DICTS = (dict, collections.OrderedDict)


def item(vm: Machine, box: Value, name: str) -> Value | None:
    """Return `box.get(name)`; None if it is missing."""
    if box.__class__ is Object and box.pytype in PLAIN_DICTS:
        return lookup(vm, box, Known(name))
    return vm.getitem(box, Known(name)) if vm.contains(box, Known(name)) else None


def is_empty(vm: Machine, box: Value) -> bool:
    """Return `not box`."""
    if box.__class__ is Object and box.pytype in PLAIN_DICTS:
        return not vm.known(mapping.length(vm, box), "length")
    return not vm.truth(box)
