"""Decide how a callable is treated, by predicates on its properties rather than lists of names."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
import types
from typing import Any

import torch
import torch.overrides
import torch.utils.checkpoint
from torch.nn import functional as F

try:
    import numpy as np
except ImportError:  # torch does without
    NUMPYS: tuple[type, ...] = ()
else:
    NUMPYS = tuple(kind for kind in vars(np).values() if isinstance(kind, type) and issubclass(kind, np.generic))

# PyTorch's own operators: a library may have put a function of its own under their names in `torch`.
OWN: Any = torch._C._VariableFunctions

# Types whose methods have no side effects and depend only on their arguments.
PURE_TYPES: frozenset[type] = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), range, tuple, slice, frozenset),
        *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, torch.finfo, torch.iinfo),
        *(re.Pattern, re.Match, *NUMPYS),
    }
)
PURE_BUILTINS = frozenset(
    id(fn)
    for fn in (
        abs,
        ascii,
        bin,
        callable,
        chr,
        divmod,
        format,
        hash,
        hex,
        len,
        max,
        min,
        oct,
        ord,
        pow,
        repr,
        round,
        sorted,
        sum,
    )
)
PURE_MODULES = frozenset(
    {"math", "_operator", "cmath", "itertools", "_bisect", "unicodedata", "_string", "_struct", "binascii", "zlib"}
    | {"scipy.fft._pocketfft.pypocketfft"}
)
# Functions of those modules that modify their first argument, or return an object with a state.
WRITERS = frozenset(
    {"setitem", "delitem", "insort", "insort_left", "insort_right", "iconcat"}
    | {"pack_into", "iter_unpack", "compressobj", "decompressobj"}
    | {f"i{name}" for name in "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor".split()}
)
PURE_STATICS = frozenset(
    id(found.__func__) for cls in PURE_TYPES for found in vars(cls).values() if type(found) is staticmethod
)
OPERATOR_MODULES = frozenset(
    f"torch._C.{name}" for name in ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
)
STATE_WORDS = ("is_", "_is_", "get_", "_get_", "has_", "_has_", "_are_", "are_", "_cuda_get_", "_len_torch_")
# (namespace, names) in which torch.overrides looks for operators, besides Tensor.
OPERATOR_SPACES = (
    *((module, module.__all__) for module in (torch, torch.functional)),
    *((module, dir(module)) for module in (F, torch.nn.init, torch.linalg, torch.fft, torch.special)),
)
OPERATOR_TYPES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
CODE = (
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.ClassMethodDescriptorType, *OPERATOR_TYPES),
    type(vars(inspect.FullArgSpec)["args"]),  # the field of a named tuple
)
# Optimizers' updates of all parameters in one kernel.
FUSED_UPDATES = tuple(getattr(torch, f"_fused_{name}_") for name in ("adam", "adamw", "sgd", "adagrad"))
# The one torch function that graphs call with a body to run; its wrapper is only for torch.compile.
CHECKPOINT = inspect.unwrap(torch.utils.checkpoint.checkpoint)


@functools.cache
def graph_functions() -> frozenset[int]:
    """Return the ids of those functions of `overridable` that are written in Python, found by the same rules.

    PyTorch's own search takes 20 ms, which the first capture of a process would pay. A function that somebody
    put in the place of one of PyTorch's is not among them: it may do more than compute.
    """
    ignored = torch.overrides.get_ignored_functions()
    named = ((space, name) for space, names in OPERATOR_SPACES for name in names if is_public(name))
    methods = ((torch.Tensor, name) for name in vars(torch.Tensor))
    found = (vars(space).get(name) for space, name in (*named, *methods))
    written = (fn for fn in found if type(fn) is types.FunctionType and fn not in ignored)
    return frozenset(id(fn) for fn in written if str(fn.__globals__.get("__name__")).partition(".")[0] == "torch")


def is_public(name: str) -> bool:
    """Return whether a name in a module of operators is an operator's: `relu`, not `_relu`, `relu_` or `Tensor`."""
    return name[0].islower() and not name.endswith("_")


@functools.cache
def overridable() -> frozenset[int]:
    """Return the ids of functions and methods that dispatch through `__torch_function__`, by PyTorch's own list."""
    found = torch.overrides.get_overridable_functions()
    return frozenset(id(fn) for group in found.values() for fn in group)


def is_graph_function(fn: types.FunctionType) -> bool:
    """Return whether a Python function of torch counts as one operator, as `torch.einsum` does."""
    return id(fn) in graph_functions()


def is_overridable(fn: Any) -> bool:
    """Return whether calls of a function dispatch through `__torch_function__`."""
    return id(fn) in overridable()


def is_torch_operator(fn: Any) -> bool:
    """Return whether this is a C function of torch that makes or takes tensors."""
    if isinstance(fn, OPERATOR_TYPES):
        return True
    if type(fn) is not types.BuiltinFunctionType or not (getattr(fn, "__module__", None) or "").startswith("torch"):
        return False
    owner = fn.__self__
    return owner is None or (type(owner) is types.ModuleType and owner.__name__ in OPERATOR_MODULES)


def is_tensor_method(fn: Any) -> bool:
    """Return whether this is a tensor method written in C."""
    return fn.__objclass__ in torch.Tensor.__mro__ and fn.__objclass__ is not object


def is_pure(fn: Any) -> bool:
    """Return whether this is a C function without side effects, which can be called during capture on constants."""
    if id(fn) in PURE_BUILTINS or id(fn) in PURE_STATICS:
        return True
    if isinstance(fn, (operator.attrgetter, operator.itemgetter, operator.methodcaller)):
        return True
    if type(fn) is not types.BuiltinFunctionType and "pybind11" not in str(type(fn)):
        return False
    module = getattr(fn, "__module__", None) or getattr(fn.__self__, "__name__", "") or ""
    if module in PURE_MODULES:
        return fn.__name__ not in WRITERS
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type):
        return owner in PURE_TYPES or owner in (dict, math.__class__)
    return False


def reads_torch_state(fn: Any) -> bool:
    """Return whether this is a C function, judged by its name, that reads a flag such as the grad mode."""
    if type(fn) is not types.BuiltinFunctionType or fn.__self__ is None or isinstance(fn.__self__, type):
        return False  # operators of torch have no owner
    return fn.__name__.startswith(STATE_WORDS)


def is_code(obj: Any) -> bool:
    """Return whether an object is part of a program's text: a module, class, function or descriptor."""
    return isinstance(obj, CODE)


def in_optimizer(frames: list[Any]) -> bool:
    """Return whether the innermost frame is code of torch.optim, whose numbers stay plain Python numbers."""
    return bool(frames) and str(frames[-1].globals.real.get("__name__", "")).startswith("torch.optim.")


def of_optimizer(frames: list[Any]) -> bool:
    """Return whether the innermost frame is a method of an optimizer, torch's or a user's."""
    frame = frames[-1]
    own = frame.locals.get(frame.raw.co_varnames[0]) if frame.raw.co_argcount else None
    return own is not None and issubclass(getattr(own, "pytype", object), torch.optim.Optimizer)
