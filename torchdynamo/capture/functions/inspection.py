"""What libraries ask of functions and classes: signatures, subclasses, wrapped functions."""

from __future__ import annotations

import enum
import inspect
import types
from typing import TYPE_CHECKING

from torchdynamo.capture.types.items import lookup
from torchdynamo.capture.types.mapping_proxy import OfMapping
from torchdynamo.capture.vm import call as calls
from torchdynamo.capture.vm.enums import rest_on_members
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.model import function, models, polyfill
from torchdynamo.capture.vm.wrap import lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import TRUE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

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
    """That of a plain function or method is put together here; all else goes the library's own way."""
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
    return calls.inline(vm, Known(inspect.signature), [fn], {"follow_wrapped": follow_wrapped, **kwargs})


def is_plain(vm: Machine, fn: Value) -> bool:
    """A function that stands for itself."""
    marks = ("__wrapped__", "__signature__", "_partialmethod", "__partialmethod__", "__text_signature__")
    return fn.pytype is types.FunctionType and all(vm.has_attribute(fn, name) is None for name in marks)


def parameters(vm: Machine, fn: Value) -> list[tuple[str, Object]]:
    """The parameters in order, each made as the library makes it."""
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


@models(type, "__subclasses__")
def subclasses(vm: Machine, cls: Value) -> Value:
    """Classes that exist now; a new one is a new fact."""
    real: type = vm.known(cls, "class")
    found: list[type] = type.__subclasses__(real)
    asked = Source("call", Source("pinned", None, Pinned(real.__subclasses__)), ())
    vm.guard(asked, "LENGTH", len(found))
    return vm.new(list, [wrap(vm, one, Source("item", asked, at)) for at, one in enumerate(found)])


@models(type, "__call__")
def type_call(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """What a metaclass's `__call__` passes on to."""
    return calls.construct(vm, cls.obj, list(args), dict(kwargs))


@models(type, "mro")
def mro(vm: Machine, cls: Value) -> Value:
    """What a metaclass's own `mro` asks while the class is being made is Python's business."""
    order = vm.known(cls, "class").__mro__
    if order is None or type(cls.pytype.__dict__.get("mro")) is types.FunctionType:
        raise Break("unsupported method", name="mro", type="type")
    return lift(vm, list(order))


@function(enum.EnumMeta.__call__)
def enum_call(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """Looking up a member by its value; where there is none, a class may name one."""
    if len(args) != 1 or kwargs:
        raise Break("unknown call", name=cls.obj.__name__)
    if class_lookup(cls.obj, "_missing_") is enum.Enum.__dict__["_missing_"]:
        rest_on_members(vm, cls.obj)
        return vm.run_pure(cls.obj, list(args), {})
    value = vm.concretely(args[0])
    own = type(class_lookup(cls.obj, "_missing_")) is classmethod and not issubclass(cls.obj, enum.Flag)
    if not own or not is_scalar(value) or type(vm.getattr(cls, "_missing_")) is not Object:
        raise Break("unknown call", name=cls.obj.__name__)
    rest_on_members(vm, cls.obj)
    if value in cls.obj._value2member_map_:
        return vm.run_pure(cls.obj, list(args), {})
    named: Value = vm.call_method(cls, "_missing_", args[0])
    if named.__class__ is not Known or not isinstance(named.obj, cls.obj):
        raise Break("unknown call", name=cls.obj.__name__)
    return named


def is_scalar(value: object) -> bool:
    """What is looked for by its hash, and runs nothing of the user's."""
    return type(value) in (bool, int, float, str, bytes, type(None))
