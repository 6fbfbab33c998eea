"""Python's builtin functions: attributes and names of objects, conversions, numbers, texts, print."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import builtins
import functools
import io
import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchdynamo._native import type_name
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.types import identity
from torchdynamo.capture.types.lists import sorted_values
from torchdynamo.capture.vm import dict_aliases, lookup, operators
from torchdynamo.capture.vm.lookup import class_lookup, is_class, written_in_python
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ends_graph, function, models
from torchdynamo.capture.vm.namespaces import has_dict
from torchdynamo.capture.vm.refused_operands import refused_operands
from torchdynamo.capture.vm.scalar_subclasses import indexed, plain_value, plainly
from torchdynamo.capture.vm.signatures import by_place
from torchdynamo.capture.vm.wrap import CONSTANTS, lift
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import FALSE, NONE, Known, Object, Symbol, TensorNode, Value, boolean


@function(len)
def len_(vm: Machine, obj: Value) -> Value:
    if obj.__class__ is TensorNode:
        return vm.call_method(obj, "__len__")
    return vm.length(obj)


def attribute_name(vm: Machine, name: Value, taker: Any, *rest: Value) -> str:
    """Return the name of an attribute as a str. Raises what `taker(obj, name, *rest)` raises for what is no string."""
    text = vm.known(plainly(vm, name), "attribute name")
    if not isinstance(text, str):
        vm.run_pure(taker, [NONE, Known(text), *rest], {})
    return str(text)


@function(getattr)
def getattr_(vm: Machine, obj: Value, name: Value, *default: Value) -> Value:
    text = attribute_name(vm, name, getattr)
    if not default:
        return vm.getattr(obj, text)
    found = vm.has_attribute(obj, text)
    return default[0] if found is None else found


@function(hasattr)
def hasattr_(vm: Machine, obj: Value, name: Value) -> Value:
    return boolean(vm.has_attribute(obj, attribute_name(vm, name, hasattr)) is not None)


@function(setattr)
def setattr_(vm: Machine, obj: Value, name: Value, value: Value) -> Value:
    vm.setattr(obj, attribute_name(vm, name, setattr, NONE), value)
    return NONE


@function(delattr)
def delattr_(vm: Machine, obj: Value, name: Value) -> Value:
    vm.delattr(obj, attribute_name(vm, name, delattr))
    return NONE


@function(vars)
def vars_(vm: Machine, obj: Value | None = None) -> Value:
    if obj is None:
        raise Break("frame inspects itself", name="vars")
    own = vm.has_attribute(obj, "__dict__")
    if own is None:
        raise vm.error(TypeError, "vars() argument must have __dict__ attribute")
    return own


for _name in ("eval", "exec", "compile", "breakpoint", "input", "open"):
    function(getattr(builtins, _name))(ends_graph("builtin with effects", name=_name))


for _name in ("locals", "globals"):
    function(getattr(builtins, _name))(ends_graph("frame inspects itself", name=_name))


@function(callable)
def callable_(vm: Machine, obj: Value) -> Value:
    if obj.__class__ is Known and not lookup.has_python_operators(obj):
        return boolean(callable(obj.obj))
    return boolean(lookup.guarded_slot(vm, obj.pytype, "__call__")[0] != "missing")


@function(hash)
def hash_(vm: Machine, obj: Value) -> Value:
    obj = plainly(vm, obj)
    if obj.__class__ is Known and hashes_by_address(obj.obj):
        raise Break("unknown call", name="hash")
    if obj.__class__ is Known and lookup.has_python_operators(obj):
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


def hashes_by_address(obj: Any) -> bool:
    """Return whether the hash of a constant depends on its address, as that of nan does, which equals nothing."""
    return (
        any(map(hashes_by_address, obj)) if type(obj) is tuple else bool(type(obj) in (float, complex) and obj != obj)
    )


@function(object.__hash__)
def plain_hash(vm: Machine, obj: Value) -> Value:
    raise Break("unknown call", name="object.__hash__")


# -- numbers, strings -------------------------------------------------------------------------------------------------
def delegated_method(vm: Machine, cls: type, method: str) -> str:
    """Return the name of the method that does the work of `method` where the class inherits that from object.

    `object.__format__` is `str()`, and `object.__str__` is `repr()`.
    """
    for name, behind in (("__format__", "__str__"), ("__str__", "__repr__")):
        if method == name and lookup.guarded_slot(vm, cls, name) == ("python", (object, object.__dict__[name])):
            method = behind
    return method


def may_override(value: Value) -> bool:
    """Return whether the class of the value may define in Python what a conversion gives."""
    return value.__class__ is Object or (value.__class__ is Known and lookup.has_python_operators(value))


RESULT_TYPES: dict[str, type] = {
    **dict.fromkeys(lookup.TEXTS, str),
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__bytes__": bytes,
}


def converter(cls: Callable[..., Any], method: str) -> None:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if method in lookup.TEXTS and args and symbols.is_unknown(vm, args[0]):
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
        if args and not kwargs and may_override(args[0]) and (len(args) == 1 or method == "__format__"):
            slot = lookup.guarded_slot(vm, args[0].pytype, method)
            name = delegated_method(vm, args[0].pytype, method) if len(args) == 1 else method
            slot = slot if name == method else lookup.guarded_slot(vm, args[0].pytype, name)
            if slot[0] == "model" or (slot[0] == "python" and type(slot[1][1]) is types.FunctionType):
                answer = vm.special(args[0], name, *((args[1:] or (Known(""),)) if name == "__format__" else ()))
                if answer.pytype is not RESULT_TYPES[method]:  # a warning, or an error
                    raise Break("unknown call", name=method)
                return answer
            if cls in INSTEAD:
                return converted(vm, cls, args[0])
        if cls is bytes and len(args) == 1 and issubclass(args[0].pytype, Iterator):
            args = (Known(tuple(vm.concretely(plainly(vm, item)) for item in vm.iterate(args[0]))),)
        return vm.run_pure(cls, list(args), dict(kwargs))

    function(cls)(row)


INSTEAD: dict[Any, tuple[str, ...]] = {
    int: ("__index__", "__trunc__"),
    float: ("__index__",),
    complex: ("__float__", "__index__"),
}


def converted(vm: Machine, cls: Any, value: Value) -> Value:
    """Return the number that an object gives whose class has no method for `cls`. Raises the program's TypeError."""
    for name in INSTEAD[cls]:
        slot = lookup.guarded_slot(vm, value.pytype, name)
        if slot[0] == "missing":
            continue
        if name == "__trunc__" or slot[0] != "python" or type(slot[1][1]) is not types.FunctionType:  # with a warning
            break
        number = vm.special(value, name)
        if number.pytype is not (float if name == "__float__" else int):
            break
        return vm.run_pure(cls, [number], {})
    else:
        if all(map(written_in_python, value.pytype.__mro__)):
            raise refused_operands(vm, cls, value)
    return vm.run_pure(cls, [value], {})


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


def as_index(vm: Machine, value: Value) -> Value:
    """Return what `__index__` gives of an object. Raises, in the program, TypeError for one that is no integer."""
    found = indexed(vm, value)
    if found is value:
        raise vm.error(TypeError, f"{type_name(value.pytype)!r} object cannot be interpreted as an integer")
    if not issubclass(found.pytype, int):
        raise vm.error(TypeError, f"__index__ returned non-int (type {found.pytype.__name__})")
    if found.pytype is not int:  # with a warning
        raise Break("unknown call", name="__index__")
    return found


def taking_an_index(fn: Any) -> None:
    """Register a function of an integer, which may be an object with `__index__`."""

    def row(vm: Machine, number: Value, /) -> Value:
        written = number.__class__ is Object and not issubclass(number.pytype, int)
        return vm.run_pure(fn, [as_index(vm, number) if written else number], {})

    function(fn)(row)


for _taking in (hex, bin, oct, chr, operator.index):
    taking_an_index(_taking)


@function(bool)
def bool_(vm: Machine, obj: Value = FALSE) -> Value:
    if obj.__class__ is TensorNode:
        obj = vm.call_method(obj, "__bool__")
    if obj.__class__ is Symbol:
        return symbols.to_bool(vm, obj)
    return boolean(vm.truth(obj))


@function(slice)
def slice_(vm: Machine, *parts: Value) -> Value:
    return vm.make_slice(*parts)


def through_operator(fn: Any, method: str) -> None:
    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        args = by_place(fn, args, kwargs)
        if any(arg.__class__ is TensorNode for arg in args):
            return vm.emit("call_function", fn, list(args), {})
        if len(args) == 2 and fn in REFLECTED and any(map(may_override, args)):
            answer = operators.by_sides(vm, (method, REFLECTED[fn]), *args)
        elif args and may_override(args[0]):
            answer = operators.special(vm, args[0], method, *args[1:])
            if len(args) == 3 and (answer is None or operators.is_not_implemented(answer)):  # others may be asked
                raise Break("unknown call", name=method)
        else:
            return plainly_computed(vm, fn, args)
        if answer is None:
            raise refused_operands(vm, fn, *args)
        return answer

    function(fn)(row)


def plainly_computed(vm: Machine, fn: Any, args: Sequence[Value]) -> Value:
    """Return what a function of numbers gives of constants and symbols."""
    if any(arg.__class__ is Symbol for arg in args):
        return symbols.FUNCTIONS[fn](vm, *args)
    return vm.run_pure(fn, list(args), {})


REFLECTED: dict[Any, str] = {divmod: "__rdivmod__", pow: "__rpow__"}
for _fn, _method in ((abs, "__abs__"), (divmod, "__divmod__"), (pow, "__pow__"), (round, "__round__")):
    through_operator(_fn, _method)


# -- dir --------------------------------------------------------------------------------------------------------------
@function(dir)
def dir_(vm: Machine, obj: Value | None = None) -> Value:
    if obj is None:
        raise Break("frame inspects itself", name="dir")
    return vm.new(list, sorted_values(vm, list(vm.iterate(names_of(vm, obj))), NONE, FALSE))


def names_of(vm: Machine, obj: Value) -> Value:
    """Call `__dir__` of an object."""
    if obj.__class__ is Known and obj.pytype in CONSTANTS:
        return lift(vm, dir(obj.obj))
    if obj.__class__ is Known and isinstance(obj.obj, types.ModuleType):
        return names_in_module(vm, obj)
    if obj.__class__ is Known and is_class(obj.obj) and class_lookup(obj.pytype, "__dir__") is TYPE_DIR:
        return vm.new(list, [Known(name) for name in names_of_class(vm, obj.obj)])
    found: Value = vm.special(obj, "__dir__")
    return found


TYPE_DIR, MODULE_DIR = (vars(cls)["__dir__"] for cls in (type, types.ModuleType))


def names_of_class(vm: Machine, cls: type) -> list[str]:
    """Return the names in a class and its bases, in the order in which Python finds them; they are guarded."""
    if vm.effects.wrote_classes:
        raise Break("unknown call", name="dir")
    names = list(type.__dir__(cls))
    vm.guard(names_source(cls), "EQUALS_MATCH", repr(names))
    return names


@functools.cache
def names_source(cls: type) -> Source:
    """Return the source of the text of all names in a class, in their order."""
    return Source("method", Source("call", Source("pinned", None, Pinned(TYPE_DIR.__get__(cls))), ()), "__repr__")


@models(object, "__dir__")
def object_dir(vm: Machine, self: Value) -> Value:
    if self.__class__ is not Object:
        raise Break("unknown call", name="dir")
    own = vm.iterate(vm.instance_dict(self)) if has_dict(vm.entity(self)) else iter(())
    names = [vm.known(name, "name") for name in own] + names_of_class(vm, self.pytype)
    return vm.new(list, [Known(name) for name in dict.fromkeys(names)])


def names_in_module(vm: Machine, module: Known) -> Value:
    """Return the names in a module, or what its own `__dir__` function returns."""
    own: types.ModuleType = module.obj
    if vm.effects.wrote_in(own.__dict__):
        raise Break("unknown call", name="dir")
    if "__dir__" in own.__dict__ or class_lookup(type(own), "__dir__") is not MODULE_DIR:
        return vm.call(vm.getattr(module, "__dir__"), [], {})
    names = tuple(own.__dict__)
    dict_aliases.note_lookup(vm, own.__dict__, Source("dict", Source("module", None, own.__name__)))
    vm.guard(Source("dict", Source("module", None, own.__name__)), "DICT_KEYS", names)
    return vm.new(list, [Known(name) for name in names])


# -- print and join ---------------------------------------------------------------------------------------------------
def joiner(cls: Any) -> None:
    def row(vm: Machine, self: Value, items: Value) -> Value:
        return vm.run_pure(
            cls.join, [self, vm.new(list, [plain_value(vm, item) or item for item in vm.iterate(items)])], {}
        )

    models(cls, "join")(row)


joiner(str)
joiner(bytes)


@function(print)
def print_(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    file = kwargs.get("file", NONE)
    if file.__class__ is not Object or not (file.pytype is io.StringIO or written_in_python(file.pytype)):
        raise Break("builtin with effects", name="print")
    return vm.call(Known(print_to), list(args), kwargs)


def print_to(*args, file, sep=" ", end="\n", flush=False):
    """Write the arguments of `print` to a file that is captured, piece by piece."""
    for name, text in (("sep", sep), ("end", end)):
        if not (text is None or isinstance(text, str)):
            raise TypeError(f"{name} must be None or a string, not {type(text).__name__}")
    for at, arg in enumerate(args):
        if at:
            file.write(" " if sep is None else sep)
        file.write(str(arg))
    file.write("\n" if end is None else end)
    if flush:
        file.flush()
