"""Describe objects that are no values by facts that another process can check: names, hashes of code, parts.

`describe` gives an object a kind, values and parts, which are objects or values again. Two objects are taken for the
same, in two processes, if their kinds and values are equal and so are their parts; and what were two objects must be
two again. What is described is all that cannot change without a guard seeing it; what can change has guards of its own.

An object of a kind that is not in the table is not stored: nothing says that it is what it was.
"""

from __future__ import annotations

import enum
import functools
import gc
import operator
import re
import sys
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torchdynamo._native import type_name
from torchdynamo.bytecode.qualnames import qualname_of
from torchdynamo.cache.store.hashes import hash_of
from torchdynamo.cache.store.homes import (
    HEAP,
    NAMED,
    OF_MODULE,
    is_of_environment,
    module_of_c,
    object_at,
    of_type,
    place_in_modules,
    version_of,
)
from torchdynamo.cache.store.library_code import digest_of_behavior
from torchdynamo.cache.store.operators import digest_of, is_custom
from torchdynamo.cache.store.values import NotStorable
from torchdynamo.core.naming import OWN, class_name
from torchdynamo.graph.wrappers import GETTERS, getter
from torchdynamo.guards.constants import is_constant


class Description(NamedTuple):
    """Description by which every process can find or recognize an object."""

    kind: str
    values: tuple[Any, ...]
    """Values, as `values.py` writes them."""
    parts: tuple[Any, ...] = ()
    """Values or objects, each with a description of its own."""


Describe = Callable[[Any], Description]
_KINDS_OF_CLASSES = (1 << 5) | (1 << 6) | (1 << 8) | (1 << 10) | (255 << 24)
"""Flags of a class that say what it is: a sequence or mapping, immutable, open to subclasses, derived from which."""


def describe(obj: Any) -> Description:
    """Return what describes an object. Raises NotStorable for one that only its identity tells."""
    found = _KINDS.get(type(obj))
    if found is not None:
        return found(obj)
    cls = type(obj)
    if issubclass(cls, type):
        return _class(obj)
    found = None if of_type(cls, "__flags__") & HEAP else _KINDS_IN_C.get(type_name(cls))
    if found is not None:
        return found(obj)
    if issubclass(cls, types.ModuleType):
        return Description("module", _module(obj).values, (cls,))
    if issubclass(cls, enum.Enum):
        return Description("member", (obj.__dict__["_name_"],), (cls, obj.__dict__["_value_"]))
    if issubclass(cls, tuple) and _layout_of(cls) is tuple:
        return Description("tuple", (), (cls, *tuple.__iter__(obj)))
    if issubclass(cls, property) and _layout_of(cls) is property:
        functions = (property.__dict__[name].__get__(obj) for name in ("fget", "fset", "fdel"))
        return Description("property", (), (cls, *functions))
    if _holds_nothing_else(cls):
        return Description("object", (), (cls,))
    if _is_of_cython(cls):
        return _function_of_cython(obj)
    raise NotStorable(f"an object of type {type_name(cls)} is known by its identity alone")


def shown(obj: Any) -> str:
    """Return what people are told of an object."""
    if issubclass(type(obj), type):
        return f"the class {class_name(obj)}"
    if type(obj) is types.CodeType:
        return f"the code of {qualname_of(obj)}"
    if type(obj) in NAMED:
        return f"the function {obj.__qualname__}"
    return f"an object of type {type_name(type(obj))}"


def _class(cls: type) -> Description:
    module, name = OWN.__get__(cls).get("__module__"), class_name(cls)
    if not of_type(cls, "__flags__") & HEAP:
        return Description("type", (type_name(cls), version_of(module_of_c(cls))))
    if is_of_environment(module) and object_at(module, name) is cls:
        return Description("type", (module, name))
    size = tuple(
        of_type(cls, name) for name in ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
    )
    values: tuple[Any, ...] = (
        str(module),
        name,
        of_type(cls, "__flags__") & _KINDS_OF_CLASSES,
        *size,
        _said_version(module),
    )
    parts: tuple[Any, ...] = (type(cls), *of_type(cls, "__mro__")[1:])
    if issubclass(type(cls), enum.EnumMeta):
        members = OWN.__get__(cls).get("_member_map_", {})
        values = (*values, tuple(members))
        parts = (*parts, *(member.__dict__["_value_"] for member in members.values()))
    if OWN.__get__(cls).get("_is_protocol"):
        values = (*values, tuple(sorted(typing._get_protocol_attrs(cls))))  # type: ignore[attr-defined]
    return Description("class", values, parts)


def _said_version(module: Any) -> str:
    version = getattr(sys.modules.get(str(module).partition(".")[0]), "__version__", "")
    return version if type(version) is str else ""


def _module(obj: types.ModuleType) -> Description:
    return Description("module", (str(OF_MODULE.__get__(obj).get("__name__")),))


def _code(obj: types.CodeType) -> Description:
    return Description("code", (hash_of(obj),))


def _function(obj: types.FunctionType) -> Description:
    if obj.__code__ is GETTERS:
        return Description("getter", (obj.__name__,))
    cells = len(obj.__closure__ or ())
    return Description("function", (str(obj.__module__), obj.__qualname__, cells), (obj.__code__,))


def _builtin(obj: types.BuiltinFunctionType) -> Description:
    owner: Any = obj.__self__
    home = place_in_modules(obj)
    if home is not None or owner is None or type(owner) is types.ModuleType:
        module = home[0] if home else obj.__module__ if owner is None else owner.__name__
        if module is None:
            raise NotStorable(f"{obj.__qualname__} is written in C, and nothing says in which module it is")
        return Description("C function", (str(module), obj.__name__, version_of(module)))
    return Description("C function", (obj.__name__,), (owner,))


def _is_of_cython(cls: type) -> bool:
    """Return whether a class is that of Cython's functions: no program in Python can give a class such a descriptor."""
    found: Any = OWN.__get__(cls).get("__qualname__")
    name = cls.__name__
    return (
        name == "cython_function_or_method" and type(found) is types.GetSetDescriptorType and found.__objclass__ is cls
    )


def _function_of_cython(obj: Any) -> Description:
    return Description("Cython function", (str(obj.__module__), obj.__qualname__, version_of(obj.__module__)))


def _descriptor(obj: Any) -> Description:
    return Description("descriptor", (type(obj).__name__, obj.__name__), (obj.__objclass__,))


def _property(obj: Any) -> Description:
    return Description(type(obj).__name__, (), (obj.fget, obj.fset, obj.fdel))


def _wrapper(obj: Any) -> Description:
    return Description(type(obj).__name__, (), (obj.__func__,))


def _partial(obj: functools.partial[Any]) -> Description:
    keywords = obj.keywords
    return Description("partial", tuple(keywords), (obj.func, *obj.args, *keywords.values()))


def _reduced(obj: Any) -> Description:
    made_by = obj.__reduce__()
    return Description(type(obj).__name__, (), made_by[1])


def _cached(obj: Any) -> Description:
    parameters = obj.cache_parameters()
    return Description("lru_cache", (parameters["maxsize"], parameters["typed"]), (obj.__wrapped__,))


def _operator(obj: Any) -> Description:
    return Description("operator", (str(obj), digest_of(obj) if is_custom(obj) else ""))


def _namespace(obj: Any) -> Description:
    (names,) = gc.get_referents(obj)
    made = names.get("__dict__") if type(names) is dict else None
    owners = (getattr(each, "__objclass__", None) for each in names.values())
    found = (cls for cls in owners if cls is not None and OWN.__get__(cls) == obj)
    owner = getattr(made, "__objclass__", None) or next(found, None)
    if owner is None:
        raise NotStorable("a namespace does not tell whose it is")
    return Description("namespace", (), (owner,))


def _universal_function(obj: Any) -> Description:
    """Describe a function of NumPy's own that works on each element; others may have any name."""
    version, name = version_of("numpy"), obj.__name__
    modules = (OF_MODULE.__get__(sys.modules[each]) for each in _NUMPY_IN_C if each in sys.modules)
    if not any(each.get(name) is obj for each in modules):
        raise NotStorable(f"the function {name} is not NumPy's own")
    return Description("ufunc", (name, version))


_NUMPY_IN_C = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")


def _dispatched(obj: Any) -> Description:
    """Describe a function of NumPy's own that other arrays may take over."""
    if str(obj.__module__).partition(".")[0] != "numpy":
        raise NotStorable(f"the function {obj.__name__} is not NumPy's own")
    made = obj._implementation
    behavior = digest_of_behavior(made) if type(made) is types.FunctionType else ""  # capture computes with it
    return Description("dispatched function", (obj.__name__, version_of("numpy"), behavior), (made,))


def _scalar(obj: Any) -> Description:
    if obj != obj:
        raise NotStorable("it rests on which NaN a constant is: one equals none, and is found by identity")
    return Description("NumPy scalar", (obj.dtype.str, obj.tobytes()))


def _method_in_cpp(obj: Any) -> Description:
    """Describe a method that pybind11 has put into a class: its text says of which class, and what it takes."""
    made = obj.__func__
    if type(made) is not types.BuiltinFunctionType:
        raise NotStorable("a method that is none of C++ is known by its identity alone")
    module = str(made.__module__)
    return Description("C++ method", (module, made.__name__, str(made.__doc__), version_of(module)))


_SCALARS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_KINDS_IN_C: dict[str, Describe] = {
    "instancemethod": _method_in_cpp,
    "numpy.ufunc": _universal_function,
    "numpy._ArrayFunctionDispatcher": _dispatched,
    **{f"numpy.{name}": _scalar for name in _SCALARS},
}
"""By the name that C gives the type: no module has it, or whoever uses NumPy imports it."""
MADE = frozenset({"namespace", "C function", "descriptor", "NumPy scalar", "getter"})
"""Kinds of objects that are found by the object that they belong to, or are made of their values."""


def made_again(kind: str, values: tuple[Any, ...], parts: tuple[Any, ...]) -> Any:
    """Return an object by that which it belongs to, such as a method of an object in C; None if there is none.

    A scalar of NumPy's belongs to nothing, and is made. So is a function of ours that reads an attribute.
    """
    if kind == "getter":
        return getter(*values)
    if kind == "NumPy scalar":
        numpy = sys.modules.get("numpy")
        return None if numpy is None else numpy.frombuffer(values[1], values[0])[0]
    if kind == "namespace":
        return OWN.__get__(parts[0])
    if kind == "descriptor" and issubclass(type(parts[0]), type):
        return OWN.__get__(parts[0]).get(values[1])
    if kind == "C function" and len(parts) == 1:
        return getattr(parts[0], values[0], None)
    return None


def _value(obj: Any) -> Description:
    if not is_constant(obj):
        raise NotStorable(f"a {type(obj).__name__} holds objects")
    return Description("value", (obj,))


def _held(obj: Any) -> Description:
    return Description("object", (), (type(obj),))


_HELD: dict[Any, None] = dict.fromkeys((object, dict, list, set, OrderedDict, deque, defaultdict, bytearray))
"""Layouts of objects that hold nothing but what guards read: by these an object is known by its place and class."""


def _layout_of(cls: type) -> Any:
    """Return the class written in C that gives the instances of a class their memory, slots apart."""
    return next(base for base in of_type(cls, "__mro__") if not of_type(base, "__flags__") & HEAP)


def _holds_nothing_else(cls: type) -> bool:
    """Return whether instances of a class have no memory but slots, a dictionary, and what a known layout holds."""
    layout = _layout_of(cls)
    slots = (OWN.__get__(base).get("__slots__", ()) for base in of_type(cls, "__mro__"))
    count = sum(1 if type(names) is str else len(tuple(names)) for names in slots)
    most = 8 * (count + bool(of_type(cls, "__dictoffset__")) + bool(of_type(cls, "__weakrefoffset__")))
    return layout in _HELD and of_type(cls, "__basicsize__") - of_type(layout, "__basicsize__") <= most


_TUPLEGETTER = type(Description.__dict__["kind"])
_KINDS: dict[Any, Describe] = {
    types.ModuleType: _module,
    types.CodeType: _code,
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: lambda obj: Description("C function", (obj.__name__,), (obj.__self__,)),
    types.MappingProxyType: _namespace,
    **dict.fromkeys(
        (
            *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
            *(types.GetSetDescriptorType, types.MemberDescriptorType),
        ),
        _descriptor,
    ),
    **dict.fromkeys((property, getattr(enum, "property", property), types.DynamicClassAttribute), _property),
    **dict.fromkeys((staticmethod, classmethod), _wrapper),
    functools.partial: _partial,
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller, _TUPLEGETTER), _reduced),
    functools._lru_cache_wrapper: _cached,
    **dict.fromkeys((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _operator),
    types.GenericAlias: lambda obj: Description("alias", (), (obj.__origin__, obj.__args__)),
    types.UnionType: lambda obj: Description("union", (), (obj.__args__,)),
    re.Pattern: lambda obj: Description("pattern", (obj.pattern, obj.flags)),
    type(torch.__version__): lambda obj: Description("version", (str.__str__(obj),)),
    types.FunctionType: _function,
    **dict.fromkeys((torch.finfo, torch.iinfo), lambda obj: Description(type(obj).__name__, (str(obj.dtype),))),
    **dict.fromkeys((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, types.CellType), _held),
    **dict.fromkeys(_HELD, _held),
    tuple: lambda obj: _value(obj) if is_constant(obj) else Description("tuple", (), (tuple, *obj)),
    **dict.fromkeys((int, float, complex, str, bytes, frozenset, slice, range, torch.device, torch.Size), _value),
}
