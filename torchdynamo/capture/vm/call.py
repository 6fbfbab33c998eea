"""Decide what a call becomes: a model, a polyfill, a torch operator, a pure function, inlining, else a break."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture.torch import numpy_arrays, numpy_numbers, overrides, wrappers
from torchdynamo.capture.vm import finalizers, interop, model, process_settings
from torchdynamo.capture.vm.descriptors import describe
from torchdynamo.capture.vm.foreign import unknown_callable, unknown_maker
from torchdynamo.capture.vm.inlining import guard_defaults, inline
from torchdynamo.capture.vm.lift import lift_made
from torchdynamo.capture.vm.lookup import (
    INSTANCE_METHOD,
    TEXTS,
    asks_the_program,
    derives,
    guard_plain_maker,
    guarded_lookup,
    guarded_own,
    guarded_slot,
    is_class,
)
from torchdynamo.capture.vm.model import is_open
from torchdynamo.capture.vm.receiver_checks import refuse_others, refuse_unsafe
from torchdynamo.capture.vm.refused_operands import answered_by_method
from torchdynamo.capture.vm.scalar_subclasses import plain_seen_by, plainly
from torchdynamo.capture.vm.signatures import check
from torchdynamo.capture.vm.wrap import cannot_look, class_attribute, lift, refuse_unseen
from torchdynamo.core import policy
from torchdynamo.core.naming import called
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Lazy, Object, Value
from torchdynamo.graph.opaque_values import is_opaque_value
from torchdynamo.hook.install import Compiled

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def call(vm: Machine, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Execute `fn(*args, **kwargs)`."""
    direct, vm.direct = vm.direct, False
    if fn.__class__ is Known:
        return call_known(vm, fn, args, kwargs, direct)
    if fn.__class__ is Object:
        return call_object(vm, fn, args, kwargs, direct)
    raise Break("unknown call", name=repr(fn))


def call_known(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call a constant. `direct`: the result of the call is that of the instruction."""
    obj = fn.obj
    if vm.has_marks:
        answer = interop.call_marked(vm, fn, args, kwargs)
        if answer is not None:
            return answer
    if vm.watching and policy.is_overridable(obj):
        answer = overrides.handled(vm, obj, args, kwargs)
        if answer is not None:
            return answer
    row = model.FUNCTIONS.get(id(obj))
    if row is not None:
        check(vm, obj, args, kwargs, row)
        vm.direct = direct and row in model.PASSING_ON
        return apply(vm, row, obj, args, kwargs)
    again = model.POLYFILLS.get(id(obj))
    if again is not None:
        check(vm, obj, args, kwargs)
        return inline(vm, Known(again), args, kwargs)
    if numpy_arrays.is_function(obj):
        return numpy_arrays.call(vm, obj, args, kwargs)
    by_kind = BY_KIND.get(type(obj)) or (instantiate if is_class(obj) else call_instance)
    answer = by_kind(vm, fn, args, kwargs, direct)
    return call_unmodelled(vm, fn, args, kwargs) if answer is None else answer


def call_function(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call a function in Python: an operator of the graph, one that a mark or a name decides about, or its own code."""
    obj = fn.obj
    again = model.NAMED.get((obj.__module__, obj.__qualname__))
    if again is not None:
        return inline(vm, Known(again), args, kwargs)
    verdict = interop.verdict(obj)
    if verdict is not None:
        return verdict(vm, fn, args, kwargs)
    if policy.is_graph_function(obj):
        if fn.source is not None:
            guard_defaults(vm, obj, fn.source)
        name: str = obj.__name__
        if torch.Tensor.__dict__.get(name) is not obj:
            return vm.emit("call_function", obj, args, kwargs)
        method = model.MODELS.get((torch._C.TensorBase, name))
        return method(vm, *args, **kwargs) if method else vm.emit("call_method", name, args, kwargs)
    if wrappers.is_operation(obj):
        return wrappers.operate(vm, obj, args, kwargs)
    vm.direct = direct
    return inline(vm, fn, args, kwargs)


def call_method(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call a bound method of a function in Python."""
    owner = lift(vm, fn.obj.__self__)
    vm.direct = direct
    return call(vm, lift(vm, fn.obj.__func__), [owner, *args], kwargs)


def call_builtin(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value | None:
    """Call a function in C: an operator of torch, or a method bound to a type or an object. None: there is no model."""
    obj = fn.obj
    if policy.is_torch_operator(obj):
        return vm.emit("call_function", obj, args, kwargs)
    owner, name = obj.__self__, obj.__name__
    if is_class(owner):
        if name == "__new__" and args and args[0].__class__ is Known:
            refuse_unsafe(vm, obj, args[0].obj)
        slot = model.find_slot(owner, name)
        if slot[0] == "model":
            check(vm, obj, args, kwargs)
            return apply(vm, slot[1], obj, args if name == "__new__" else [Known(owner), *args], kwargs)
    slot = model.find_slot(type(owner), name)
    if slot[0] == "model":  # a method of an object that a module has, which gives it out as a function
        check(vm, obj, args, kwargs)
        return apply(vm, slot[1], obj, [lift(vm, owner), *args], kwargs)
    return None


def call_wrapper(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value | None:
    """Call a slot's method that is bound to an object. None: there is no model."""
    if type(fn.obj.__self__) is types.GetSetDescriptorType:
        return overrides.access(vm, fn.obj, args)
    return call_instance(vm, fn, args, kwargs, direct)


def call_instance(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value | None:
    """Call an object of another class than functions have. None: there is no model."""
    if policy.is_torch_operator(fn.obj):
        return vm.emit("call_function", fn.obj, args, kwargs)
    row = model.MODELS.get((type(fn.obj), "__call__"))
    return None if row is None else row(vm, fn, *args, **kwargs)


def call_unmodelled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call what has no model: by its substitute, or now, if it has no side effects. Raises Break otherwise."""
    obj = fn.obj
    again = interop.substitute(obj)
    if again is not None:
        return inline(vm, Known(again), args, kwargs)
    if policy.is_pure(obj):
        return run_pure(vm, obj, args, kwargs)
    if type(obj) is INSTANCE_METHOD and args and is_opaque_value(args[0].pytype):
        return run_opaque(vm, obj, args, kwargs)
    raise Break("unknown call", name=called(obj))


def apply(vm: Machine, row: model.Model, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a model. Raises Break where it does not take these arguments, which says nothing about what it models."""
    refuse_unseen(*args)
    if kwargs:
        refuse_unseen(*kwargs.values())
    try:
        return row(vm, *args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise Break("unknown call", name=called(fn)) from None
        raise


def call_object(vm: Machine, fn: Object, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call a function that the frame made, a bound method, or an instance of a class with `__call__`."""
    if vm.repeats is not None and vm.entity(fn).source is not None:
        return vm.repeats.call(vm, fn, args, kwargs, direct, call_by_class)
    return call_by_class(vm, fn, args, kwargs, direct)


def call_by_class(vm: Machine, fn: Object, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call an object by the `__call__` of its class."""
    cls = fn.pytype
    found = guarded_lookup(vm, cls, "__call__")
    slot = guarded_slot(vm, cls, "__call__")
    if slot[0] == "model":
        vm.direct = direct and slot[1] in model.PASSING_ON
        return apply(vm, slot[1], cls, [fn, *args], kwargs)
    if slot[0] == "python" and type(slot[1][1]) in (types.FunctionType, Compiled):
        vm.direct = direct
        return call(vm, Known(found, class_attribute(vm, cls, "__call__")), [fn, *args], kwargs)
    if slot[0] == "python" and type(slot[1][1]) is types.MemberDescriptorType:
        return call(vm, vm.getattr(fn, "__call__"), args, kwargs)  # a slot: each instance holds its own callable
    raise unknown_callable(cls)


def call_descriptor(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call an unbound method of a type in C: `list.append`, `str.join`, `torch.Tensor.add`."""
    obj = fn.obj
    owner, name = obj.__objclass__, obj.__name__
    if not args:
        raise vm.error(TypeError, f"unbound method {obj.__qualname__}() needs an argument")
    if vm.watching and policy.is_tensor_method(obj):
        answer = overrides.handled(vm, obj, args, kwargs)
        if answer is not None:
            return answer
    refuse_others(vm, obj, args[0])
    slot = model.find_slot(owner, name)
    if slot[0] == "model":
        check(vm, obj, args, kwargs, slot[1])
        if args[0].__class__ is Lazy and owner is not object:  # of a subclass that may only be passed on
            raise cannot_look(args[0])
        return answered_by_method(vm, obj, apply(vm, slot[1], obj, args, kwargs), args[1:])
    if policy.is_tensor_method(obj):
        return vm.emit("call_method", name, args, kwargs)
    pure = policy.PURE_TYPES
    if owner in pure:
        args = [plain_seen_by(vm, name, args[0]) or args[0], *args[1:]]
    if args[0].__class__ is Known and (type(args[0].obj) in pure or (owner in pure and isinstance(args[0].obj, owner))):
        return run_pure(vm, obj, args, kwargs)
    plain = vm.concrete(args[0]) if args[0].__class__ is Object and owner in policy.PURE_TYPES else None
    if plain is not None:
        return run_pure(vm, obj, args, kwargs)
    raise Break("unsupported method", name=name, type=owner.__name__)


# Functions that ask the objects they are given, and what those contain, for texts
WRITERS = frozenset({"repr", "str", "ascii", "format", "__mod__", *TEXTS})


def run_pure(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Run a function without side effects now, on constants."""
    try:
        real = [vm.concretely(plainly(vm, arg)) for arg in args]
        named = {name: vm.concretely(plainly(vm, arg)) for name, arg in kwargs.items()}
    except Break as unknown:
        if any(numpy_numbers.held(vm, arg) is not None for arg in (*args, *kwargs.values())):
            raise  # it says that a number is asked for, which may be a constant
        raise Break("unknown call", name=called(fn)) from unknown
    asked = TEXTS if getattr(fn, "__name__", "") in WRITERS else model.ASKED_BY_C
    if type(fn) is not types.FunctionType and asks_the_program(vm, asked, *real, *named.values()):
        raise Break("unknown call", name=called(fn))  # the program's method may give something else each time
    try:
        result = process_settings.run(vm, fn, tuple(real), named)
    except Break:
        raise
    except Exception as error:  # the user's call raises: so does the symbolic one
        if type(error) is LookupError:  # a codec or error handler that somebody may register
            raise Break("unknown call", name=called(fn)) from error
        raise vm.refused(error) from None
    return lift_made(vm, result)


def run_opaque(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Make an opaque value, or call a method of one: code of the program's, which is not followed."""
    vm.of_process["what an opaque value has answered"] = None
    return run_pure(vm, fn, args, kwargs)


def instantiate(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Execute `cls(*args, **kwargs)`: `__call__` of the metaclass, `__new__`, then `__init__`."""
    cls = fn.obj
    meta_call = guarded_lookup(vm, type(cls), "__call__")
    if type(meta_call) is types.FunctionType:
        row = model.FUNCTIONS.get(id(meta_call))
        if row is not None:
            return row(vm, Known(cls), *args, **kwargs)
        return call(vm, Known(meta_call, class_attribute(vm, type(cls), "__call__")), [Known(cls), *args], kwargs)
    if type(meta_call) is not types.WrapperDescriptorType:
        return call(vm, describe(vm, Known(cls), type(cls), "__call__", meta_call), args, kwargs)
    return construct(vm, cls, args, kwargs)


def construct(vm: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Execute `type.__call__`."""
    if is_open(cls):
        guarded_own(vm, cls, "__abstractmethods__")
    if cls.__flags__ & ABSTRACT and getattr(cls, "__abstractmethods__", None):
        try:
            object.__new__(cls)
        except TypeError as error:
            raise vm.error(TypeError, *error.args) from None
    if is_opaque_value(cls):
        return run_opaque(vm, cls, args, kwargs)
    if issubclass(cls, torch.Tensor) and wrappers.is_class(cls):
        return wrappers.construct(vm, cls, args, kwargs)
    new = guarded_lookup(vm, cls, "__new__")
    maker = model.find_slot(cls, "__new__")
    if maker[0] == "model":
        check(vm, new, [Known(cls), *args], kwargs, maker[1])
        obj: Value = apply(vm, maker[1], cls, [Known(cls), *args], kwargs)
    elif maker[1][0] is object:
        if args or kwargs:
            guard_plain_maker(vm, cls)
        obj = vm.new(cls)
    else:
        made_by = maker[1][1]
        if type(made_by) is not staticmethod:
            raise unknown_maker(cls)
        source = Source("attr", class_attribute(vm, cls, "__new__"), "__func__")
        obj = call(vm, Known(made_by.__func__, source), [Known(cls), *args], kwargs)
    finalizers.note(vm, obj)
    if (obj.__class__ is Object or vm.watching or derives(cls, type)) and derives(obj.pytype, cls):
        cls = obj.pytype
        found = guarded_lookup(vm, cls, "__init__")
        init = model.find_slot(cls, "__init__")
        if init[0] == "model":
            check(vm, found, [obj, *args], kwargs, init[1])
            apply(vm, init[1], cls, [obj, *args], kwargs)
        elif init[1][0] is not object:
            if type(found) is types.WrapperDescriptorType:  # C's own, of which the model of `__new__` knows
                if maker[0] == "model":
                    return obj
                raise Break("unsupported type", type=cls.__name__)
            if type(found) is types.FunctionType:
                own = Known(found, class_attribute(vm, cls, "__init__"))
                result = call(vm, own, [obj, *args], kwargs)
            else:
                result = call(vm, describe(vm, obj, cls, "__init__", found), args, kwargs)
            if result.pytype is not type(None):
                raise vm.error(TypeError, f"__init__() should return None, not {type_name(result.pytype)!r}")
        elif (args or kwargs) and maker[1][0] is object:
            raise vm.error(TypeError, f"{type_name(cls)}() takes no arguments")
    return obj


ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT

BY_KIND = {
    types.FunctionType: call_function,
    types.MethodType: call_method,
    types.BuiltinFunctionType: call_builtin,
    types.MethodWrapperType: call_wrapper,
    types.MethodDescriptorType: call_descriptor,
    types.WrapperDescriptorType: call_descriptor,
    types.ClassMethodDescriptorType: call_descriptor,
    Compiled: interop.call_compiled,
}
"""How callables of these classes are called, unless a row of `model` says more of the one at hand."""
