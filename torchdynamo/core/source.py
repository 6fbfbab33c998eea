"""Sources, which are interned paths to objects that exist when a frame begins, and guards, which are facts about them.

A source has three fields: *how* to take the last step, from which *base*, with what *arg*.
`self.layers[0].weight` is local 'self', then its dict, then key '_modules', and so on.
Sources are compared by identity, hold no policy, and (except `pinned`) pickle as plain data.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torchdynamo import _native
from torchdynamo.core.naming import called, class_name, has_name, is_mortal


@dataclass(frozen=True, slots=True)
class Roots:
    """The objects that a source can start from: the parts of the frame, as the hook got it."""

    locals: Mapping[str, Any]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: Mapping[str, Any]  # free variable name -> cell


class Accessor(NamedTuple):
    """A kind of step: its meaning in Python, and its text for people."""

    load: Callable[[Any, Any], Any]  # (base object or Roots, arg) -> object
    show: Callable[[str, Any], str]  # (text of base, arg) -> text


def _class_attr(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    raise AttributeError(name)


def _item(seq: Any, index: int) -> Any:
    """Return the item of a list, tuple or deque, without calling a subclass's methods. Raises TypeError for others."""
    for base in (list, tuple, deque):
        if isinstance(seq, base):
            return base.__getitem__(seq, index)  # type: ignore[index]
    raise TypeError(type(seq))


def _under_key(dct: dict[Any, Any], key: Any) -> Any:
    """Return what a dict has under a key, without asking the `__missing__` of a subclass. Raises KeyError."""
    found = dict.get(dct, key, _NOWHERE)
    if found is _NOWHERE:
        raise KeyError(key)
    return found


_NOWHERE = object()


def _under_object(dct: dict[Any, Any], key: Any) -> Any:
    for found, value in dict.items(dct):
        if found is key:
            return value
    raise KeyError(key)


def keys_in_order(dct: dict[Any, Any]) -> list[Any]:
    """Return a dict's keys in order, without calling a subclass's methods; an OrderedDict has its own order."""
    return list(OrderedDict.__iter__(dct) if isinstance(dct, OrderedDict) else dict.__iter__(dct))


def _call(fn: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(fn, weakref.ref):  # the referent, even if a user's subclass overrides the call
        return weakref.ref.__call__(fn)
    return fn(*args)


# how -> accessor. The native guard program (guards/program.py, csrc/guards.c) uses the same names.
ACCESSORS: dict[str, Accessor] = {
    # roots: the base is the Roots
    "local": Accessor(lambda roots, name: roots.locals[name], lambda _, name: name),
    "globals": Accessor(lambda roots, _: roots.globals, lambda _, __: "globals()"),
    "builtins": Accessor(lambda roots, _: roots.builtins, lambda _, __: "builtins"),
    "closure": Accessor(lambda roots, name: roots.closure[name], lambda _, name: f"cell({name})"),
    "module": Accessor(lambda _, name: sys.modules[name], lambda _, name: name),
    "pinned": Accessor(lambda _, box: box.object, lambda _, box: repr(box)),
    # steps: the base is an object
    "dict": Accessor(lambda obj, _: obj.__dict__, lambda base, _: f"{base}.__dict__"),
    "key": Accessor(_under_key, lambda base, key: f"{base}[{key!r}]"),
    # the key is the object at another source
    "keyed": Accessor(_under_object, lambda base, key: f"{base}[{key}]"),
    "item": Accessor(_item, lambda base, index: f"{base}[{index}]"),
    "attr": Accessor(getattr, lambda base, name: f"{base}.{name}"),
    # a key of a dict by its position, and its value
    "key_at": Accessor(lambda dct, at: keys_in_order(dct)[at], lambda base, at: f"list({base})[{at}]"),
    "value_at": Accessor(
        lambda dct, at: dict.__getitem__(dct, keys_in_order(dct)[at]), lambda base, at: f"list({base}.values())[{at}]"
    ),
    # a field that a C descriptor stores in the object; the descriptor is at another source
    "field": Accessor(
        lambda obj, descriptor: descriptor.__get__(obj, type(obj)), lambda base, descriptor: f"{base}.<{descriptor}>"
    ),
    "contents": Accessor(
        lambda cell, _: cell.cell_contents, lambda base, _: base.removeprefix("cell(").removesuffix(")")
    ),
    "type": Accessor(lambda obj, _: type(obj), lambda base, _: f"type({base})"),
    "class_attr": Accessor(_class_attr, lambda base, name: f"{base}.{name}"),
    # the results that functools.lru_cache keeps
    "cache": Accessor(lambda fn, _: _native.cache_of(fn), lambda base, _: f"cache({base})"),
    # only for C callables without side effects: a weakref, `torch._C._get_cudnn_enabled`
    "call": Accessor(_call, lambda base, args: f"{base}({', '.join(map(repr, args))})"),
    # a tensor's size or stride in a dimension
    "size": Accessor(lambda obj, dim: obj.size(dim), lambda base, dim: f"{base}.size({dim})"),
    "stride": Accessor(lambda obj, dim: obj.stride(dim), lambda base, dim: f"{base}.stride({dim})"),
    # only for tensors, sets and locks, and methods without side effects: `storage_offset`
    "method": Accessor(lambda obj, name: getattr(obj, name)(), lambda base, name: f"{base}.{name}()"),
    # what a function of this package, written in Python, says of the object
    "asked": Accessor(lambda obj, fn: fn(obj), lambda base, fn: f"{fn.__name__}({base})"),
}
LED_TO = frozenset({"keyed", "field"})  # steps whose arg is another source
ROOTS = frozenset({"local", "globals", "builtins", "closure", "module", "pinned"})


class Pinned:
    """An object that a source begins at; only for objects that own nothing of the user's (classes, C functions).

    It is held, except for a class that can be freed: then its source goes as well, with all that begin there.
    """

    __slots__ = ("address", "held", "text", "weak")

    def __init__(self, object: Any) -> None:
        self.address = id(object)
        self.text = called(object) if has_name(object) else class_name(type(object))
        self.weak = weakref.ref(object) if is_mortal(object) else None
        self.held = None if self.weak is not None else object

    @property
    def object(self) -> Any:
        """The pinned object; None if it has been freed."""
        return self.held if self.weak is None else self.weak()

    def __eq__(self, other: Any) -> bool:
        return type(other) is Pinned and other.address == self.address

    def __hash__(self) -> int:
        return self.address

    def __repr__(self) -> str:
        return self.text


class Source:
    """An interned path, made by the functions below: equal paths are the same object."""

    __slots__ = ("__weakref__", "arg", "base", "how", "table")
    how: str
    base: Source | None
    arg: Any
    table: dict[tuple[Any, ...], Source]  # paths that continue this one

    _interned: ClassVar[dict[tuple[Any, ...], Source]] = {}

    def __new__(cls, how: str, base: Source | None = None, arg: Hashable = None) -> Source:
        key = cls._key(how, base, arg)
        table = cls._interned if base is None else base.table
        self = table.get(key)
        if self is None:
            self = object.__new__(cls)
            self.how, self.base, self.arg = how, base, arg
            self.table = table
            table[key] = self
            if how == "pinned":
                self.pin(key)
        return self

    @staticmethod
    def _key(how: str, base: Source | None, arg: Any) -> tuple[Any, ...]:
        """Return the key of a path in its table. Weak references may be equal, and count as different ones."""
        return how, base, type(arg), id(arg) if isinstance(arg, weakref.ref) else arg

    def forget(self) -> None:
        """Drop the path from its table: it leads nowhere any more."""
        self.table.pop(self._key(self.how, self.base, self.arg), None)

    def pin(self, key: tuple[Any, ...]) -> None:
        """Hold the object weakly if it can be freed; sources that begin at it are dropped with it."""
        pinned, table = self.arg, self.table
        if pinned.weak is not None:
            pinned.weak = weakref.ref(pinned.object, lambda _: table.pop(key, None))
            self.table = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Source, (self.how, self.base, self.arg)

    def load(self, roots: Roots) -> Any:
        """Return the object at this source by walking the path in Python; for capture and tests,
        hits do it natively.
        """
        base = roots if self.base is None else self.base.load(roots)
        arg = self.arg.load(roots) if self.how in LED_TO else self.arg
        return ACCESSORS[self.how].load(base, arg)

    def __str__(self) -> str:
        """Return the path as the user would write it, such as `self.layers[0].weight`."""
        base, how, arg = self.base, self.how, self.arg
        if how == "key" and base is not None:
            if base.how in ("globals", "builtins"):
                return str(arg)
            if base.how == "dict":
                return f"{base.base}.{arg}"
            if base.how == "key" and base.base is not None and base.base.how == "dict" and base.arg in MODULE_DICTS:
                owner, name = str(base.base.base), str(arg)
                return f"{owner}[{name}]" if name.isdigit() else f"{owner}.{name}"
        return ACCESSORS[how].show("" if base is None else str(base), arg)

    def __repr__(self) -> str:
        return f"<source {self}>"

    def root(self) -> Source:
        """Return the first step of the path."""
        source = self
        while source.base is not None:
            source = source.base
        return source


MODULE_DICTS = frozenset({"_parameters", "_buffers", "_modules"})  # their items are attributes of an nn.Module


def local(name: str) -> Source:
    """Return the source of an argument of the frame."""
    return Source("local", None, name)


def global_(name: str) -> Source:
    """Return the source of a name in the frame's globals."""
    return Source("key", Source("globals"), name)


def builtin(name: str) -> Source:
    """Return the source of a name in the frame's builtins."""
    return Source("key", Source("builtins"), name)


def free(name: str) -> Source:
    """Return the source of a free variable's value."""
    return Source("contents", Source("closure", None, name))


def instance_attr(base: Source, name: str) -> Source:
    """Return the source of an entry of an instance's `__dict__`."""
    return Source("key", Source("dict", base), name)


class Position(NamedTuple):
    """A place in the user's file. Lines start at 1, columns (in bytes) at 0; None where unknown."""

    filename: str
    line: int | None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = ""


class Guard(NamedTuple):
    """A fact about the state at entry that a capture relies on; true when it is made.

    `kind` names a row of guards/kinds; `arg` is data of that kind; `position` is the user's line that asked.
    """

    source: Source
    kind: str
    arg: Any = None
    position: Position | None = None
