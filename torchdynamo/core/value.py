"""Values: what capture knows of a Python object. There are six kinds, immutable and never subclassed."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch.fx

from torchdynamo.core.source import Source


class Known:
    """A Python object that is constant in this capture: a constant, function, class, module, enum member."""

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
    """A tensor that flows through the graph: its node, its fake tensor, and its source (None if computed)."""

    __slots__ = ("fake", "node", "pytype", "source")

    def __init__(self, node: torch.fx.Node, fake: Any, pytype: type, source: Source | None = None) -> None:
        self.node = node
        self.fake = fake
        self.pytype = pytype
        self.source = source

    def __repr__(self) -> str:
        return f"TensorNode({self.node})"


class Object:
    """A reference to an object in the heap, by identity, and its exact type."""

    __slots__ = ("pytype", "ref")

    def __init__(self, ref: int, pytype: type) -> None:
        self.ref = ref
        self.pytype = pytype

    def __repr__(self) -> str:
        return f"Object({self.pytype.__name__}#{self.ref})"


class Lazy:
    """An object that nothing has looked at yet: only its type and source are known. It can be moved but not used."""

    __slots__ = ("pytype", "source")

    def __init__(self, pytype: type, source: Source) -> None:
        self.pytype = pytype
        self.source = source

    def __repr__(self) -> str:
        return f"Lazy({self.source})"


class Symbol:
    """A number of the graph: its node and its symbolic value."""

    __slots__ = ("fake", "node", "pytype", "source")

    def __init__(self, node: torch.fx.Node, fake: Any, pytype: type, source: Source | None = None) -> None:
        self.node = node
        self.fake = fake
        self.pytype = pytype
        self.source = source


class Absent:
    """The absence of a value: an unbound local, a deleted attribute, the NULL beside a callable."""

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
    """Return a truth value as a Known."""
    return TRUE if answer else FALSE


def is_none(value: Value) -> bool:
    """Return whether a value is a None that is known without a guard."""
    return value.__class__ is Known and value.obj is None
