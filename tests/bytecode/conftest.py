"""These tests run with or without torch: decoding and assembling need none.

Where there is no torch, `torchdynamo` is an empty parent that only knows its folder, so that `torchdynamo.bytecode`
loads by itself on every Python version it speaks of.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

if "torchdynamo" not in sys.modules and importlib.util.find_spec("torch") is None:
    parent = ModuleType("torchdynamo")
    parent.__path__ = [str(ROOT / "torchdynamo")]
    sys.modules["torchdynamo"] = parent
elif str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from torchdynamo.bytecode.assemble import assemble  # noqa: E402
from torchdynamo.bytecode.decode import decode  # noqa: E402


def convert(code: CodeType) -> CodeType:
    """`code` and every code object inside it, decoded and assembled again.

    Only bodies of functions: those of classes and modules can have slots that Python code cannot ask for.
    """
    constants = tuple(convert(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    code = code.replace(co_consts=constants)
    return assemble(decode(code).items(), code) if code.co_flags & CO_OPTIMIZED else code


@pytest.fixture(scope="session")
def converted() -> Callable[[CodeType], CodeType]:
    return convert


@pytest.fixture(scope="session")
def again() -> Callable[[FunctionType], FunctionType]:
    """The same function with converted code."""

    def make(function: FunctionType) -> FunctionType:
        code = convert(function.__code__)
        copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    return make
