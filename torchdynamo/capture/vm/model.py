"""The tables of what torchdynamo knows of Python, and the interfaces their rows are written against.

A *type model* is a function for one `(type, slot)`; slots bear Python's own names (`__getitem__`, `append`), and are
found along the exact type's MRO, where a method the user wrote in Python wins. A *function model* is for one callable
object; a *polyfill* says a C function again in Python, to be captured like the user's own code.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.frame import Globals
    from torchdynamo.capture.vm.heap import Entity, Heap
    from torchdynamo.capture.vm.machine import Machine
    from torchdynamo.core.source import Source

Model = Callable[..., Any]  # gives a Value
Row = TypeVar("Row", bound=Callable[..., Any])
Held = TypeVar("Held")
Slot = tuple[str, Any]  # ("model", function) | ("python", (class, raw attribute)) | ("missing", None)

MODELS: dict[tuple[type, str], Model] = {}
_modelled: dict[tuple[type, str], Any] = {}  # of classes that can be changed: what the model speaks of
FUNCTIONS: dict[int, Model] = {}
POLYFILLS: dict[int, Callable[..., Any]] = {}
NAMED: dict[tuple[str, str], Callable[..., Any]] = {}  # polyfills of libraries that need not be there
PASSING_ON: set[Model] = set()  # those whose call is the last thing they do, and gives what they give
_kept: list[Any] = []  # the tables above go by id: what they name must live


class Table(dict[type, Held], Generic[Held]):
    """Hold what files of types give for one purpose, by type, so that its users import none of them.

    `TABLE[pytype]` and `TABLE.get(pytype)` find what is held for exactly that type.
    """

    def register(self, *pytypes: type) -> Callable[[Held], Held]:
        """Return a decorator that registers a function for these types."""

        def enter(held: Held) -> Held:
            self.update(dict.fromkeys(pytypes, held))
            return held

        return enter

    def nearest(self, pytype: type) -> Held | None:
        """Return what is held for the first class along the MRO that has something; None if none has."""
        for base in pytype.__mro__:
            held = self.get(base)
            if held is not None:
                return held
        return None


class Emitter(Protocol):
    """Define what `rebuild` and `replay` of a type may ask of codegen: a small stack assembler over values."""

    heap: Heap

    def value(self, value: Value) -> None:
        """Push a value: materialized, or fetched from where it lives."""

    def const(self, obj: Any) -> None:
        """Push a constant."""

    def function(self, fn: Any) -> None:
        """Push a constant callable, ready for arguments and `op("CALL", (count, ()))`."""

    def op(self, op: str, arg: Any = None) -> None:
        """Emit one canonical instruction."""

    def local(self, entity: Entity) -> None:
        """Push an object that has been materialized."""

    def is_home(self, space: Globals) -> bool:
        """Return whether the frame's own names are looked up in this namespace."""

    def namespace(self, space: Globals) -> None:
        """Push the dictionary of a module's names."""

    def fields(self, attrs: Mapping[str, Value]) -> None:
        """Set attributes of the object on top of the stack."""

    def waits(self, cell: Entity, contents: Value | None) -> bool:
        """Return whether a cell gets its contents later, when the class that they are is materialized."""

    def keep(self, entity: Entity) -> None:
        """Keep the object on top of the stack as the entity: whoever refers to it from now on gets this."""

    def instance(self, entity: Entity, fill: str) -> None:
        """Turn the plain container on top into an instance of the entity's class, filled by the method `fill`."""


# Make a value of an object of the type, or of a subclass, that existed at entry.
ENTER: Table[Callable[[Machine, Any, Source], Value]] = Table()
# Yield the items of a value of the type, or of a subclass.
ITERATE: Table[Callable[[Machine, Any], Iterator[Value]]] = Table()
# Emit code that makes a fresh object of the type, or of a subclass, again.
REBUILD: Table[Callable[[Emitter, Entity], None]] = Table()
# Emit code that writes the changed contents of an object that existed back to it.
REPLAY: Table[Callable[[Emitter, Entity], None]] = Table()
enters, iterates, rebuilds, replays = ENTER.register, ITERATE.register, REBUILD.register, REPLAY.register

# Return what an object that the frame made holds beside its attributes, by name.
HOLDS: Table[Callable[[Entity], Mapping[str, Value]]] = Table()
# Return what stands for a value as a dictionary key: equal for equal values.
HASH_KEY: Table[Callable[[Machine, Object], Hashable]] = Table()
# Return the plain number that an integer is that the frame made, guarded; None if it cannot be known.
NUMBER: Table[Callable[[Machine, Entity], Known | None]] = Table()
# Return the items of a dict or a set, each with what it is found by, without hashing them again.
HASHED: Table[Callable[[Machine, Object], list[tuple[Hashable, Value]]]] = Table()
# Return whether two values of the type are one object.
IDENTICAL: Table[Callable[[Machine, Any, Any], bool]] = Table()
# Return a container of constants as a real one, which is only read.
COPY: Table[Callable[[Machine, Object], object]] = Table()
# Yield the items of a constant, in its order.
CONSTANT_ITEMS: Table[Callable[[Machine, Known], Iterator[Value]]] = Table()
# Return the items of any mapping, keys and values.
PAIRS: Table[Callable[[Machine, Value], list[tuple[Value, Value]]]] = Table()
# Return the `__dict__` of an instance.
INSTANCE_DICT: Table[Callable[[Machine, Object], Value]] = Table()
# Return the `__dict__` of a class.
CLASS_DICT: Table[Callable[[Machine, type], Value]] = Table()
# Make a set of these items, put in one after the other.
BUILD_SET: Table[Callable[[Machine, Iterable[Value]], Object]] = Table()
# Return the item of a tuple that this attribute of its class, found under this name, reads; None if it reads none.
FIELD: Table[Callable[[Machine, Value, str, object], Value | None]] = Table()
# Call an object that the frame made, and which keeps results.
CACHED_CALL: Table[Callable[[Machine, Object, list[Value], dict[str, Value]], Value]] = Table()

# Of arrays whose contents a node of the graph gives: call a function with some; read an attribute; yield the items
# along the first dimension; make a tensor by a function of torch.
FLOWING_CALL: Table[Callable[[Machine, Any, list[Value], dict[str, Value]], Value]] = Table()
FLOWING_BINARY: Table[Callable[[Machine, Any, Value, Value], Value]] = Table()
FLOWING_INPUT: Table[Callable[[Machine, Any], Any]] = Table()
FLOWING_ATTRIBUTE: Table[Callable[[Machine, Object, str], Value]] = Table()
FLOWING_ITEMS: Table[Callable[[Machine, Object], Iterator[Value]]] = Table()
FLOWING_TENSOR: Table[Callable[[Machine, Any, Value, dict[str, Value]], Value]] = Table()


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
    """Register a Python function as polyfill of these C functions."""

    def register(fn: Row) -> Row:
        for obj in objs:
            POLYFILLS[id(obj)] = fn
            _kept.append(obj)
        return fn

    return register


def run_for_real(*objs: Any) -> None:
    """Register functions without side effects that depend on their arguments only: on constants they run at once."""
    for obj in objs:
        function(obj)(_run(obj))


def _run(obj: Any) -> Model:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return vm.run_pure(obj, list(args), dict(kwargs))

    return row


def ends_graph(reason: str, **words: str) -> Model:
    """Return a model that ends the graph before the call; `words` are those of the reason's text (core/reasons.py)."""

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        raise Break(reason, **words)

    return row


def present(module: Any, *names: str) -> list[Any]:
    """Return those functions of a module that this version of Python has."""
    return [getattr(module, name) for name in names if hasattr(module, name)]


def polyfill_named(module: str, *qualnames: str) -> Callable[[Row], Row]:
    """Register a polyfill of functions in a library that is not imported for that."""

    def register(fn: Row) -> Row:
        for qualname in qualnames:
            NAMED[module, qualname] = fn
        return fn

    return register


def passes_on(row: Row) -> Row:
    """Mark the model of a call that ends in another call, before which it sets `vm.direct` as it found it."""
    PASSING_ON.add(row)
    return row


def find_slot(pytype: type, name: str, start: type | None = None) -> Slot:
    """Return what runs for `name` on instances of `pytype`, a model or an attribute; searched from `start` on.

    A C type that repeats what its base does (OrderedDict, IndexError) is served by the base's model.
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
    """Return whether a program can change the attributes of a class, as of those that class statements make."""
    return cls.__flags__ & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE


LIBRARIES = ("enum", "abc", "typing")  # whose special methods look at nothing but the class or member


def is_written_by_program(found: Any) -> bool:
    """Return whether a special method is a function of the program's: it has to be followed, and not just called."""
    return type(found) is types.FunctionType and found.__module__ not in LIBRARIES


# What functions in C ask the constants they are given, and those in containers
ASKED_BY_C = frozenset(
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __index__ __int__ __float__ __complex__ __bool__ __len__ "
    "__iter__ __getitem__ __contains__ __round__ __trunc__ __floor__ __ceil__ __bytes__ __fspath__".split()
)


def is_asked_by_c(cls: type) -> bool:
    """Return whether functions in C that are given an instance of a class may call code of the program's."""
    return any(
        is_written_by_program(base.__dict__[name])
        for base in cls.__mro__
        if is_open(base)
        for name in ASKED_BY_C.intersection(base.__dict__)
    )


def plain_new(cls: type) -> Any:
    """Return `__new__` of the type in C that a class extends: it makes a bare instance and runs no user code."""
    own = ((base, base.__dict__.get("__new__")) for base in cls.__mro__)
    return next(new for base, new in own if type(new) is types.BuiltinFunctionType and new.__self__ is base)
