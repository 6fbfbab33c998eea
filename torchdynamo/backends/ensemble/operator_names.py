"""Name the operators that a recorded graph may call. Data can name nothing else, so reading a graph runs nothing else.

A function is an operator if it computes with tensors or numbers alone: those that PyTorch lets tensor subclasses
override, those that the dispatcher has, methods of tensors, arithmetic of `operator` and `math`, and switches of modes.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
import re
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.fft
import torch.linalg
import torch.nn.functional
import torch.special
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import get_overridable_functions

from torchdynamo.backends.ensemble.identity import HasNoName, name_of
from torchdynamo.errors import RecordError
from torchdynamo.graph import generators
from torchdynamo.graph.torch_compat import MODE_CHANGES

_ARITHMETIC = (
    "abs add and_ eq floordiv ge gt index invert le lshift lt matmul mod mul ne neg or_ pos pow rshift sub truediv xor"
).split()
_IN_PLACE = "iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor".split()
_OTHERS = "contains getitem is_ is_not not_ setitem truth".split()
_BUILTINS = "abs bool float int len max min pow round sum".split()
_MODULES = (torch, torch.nn.functional, torch.functional, torch.linalg, torch.fft, torch.special)
_C: Any = torch._C
_NATIVES = (_C._VariableFunctions, _C._nn, _C._linalg, _C._fft, _C._special)
_FACTORIES = (torch.tensor, torch.as_tensor)
_OP_NAME = re.compile(r"torch\.ops\.([A-Za-z]\w*)\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")
_METHOD = types.MethodDescriptorType
_FILE_ARGUMENTS = frozenset({"file", "filename", "path"})
_SPECIAL_METHODS = frozenset(
    [f"__{name.strip('_')}__" for name in (*_ARITHMETIC, *_IN_PLACE, "getitem", "setitem", "contains", "len")]
    + [f"__r{name.strip('_')}__" for name in _ARITHMETIC]
)
_NO_OPERATORS = frozenset(
    "apply_ map_ map2_ module_load register_hook register_post_accumulate_grad_hook share_memory_".split()
)
"""Methods of tensors that take functions, or do more than to compute."""


def name_of_function(function: Any) -> str:
    """Return the name of a function that a recorded graph may call. Raises RecordError for others."""
    if isinstance(function, (OpOverload, OpOverloadPacket)):
        name = f"torch.ops.{function}"
        if function_named(name) is function:
            return name
    else:
        try:
            name = "builtins.getattr" if function is getattr else name_of(function)
        except HasNoName:
            raise RecordError(f"{function!r} has no name") from None
        if _functions().get(name) is function:
            return name
    raise RecordError(f"{name} is no operator that may be recorded")


def function_named(name: str) -> Any:
    """Return the function of a name. Raises RecordError for an operator that does not exist here, and for all else."""
    known = _functions().get(name)
    if known is not None:
        return known
    parts = _OP_NAME.fullmatch(name)
    if parts is None:
        raise RecordError(f"{name!r} is no operator that a recorded graph may name")
    found: Any = torch.ops
    for part in filter(None, parts.groups()):
        found = getattr(found, part, None)
    if not isinstance(found, (OpOverload, OpOverloadPacket)):
        raise RecordError(f"there is no operator {name!r} here: its library, or its version, is not what it was")
    if not _leaves_files_alone(found):
        raise RecordError(f"{name!r} works on files, which a recorded graph may not")
    return found


def check_method(name: str) -> str:
    """Return the name of a method that a recorded graph may call, of tensors or of generators of random numbers.

    Raises RecordError for others.
    """
    owners = (torch.Tensor, *generators.KINDS)
    if _may_be_called(name) and any(callable(getattr(owner, name, None)) for owner in owners):
        return name
    raise RecordError(f"{name!r} is no method of tensors or generators that a recorded graph may call")


def _may_be_called(method: str) -> bool:
    public = not method.startswith("_") and method not in _NO_OPERATORS
    return public or method in _SPECIAL_METHODS


def check_attribute(name: object) -> None:
    """Raise RecordError for what is no attribute of tensors that holds data."""
    if isinstance(name, str) and not name.startswith("_"):
        found = inspect.getattr_static(torch.Tensor, name, None)
        if inspect.isdatadescriptor(found):
            return
    raise RecordError(f"{name!r} is no attribute of tensors that a recorded graph may read")


def _leaves_files_alone(op: OpOverload | OpOverloadPacket) -> bool:
    overloads = [op] if isinstance(op, OpOverload) else [getattr(op, name) for name in op.overloads()]
    return not any(argument.name in _FILE_ARGUMENTS for each in overloads for argument in each._schema.arguments)


@functools.cache
def _functions() -> dict[str, Any]:
    """Return the functions that may be called, by name."""
    found: dict[str, Any] = {"builtins.getattr": getattr}
    for function in _allowed():
        try:
            found.setdefault(name_of(function), function)
        except HasNoName:
            continue  # a recorded graph cannot name it
    return found


def _allowed() -> Iterator[Any]:
    yield from (getattr(operator, name) for name in (*_ARITHMETIC, *_IN_PLACE, *_OTHERS))
    yield from (getattr(builtins, name) for name in _BUILTINS)
    yield from (each for name, each in vars(math).items() if callable(each) and not name.startswith("_"))
    overridable: dict[Any, list[Any]] = get_overridable_functions()
    for module in _MODULES:
        yield from overridable.get(module, ())
    yield from _FACTORIES
    yield from MODE_CHANGES
    yield from (each for name, each in vars(_C.TensorBase).items() if type(each) is _METHOD and _may_be_called(name))
    for owner in _NATIVES:
        for name in dir(owner):
            op = getattr(torch.ops.aten, name, None)
            if isinstance(op, OpOverloadPacket) and _leaves_files_alone(op):
                yield getattr(owner, name)
