"""One function per canonical instruction, in families. Importing this package registers them all."""

from torchdynamo.capture.ops import (
    asynchronous,
    attributes,
    calls,
    classes,
    containers,
    control,
    exceptions,
    functions,
    matching,
    operators,
    stack,
    variables,
)

__all__ = [
    "asynchronous",
    "attributes",
    "calls",
    "classes",
    "containers",
    "control",
    "exceptions",
    "functions",
    "matching",
    "operators",
    "stack",
    "variables",
]
