"""Compile captured graphs. Each built-in backend is one file in `builtin/`, registered when it is imported."""

from torchdynamo.backends import builtin
from torchdynamo.backends.aot import aot_autograd
from torchdynamo.backends.registry import (
    BACKENDS,
    discover,
    list_backends,
    lookup,
    register_backend,
)
from torchdynamo.backends.run import compile_graph, on_error

discover(builtin)

__all__ = [
    "BACKENDS",
    "aot_autograd",
    "compile_graph",
    "list_backends",
    "lookup",
    "on_error",
    "register_backend",
]
