"""Execute the code of the functions that a frame calls, as part of its capture."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING

from torchdynamo.capture.frame import Frame, FunctionCall, FunctionParts
from torchdynamo.capture.vm import dict_aliases, finalizers
from torchdynamo.capture.vm.binding import bind
from torchdynamo.capture.vm.wrap import lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

MAX_DEPTH = 200


def inline(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Execute a Python function's own code symbolically, in the same graph."""
    obj, source = fn.obj, fn.source
    code = obj.__code__
    if source is not None:
        vm.guard(source, "FUNCTION_MATCH", obj)
    closure: dict[str, Value] = {}
    if code.co_freevars:
        for index, name in enumerate(code.co_freevars):
            cell = obj.__closure__[index]
            if source is None:
                closure[name] = vm.wrap_cell(cell, None)
            else:
                closure[name] = vm.wrap_cell(cell, Source("item", Source("attr", source, "__closure__"), index))

    def default(index: int) -> Value:
        real = obj.__defaults__[index]
        if source is None:
            return lift(vm, real)
        vm.guard(Source("attr", source, "__defaults__"), "LENGTH", len(obj.__defaults__))  # they count from the end
        return wrap(vm, real, Source("item", Source("attr", source, "__defaults__"), index))

    def kwdefault(name: str) -> Value:
        real = obj.__kwdefaults__[name]
        if source is None:
            return lift(vm, real)
        dict_aliases.note_lookup(vm, obj.__kwdefaults__, Source("attr", source, "__kwdefaults__"))
        return wrap(vm, real, Source("key", Source("attr", source, "__kwdefaults__"), name))

    def qualname() -> str:
        """Return the function's qualified name for a TypeError, and guard its defaults, which lead to it."""
        if source is not None:
            guard_signature(vm, obj, source)
            vm.guard(Source("attr", source, "__qualname__"), "EQUALS_MATCH", obj.__qualname__)
        return str(obj.__qualname__)

    parts = FunctionParts(
        code,
        vm.globals_of(obj, source),
        qualname,
        len(obj.__defaults__ or ()),
        default,
        frozenset(obj.__kwdefaults__ or ()),
        kwdefault,
        closure,
    )
    return enter_function(vm, parts, fn, args, kwargs)


def guard_signature(vm: Machine, fn: types.FunctionType, source: Source) -> None:
    """Guard how many defaults a function has, and for which keywords, since its arguments do not fit."""
    for name, kind, said in (("__defaults__", "LENGTH", len), ("__kwdefaults__", "DICT_KEYS", tuple)):
        place, defaults = Source("attr", source, name), getattr(fn, name)
        if defaults is None:
            vm.guard(place, "EQUALS_MATCH", None)
        else:
            vm.guard(place, kind, said(defaults))


def guard_defaults(vm: Machine, fn: types.FunctionType, source: Source) -> None:
    """Guard the defaults of an operator written in Python: no capture looks into it, but a backend does."""
    place = Source("attr", source, "__defaults__")
    vm.guard(place, *(("EQUALS_MATCH", None) if fn.__defaults__ is None else ("ID_MATCH", fn.__defaults__)))


def enter_function(vm: Machine, parts: FunctionParts, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Bind the arguments and execute the body; of a generator function, make the generator."""
    flags = parts.code.co_flags
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE):
        raise Break("coroutine", name=parts.code.co_name)
    if len(vm.frames) > MAX_DEPTH:
        raise Break("inlining too deep", name=parts.code.co_name)
    direct, vm.direct = vm.direct, False
    vm.followed[id(parts.code)] = parts.code
    frame = Frame(parts.code, parts.globals, bind(vm, parts, args, kwargs), parts.closure)
    if flags & inspect.CO_GENERATOR:
        frame.made_by = FunctionCall(fn, args, kwargs)
        return finalizers.note_generator(vm, vm.new(types.GeneratorType, items=None, payload=frame), frame)
    frame.direct = direct
    return vm.run(frame)
