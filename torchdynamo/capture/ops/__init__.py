"""One function per canonical instruction, in families. Importing this package registers them all."""

from torchdynamo.capture.ops import (
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
