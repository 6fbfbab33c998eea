"""The tables of what torchdynamo knows of Python, and the interfaces their rows are written against.

A *type model* is a function for one `(type, slot)`; slots bear Python's own names (`__getitem__`, `append`), and are
found along the exact type's MRO, where a method the user wrote in Python wins. A *function model* is for one callable
object; a *polyfill* says a C function again in Python, to be captured like the user's own code.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torchdynamo.core.value import Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.frame import Globals
    from torchdynamo.capture.vm.heap import Entity, Heap
    from torchdynamo.capture.vm.machine import Machine
    from torchdynamo.core.source import Source

Model = Callable[..., Any]  # gives a Value; a slot in <brackets> gives what its callers say
Row = TypeVar("Row", bound=Callable[..., Any])
Slot = tuple[str, Any]  # ("model", function) | ("python", (class, raw attribute)) | ("missing", None)

MODELS: dict[tuple[type, str], Model] = {}
_modelled: dict[tuple[type, str], Any] = {}  # of classes that can be changed: what the model speaks of
FUNCTIONS: dict[int, Model] = {}
POLYFILLS: dict[int, Callable[..., Any]] = {}
NAMED: dict[tuple[str, str], Callable[..., Any]] = {}  # polyfills of libraries that need not be there
ENTER: dict[type, Callable[[Machine, Any, Source], Value]] = {}
ITERATE: dict[type, Callable[[Machine, Any], Iterator[Value]]] = {}
REBUILD: dict[type, Callable[[Emitter, Entity], None]] = {}
REPLAY: dict[type, Callable[[Emitter, Entity], None]] = {}
PASSING_ON: set[Model] = set()  # those whose call is the last thing they do, and gives what they give
_kept: list[Any] = []  # the tables above go by id: what they name must live


class Emitter(Protocol):
    """What a type's `rebuild` and `replay` may ask of codegen: a small stack assembler over values."""

    heap: Heap

    def value(self, value: Value) -> None:
        """Push a value: rebuilt, or fetched from where it lived."""

    def const(self, obj: Any) -> None:
        """Push a constant."""

    def function(self, fn: Any) -> None:
        """Push a constant callable, ready for arguments and `op("CALL", (count, ()))`."""

    def op(self, op: str, arg: Any = None) -> None:
        """One canonical instruction."""

    def local(self, entity: Entity) -> None:
        """Push the entity itself, which exists by now."""

    def is_home(self, space: Globals) -> bool:
        """Whether the frame's own names are looked up there."""

    def namespace(self, space: Globals) -> None:
        """Push the dictionary of a module's names."""

    def fields(self, attrs: Mapping[str, Value]) -> None:
        """Set these attributes of what is on top."""

    def waits(self, cell: Entity, contents: Value | None) -> bool:
        """Whether that cell gets its contents when the class that they are is made."""

    def keep(self, entity: Entity) -> None:
        """What is on top is the entity: whoever refers to it from now on gets this."""

    def instance(self, entity: Entity, fill: str) -> None:
        """The plain container on top becomes an empty instance of the entity's class, filled by that method."""


def models(pytype: type, *slots: str) -> Callable[[Row], Row]:
    """Register the model of these slots of a type."""

    def register(fn: Row) -> Row:
        for slot in slots:
            MODELS[pytype, slot] = fn
            if is_open(pytype) and slot in pytype.__dict__:
                _modelled[pytype, slot] = pytype.__dict__[slot]
        return fn

    return register


def function(*objs: Any) -> Callable[[Row], Row]:
    """Register the model of these callables."""

    def register(fn: Row) -> Row:
        for obj in objs:
            FUNCTIONS[id(obj)] = fn
            _kept.append(obj)
        return fn

    return register


def polyfill(*objs: Any) -> Callable[[Row], Row]:
    """Register a Python function that says these C functions again."""

    def register(fn: Row) -> Row:
        for obj in objs:
            POLYFILLS[id(obj)] = fn
            _kept.append(obj)
        return fn

    return register


def run_for_real(*objs: Any) -> None:
    """Register functions without effects, whose results their arguments decide: of constants they are run at once."""
    for obj in objs:
        function(obj)(_run(obj))


def _run(obj: Any) -> Model:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return vm.run_pure(obj, list(args), dict(kwargs))

    return row


def polyfill_named(module: str, *qualnames: str) -> Callable[[Row], Row]:
    """The same, of Python functions of a library that is not imported for that."""

    def register(fn: Row) -> Row:
        for qualname in qualnames:
            NAMED[module, qualname] = fn
        return fn

    return register


def passes_on(row: Row) -> Row:
    """Mark the model of a call that ends in another call, before which it sets `vm.direct` as it found it."""
    PASSING_ON.add(row)
    return row


def enters(*pytypes: type) -> Callable[[Row], Row]:
    """Register how objects of these types (and their subclasses) become values."""
    return _by_type(ENTER, pytypes)


def iterates(*pytypes: type) -> Callable[[Row], Row]:
    """Register how values of these types are iterated."""
    return _by_type(ITERATE, pytypes)


def rebuilds(*pytypes: type) -> Callable[[Row], Row]:
    """Register how codegen makes a fresh object of these types."""
    return _by_type(REBUILD, pytypes)


def replays(*pytypes: type) -> Callable[[Row], Row]:
    """Register how codegen writes changed contents back to an object that existed."""
    return _by_type(REPLAY, pytypes)


def _by_type(table: dict[type, Any], pytypes: tuple[type, ...]) -> Callable[[Row], Row]:
    def register(fn: Row) -> Row:
        for pytype in pytypes:
            table[pytype] = fn
        return fn

    return register


def for_type(table: dict[type, Any], pytype: type) -> Any:
    """The row of the nearest class along the MRO, or None."""
    for base in pytype.__mro__:
        row = table.get(base)
        if row is not None:
            return row
    return None


def find_slot(pytype: type, name: str, start: type | None = None) -> Slot:
    """What runs for `name` on instances of `pytype`: our model, or what the class says; searched from `start` on.

    A C type that says again what its base does (OrderedDict, IndexError) is served by the base's model.
    """
    written_in_c: Slot | None = None
    for base in (start or pytype).__mro__:
        model = MODELS.get((base, name))
        if model is not None and (base is not object or written_in_c is None):
            original = _modelled.get((base, name))
            if original is None or base.__dict__.get(name) is original:
                return "model", model
        if name in base.__dict__:
            if is_open(base):
                return written_in_c or ("python", (base, base.__dict__[name]))
            written_in_c = written_in_c or ("python", (base, base.__dict__[name]))
    return written_in_c or ("missing", None)


HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of C's classes, those on the heap say so


def is_open(cls: type) -> bool:
    """A class whose attributes a program can change, as those that class statements make."""
    return cls.__flags__ & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE


def plain_new(cls: type) -> Any:
    """The `__new__` of the type in C that a class extends: it makes a bare instance, and runs nothing of the user's."""
    own = ((base, base.__dict__.get("__new__")) for base in cls.__mro__)
    return next(new for base, new in own if type(new) is types.BuiltinFunctionType and new.__self__ is base)


def is_object(value: Value) -> bool:
    """Whether the value is a reference into the heap."""
    return value.__class__ is Object
