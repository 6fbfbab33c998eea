"""Python's builtin functions."""

from __future__ import annotations

import builtins
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture.speculate import assertions
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.types import identity
from torchdynamo.capture.types.generators import stop
from torchdynamo.capture.types.sequence import sorted_values
from torchdynamo.capture.vm import lookup
from torchdynamo.capture.vm.iteration import make_iterator
from torchdynamo.capture.vm.model import MODELS, function, run_for_real
from torchdynamo.capture.vm.operators import same_or_equal
from torchdynamo.capture.vm.scalar_subclasses import plainly
from torchdynamo.capture.vm.signatures import by_place
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.value import FALSE, NONE, Known, Object, Symbol, TensorNode, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

ZERO = Known(0)


@function(len)
def len_(vm: Machine, obj: Value) -> Value:
    if obj.__class__ is TensorNode:
        return vm.call_method(obj, "__len__")
    return vm.length(obj)


@function(type)
def type_(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) == 3 and not kwargs:
        made: Value = MODELS[type, "__new__"](vm, Known(type), *args)
        return made
    if len(args) != 1:
        raise vm.error(TypeError, "type() takes 1 or 3 arguments")
    if kwargs:
        raise Break("unknown call", name="type")
    return lift(vm, args[0].pytype)


def attribute_name(vm: Machine, name: Value) -> str:
    """The name; what is no string, Python refuses."""
    text = vm.known(plainly(vm, name), "attribute name")
    if not isinstance(text, str):
        vm.run_pure(getattr, [NONE, Known(text)], {})
    return str(text)


@function(getattr)
def getattr_(vm: Machine, obj: Value, name: Value, *default: Value) -> Value:
    text = attribute_name(vm, name)
    if not default:
        return vm.getattr(obj, text)
    found = vm.has_attribute(obj, text)
    return default[0] if found is None else found


@function(hasattr)
def hasattr_(vm: Machine, obj: Value, name: Value) -> Value:
    return boolean(vm.has_attribute(obj, attribute_name(vm, name)) is not None)


@function(setattr)
def setattr_(vm: Machine, obj: Value, name: Value, value: Value) -> Value:
    vm.setattr(obj, attribute_name(vm, name), value)
    return NONE


@function(delattr)
def delattr_(vm: Machine, obj: Value, name: Value) -> Value:
    vm.delattr(obj, attribute_name(vm, name))
    return NONE


@function(vars)
def vars_(vm: Machine, obj: Value | None = None) -> Value:
    if obj is None:
        raise Break("frame inspects itself", name="vars")
    own = vm.has_attribute(obj, "__dict__")
    if own is None:
        raise vm.error(TypeError, "vars() argument must have __dict__ attribute")
    return own


def named_outside(name: str, reason: str) -> Any:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        raise Break(reason, name=name)

    return row


for _name in ("eval", "exec", "compile", "breakpoint", "input", "open"):
    function(getattr(builtins, _name))(named_outside(_name, "builtin with effects"))
for _name in ("locals", "globals"):
    function(getattr(builtins, _name))(named_outside(_name, "frame inspects itself"))


@function(callable)
def callable_(vm: Machine, obj: Value) -> Value:
    if obj.__class__ is Known and not lookup.speaks(obj):
        return boolean(callable(obj.obj))
    return boolean(lookup.guarded_slot(vm, obj.pytype, "__call__")[0] != "missing")


@function(hash)
def hash_(vm: Machine, obj: Value) -> Value:
    obj = plainly(vm, obj)
    if obj.__class__ is Known and by_address(obj.obj):
        raise Break("unknown call", name="hash")
    if obj.__class__ is Known and lookup.speaks(obj):
        said: Value | None = vm.special(obj, "__hash__")
        return said or vm.run_pure(hash, [obj], {})
    if obj.__class__ is Known or obj.__class__ is Symbol:
        return vm.run_pure(hash, [obj], {})
    if obj.__class__ is Object and type(obj.pytype.__hash__) is types.FunctionType:
        said = plainly(vm, vm.special(obj, "__hash__"))
        if not issubclass(said.pytype, int):
            raise vm.error(TypeError, "__hash__ method should return an integer")
        if said.__class__ is Known and LEAST_WORD <= said.obj <= sys.maxsize:
            return Known(int(said.obj) if said.obj != -1 else -2)  # as it is; longer ones are hashed
        return vm.run_pure(hash, [said], {})
    if obj.__class__ is Object and (obj.pytype is tuple or identity.is_id(vm, obj)):
        return identity.hash_of(vm, obj)
    if obj.__class__ is Object and lookup.guarded_lookup(vm, obj.pytype, "__hash__") is None:
        raise vm.error(TypeError, f"unhashable type: {type_name(obj.pytype)!r}")
    raise Break("unknown call", name="hash")


LEAST_WORD = -sys.maxsize - 1


def by_address(obj: Any) -> bool:
    """Whether the hash of a constant is made of where it lies: nan equals nothing, and so hashes as objects do."""
    return any(map(by_address, obj)) if type(obj) is tuple else bool(type(obj) in (float, complex) and obj != obj)


@function(object.__hash__)
def plain_hash(vm: Machine, obj: Value) -> Value:
    raise Break("unknown call", name="object.__hash__")


@function(iter)
def iter_(vm: Machine, obj: Value, *sentinel: Value) -> Value:
    if sentinel:
        return make_iterator(vm, until(vm, obj, sentinel[0]), None, type(iter(int, 1)))
    return vm.iterator(obj)


def until(vm: Machine, fn: Value, sentinel: Value) -> Iterator[Value]:
    """What calling gives, up to the sentinel."""
    while True:
        item = vm.call(fn, [], {})
        if same_or_equal(vm, item, sentinel):
            return
        yield item


@function(next)
def next_(vm: Machine, iterator: Value, *default: Value) -> Value:
    item = vm.advance(iterator)
    if item is not None:
        return item
    if default:
        return default[0]
    raise stop(vm, iterator)


# -- iterators --------------------------------------------------------------------------------------------------------
def lazily(cls: type, steps: Any) -> None:
    """Register the constructor of a builtin iterator type."""

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        try:
            inner = steps(vm, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise Break("unknown call", name=cls.__name__) from None  # it does not take such arguments
        return make_iterator(vm, inner, None, cls)

    row.__wrapped__ = steps  # type: ignore[attr-defined]  # whose parameters are the model's
    function(cls)(row)


def enumerated(vm: Machine, iterable: Value, start: Value = ZERO) -> Iterator[Value]:
    source, first = vm.iterate(iterable), vm.known(vm.call(Known(operator.index), [start], {}), "start")
    return (vm.make_tuple([Known(index), item]) for index, item in enumerate(source, first))


def zipped(vm: Machine, *iterables: Value, strict: Value = FALSE) -> Iterator[Value]:
    sources = [vm.iterate(each) for each in iterables]
    return zip_steps(vm, sources, vm.truth(strict))


def zip_steps(vm: Machine, sources: list[Iterator[Value]], strict: bool) -> Iterator[Value]:
    try:
        for items in zip(*sources, strict=strict):
            yield vm.make_tuple(list(items))
    except ValueError as error:
        raise vm.error(ValueError, *error.args) from None


def mapped(vm: Machine, fn: Value, *iterables: Value) -> Iterator[Value]:
    sources = [vm.iterate(each) for each in iterables]
    return (vm.call(fn, list(items), {}) for items in zip(*sources))


def filtered(vm: Machine, fn: Value, items: Value) -> Iterator[Value]:
    source = vm.iterate(items)
    plain = fn.__class__ is Known and fn.obj is None
    return (item for item in source if vm.truth(item if plain else vm.call(fn, [item], {})))


for _lazy, _steps in ((enumerate, enumerated), (zip, zipped), (map, mapped), (filter, filtered)):
    lazily(_lazy, _steps)


@function(sorted)
def sorted_(vm: Machine, items: Value, *, key: Value = NONE, reverse: Value = FALSE) -> Value:
    return vm.new(list, sorted_values(vm, list(vm.iterate(items)), key, reverse))


# -- reductions -------------------------------------------------------------------------------------------------------
@function(sum)
def sum_(vm: Machine, items: Value, start: Value = ZERO) -> Value:
    total = start
    for item in vm.iterate(items):
        total = vm.binary("+", total, item)
    return total


@function(any)
def any_(vm: Machine, items: Value) -> Value:
    none = assertions.result_to_go_on(vm) is False
    return boolean(
        any(not (none and assertions.expect(vm, item, False)) and vm.truth(item) for item in vm.iterate(items))
    )


@function(all)
def all_(vm: Machine, items: Value) -> Value:
    every = assertions.result_to_go_on(vm) is True
    return boolean(all((every and assertions.expect(vm, item, True)) or vm.truth(item) for item in vm.iterate(items)))


def extreme(fn: Any, op: str) -> None:
    def row(vm: Machine, *items: Value, key: Value = NONE, default: Value | None = None) -> Value:
        values = list(vm.iterate(items[0])) if len(items) == 1 else list(items)
        if not values:
            if default is not None:
                return default
            raise vm.error(ValueError, f"{fn.__name__}() arg is an empty sequence")
        plain = key.__class__ is Known and key.obj is None
        number = symbols.extreme(vm, fn, values) if plain else None
        if number is not None:
            return number
        best, best_key = values[0], values[0] if plain else vm.call(key, [values[0]], {})
        for item in values[1:]:
            each = item if plain else vm.call(key, [item], {})
            if vm.truth(vm.binary(op, each, best_key)):
                best, best_key = item, each
        return best

    function(fn)(row)


extreme(min, "<")
extreme(max, ">")


# -- numbers, strings -------------------------------------------------------------------------------------------------
def said_by(vm: Machine, cls: type, method: str) -> str:
    """`object.__format__` is `str()`, and `object.__str__` is `repr()`."""
    for name, behind in (("__format__", "__str__"), ("__str__", "__repr__")):
        if method == name and lookup.guarded_slot(vm, cls, name) == ("python", (object, object.__dict__[name])):
            method = behind
    return method


def is_asked(value: Value) -> bool:
    """Whether the class of the value may say in Python what becomes of it."""
    return value.__class__ is Object or (value.__class__ is Known and lookup.speaks(value))


TEXTS = frozenset({"__str__", "__repr__", "__format__"})
GIVEN: dict[str, type] = {
    **dict.fromkeys(TEXTS, str),
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__bytes__": bytes,
}


def converter(cls: Callable[..., Any], method: str) -> None:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if method in TEXTS and args and symbols.is_unknown(vm, args[0]):
            if len(args) > 1:  # whether such a format exists is known by the type
                kind: Any = args[0].pytype
                vm.run_pure(format, [Known(kind(1)), *args[1:]], {})
            return symbols.text(vm)
        if args and args[0].__class__ is TensorNode:
            if method not in ("__int__", "__float__") or len(args) + len(kwargs) > 1:
                raise Break("data-dependent value", name=getattr(cls, "__name__", method))
            return vm.call_method(args[0], method)
        if len(args) == 1 and args[0].__class__ is Symbol and cls in symbols.CONVERSIONS and not kwargs:
            return symbols.CONVERSIONS[cls](vm, args[0])
        if args and not kwargs and is_asked(args[0]) and (len(args) == 1 or method == "__format__"):
            slot = lookup.guarded_slot(vm, args[0].pytype, method)
            name = said_by(vm, args[0].pytype, method) if len(args) == 1 else method
            slot = slot if name == method else lookup.guarded_slot(vm, args[0].pytype, name)
            if slot[0] == "model" or (slot[0] == "python" and type(slot[1][1]) is types.FunctionType):
                answer = vm.special(args[0], name, *((args[1:] or (Known(""),)) if name == "__format__" else ()))
                if answer.pytype is not GIVEN[method]:  # a warning, or an error
                    raise Break("unknown call", name=method)
                return answer
        if cls is bytes and len(args) == 1 and issubclass(args[0].pytype, Iterator):
            args = (Known(tuple(vm.concretely(plainly(vm, item)) for item in vm.iterate(args[0]))),)
        return vm.run_pure(cls, list(args), dict(kwargs))

    function(cls)(row)


for _converter, _method in (
    (int, "__int__"),
    (float, "__float__"),
    (str, "__str__"),
    (complex, "__complex__"),
    (bytes, "__bytes__"),
    (repr, "__repr__"),
    (format, "__format__"),
):
    converter(_converter, _method)


@function(bool)
def bool_(vm: Machine, obj: Value = FALSE) -> Value:
    if obj.__class__ is TensorNode:
        obj = vm.call_method(obj, "__bool__")
    if obj.__class__ is Symbol:
        return symbols.to_bool(vm, obj)
    return boolean(vm.truth(obj))


run_for_real(torch.device, torch.finfo, torch.iinfo)


@function(slice)
def slice_(vm: Machine, *parts: Value) -> Value:
    return vm.make_slice(*parts)


def through_operator(fn: Any, method: str) -> None:
    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        args = by_place(fn, args, kwargs)
        if any(arg.__class__ is TensorNode for arg in args):
            return vm.emit("call_function", fn, list(args), {})
        if args and is_asked(args[0]):
            return vm.special(args[0], method, *args[1:])
        if any(arg.__class__ is Symbol for arg in args):
            return symbols.FUNCTIONS[fn](vm, *args)
        return vm.run_pure(fn, list(args), {})

    function(fn)(row)


for _fn, _method in ((abs, "__abs__"), (divmod, "__divmod__"), (pow, "__pow__"), (round, "__round__")):
    through_operator(_fn, _method)
