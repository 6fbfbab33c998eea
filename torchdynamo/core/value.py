"""What capture knows of a Python value. Six kinds, never mutated, never subclassed."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch.fx

from torchdynamo.core.source import Source


class Known:
    """A Python object that is fixed for this trace: a constant, function, class, module, enum member."""

    __slots__ = ("obj", "source")

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    @property
    def pytype(self) -> type:
        return type(self.obj)

    def __repr__(self) -> str:
        return f"Known({self.obj!r})"


class TensorNode:
    """A tensor that flows through the graph: its node, its fake, and where it lived at entry (None if computed)."""

    __slots__ = ("fake", "node", "pytype", "source")

    def __init__(self, node: torch.fx.Node, fake: Any, pytype: type, source: Source | None = None) -> None:
        self.node = node
        self.fake = fake
        self.pytype = pytype
        self.source = source

    def __repr__(self) -> str:
        return f"TensorNode({self.node})"


class Object:
    """Identity only: a reference into the heap, and the exact type."""

    __slots__ = ("pytype", "ref")

    def __init__(self, ref: int, pytype: type) -> None:
        self.ref = ref
        self.pytype = pytype

    def __repr__(self) -> str:
        return f"Object({self.pytype.__name__}#{self.ref})"


class Lazy:
    """Something nothing has looked at yet: only its source is known. It may be moved, not used."""

    __slots__ = ("pytype", "source")

    def __init__(self, pytype: type, source: Source) -> None:
        self.pytype = pytype
        self.source = source

    def __repr__(self) -> str:
        return f"Lazy({self.source})"


class Symbol:
    """A number known as an expression over sizes: a graph node and its symbolic example."""

    __slots__ = ("fake", "node", "pytype", "source")

    def __init__(self, node: torch.fx.Node, fake: Any, pytype: type, source: Source | None = None) -> None:
        self.node = node
        self.fake = fake
        self.pytype = pytype
        self.source = source


class Absent:
    """No value: an unbound local, a deleted attribute, the NULL beside a callable."""

    __slots__ = ()
    pytype = type(None)

    def __repr__(self) -> str:
        return "ABSENT"


Value: TypeAlias = Known | TensorNode | Object | Lazy | Symbol | Absent
ABSENT = Absent()
NONE = Known(None)
TRUE = Known(True)
FALSE = Known(False)
ZERO, ONE = Known(0), Known(1)
NO_ITEMS = Known(())


def boolean(answer: bool) -> Known:
    """Return the Known bool."""
    return TRUE if answer else FALSE


def is_none(value: Value) -> bool:
    """Return whether it is the None that nothing depends on."""
    return value.__class__ is Known and value.obj is None
