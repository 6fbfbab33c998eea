"""inspect: signatures, wrapped functions, attributes looked up without asking the user's code."""

from __future__ import annotations

import inspect
import types
from typing import Any

from torchdynamo.capture.types.items import lookup
from torchdynamo.capture.types.mapping_proxy import OfMapping
from torchdynamo.capture.vm import inlining, namespaces
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import guarded_lookup, is_class
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, is_open, polyfill
from torchdynamo.capture.vm.wrap import class_attribute, lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.value import TRUE, Known, Object, TensorNode, Value

EMPTY = Known(inspect.Parameter.empty)
KINDS = {
    "first": inspect.Parameter.POSITIONAL_ONLY,
    "plain": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "args": inspect.Parameter.VAR_POSITIONAL,
    "named": inspect.Parameter.KEYWORD_ONLY,
    "kwargs": inspect.Parameter.VAR_KEYWORD,
}


@polyfill(inspect.unwrap)
def unwrap(func, *, stop=None):  # type: ignore[no-untyped-def]
    """Follow `__wrapped__` to the end."""
    met = [func]
    while hasattr(func, "__wrapped__") and (stop is None or not stop(func)):
        func = func.__wrapped__
        if any(func is other for other in met):
            raise ValueError(f"wrapper loop when unwrapping {met[0]!r}")
        met.append(func)
    return func


@function(inspect.signature)
def signature(vm: Machine, fn: Value, *, follow_wrapped: Value = TRUE, **kwargs: Value) -> Value:
    """Make the Signature of a plain function or method; of anything else, inline the library's own code."""
    inner = fn
    skip = 0
    if fn.__class__ is Object and fn.pytype is types.MethodType:
        inner, skip = vm.getattr(fn, "__func__"), 1
    if not kwargs and vm.truth(follow_wrapped) and is_plain(vm, inner):
        names = parameters(vm, inner)
        if not skip or (
            names and vm.known(vm.getattr(names[0][1], "_kind"), "kind") in (KINDS["first"], KINDS["plain"])
        ):
            return make_signature(vm, inner, names[skip:])
    return inlining.inline(vm, Known(inspect.signature), [fn], {"follow_wrapped": follow_wrapped, **kwargs})


def is_plain(vm: Machine, fn: Value) -> bool:
    """Return whether a value is a Python function that no attribute declares to stand for another."""
    marks = ("__wrapped__", "__signature__", "_partialmethod", "__partialmethod__", "__text_signature__")
    return fn.pytype is types.FunctionType and all(vm.has_attribute(fn, name) is None for name in marks)


def parameters(vm: Machine, fn: Value) -> list[tuple[str, Object]]:
    """Make the Parameter objects of a function, in order, each with its name."""
    code: types.CodeType = vm.known(vm.getattr(fn, "__code__"), "code")
    count, named = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    kinds = ["first"] * code.co_posonlyargcount + ["plain"] * (count - code.co_posonlyargcount)
    order = list(names[:count])
    extra = count + named
    if code.co_flags & inspect.CO_VARARGS:
        order.append(names[extra])
        kinds.append("args")
        extra += 1
    order += names[count : count + named]
    kinds += ["named"] * named
    if code.co_flags & inspect.CO_VARKEYWORDS:
        order.append(names[extra])
        kinds.append("kwargs")
    defaults = defaults_of(vm, fn, names[:count])
    annotations = vm.as_object(vm.getattr(fn, "__annotations__"))
    return [
        (
            name,
            vm.new(
                inspect.Parameter,
                _name=Known(name),
                _kind=Known(KINDS[kind]),
                _default=defaults.get(name, EMPTY),
                _annotation=lookup(vm, annotations, Known(name)) or EMPTY,
            ),
        )
        for name, kind in zip(order, kinds)
    ]


def defaults_of(vm: Machine, fn: Value, names: tuple[str, ...]) -> dict[str, Value]:
    given, named = vm.getattr(fn, "__defaults__"), vm.getattr(fn, "__kwdefaults__")
    found: dict[str, Value] = {}
    if not (given.__class__ is Known and given.obj is None):
        values = list(vm.iterate(given))
        found.update(zip(names[len(names) - len(values) :], values))
    if named.__class__ is Object:
        found.update({vm.known(key, "name"): value for key, value in vm.dict_items(named)})
    return found


def make_signature(vm: Machine, fn: Value, names: list[tuple[str, Object]]) -> Value:
    annotations = vm.as_object(vm.getattr(fn, "__annotations__"))
    box = vm.call(Known(ORDERED), [], {})
    for name, parameter in names:
        vm.setitem(box, Known(name), parameter)
    proxy = vm.new(types.MappingProxyType, payload=OfMapping(box))
    back = lookup(vm, annotations, Known("return")) or EMPTY
    return vm.new(inspect.Signature, _parameters=proxy, _return_annotation=back)


ORDERED = type(inspect.Signature([])._parameters.copy())  # type: ignore[attr-defined]


# -- getattr_static ---------------------------------------------------------------------------------------------------
@function(inspect.getattr_static)
def getattr_static(vm: Machine, obj: Value, attr: Value, default: Value | None = None) -> Value:
    name: str = vm.known(attr, "name")
    cls = obj.obj if obj.__class__ is Known and is_class(obj.obj) else None
    found = raw_instance_attribute(vm, obj, name) if cls is None else raw_class_attribute(vm, cls, name)
    if found is not None:
        return found
    if default is None:
        raise vm.error(AttributeError, name)
    return default


def raw_class_attribute(vm: Machine, cls: type, name: str) -> Value | None:
    """Return the raw attribute of a class, from its MRO or its metaclass's; None if missing."""
    for start in (cls, type(cls)):
        found = guarded_lookup(vm, start, name)
        if found is not MISSING:
            return raw_value(vm, start, name, found)
    return None


def raw_instance_attribute(vm: Machine, obj: Value, name: str) -> Value | None:
    """Return the raw attribute of an instance. Data descriptors of the class come first, and are not called."""
    found = guarded_lookup(vm, obj.pytype, name)
    data = found is not MISSING and hasattr(type(found), "__get__")
    if data and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")):
        return raw_value(vm, obj.pytype, name, found)
    own = own_attribute(vm, obj, name)
    if own is not None:
        return own
    return None if found is MISSING else raw_value(vm, obj.pytype, name, found)


def own_attribute(vm: Machine, obj: Value, name: str) -> Value | None:
    if obj.__class__ is Object:
        return namespaces.read_instance(vm, vm.entity(obj), name)
    if obj.__class__ is TensorNode:
        return namespaces.read_tensor(vm, obj, name)
    if obj.__class__ is not Known or hasattr(obj.obj, "__dict__"):
        raise Break("unknown call", name="inspect.getattr_static")
    return None


def raw_value(vm: Machine, cls: type, name: str, found: Any) -> Value:
    """Return the raw attribute of a class as a value."""
    if is_open(cls):
        return wrap(vm, found, class_attribute(vm, cls, name))
    return lift(vm, found)
