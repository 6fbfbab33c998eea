"""Decode code objects and assemble them again, for tests that run with or without torch."""

from __future__ import annotations

from collections.abc import Callable
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType

import pytest

from torchdynamo.bytecode.assemble import assemble
from torchdynamo.bytecode.decode import decode


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
