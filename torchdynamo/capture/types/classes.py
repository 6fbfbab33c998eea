"""Classes that the frame makes. The body is followed; a real class is made of what it left, for as long as the capture.

Such a class stays inside: replacement code that needs it, or something of it, is not written, and the graph ends before
the class statement instead. So nobody sees that calls of the frame share it. What a real class must not hold (a cell,
an object of the user) is stood for by an object that the heap knows.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import types
from typing import TYPE_CHECKING, Any

from torchdynamo.bytecode.qualnames import qualname_of
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.heap import MISSING, Missing
from torchdynamo.capture.lookup import class_lookup
from torchdynamo.capture.model import function, models
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import NONE, Known, Object, Value
from torchdynamo.capture.wrap import class_source

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

PYTHONS = ("builtins", "abc", "enum", "typing")  # whose metaclasses and `__init_subclass__` only make the class
RUN_BY_ENUM = ("__new__", "__init__", "_generate_next_value_", "_missing_")


@function(builtins.__build_class__)
def build_class(vm: Machine, body: Value, name: Value, *bases: Value, **kwargs: Value) -> Value:
    """A class statement."""
    parts = vm.entity(vm.as_object(body)).note.parts
    frame = Frame(parts.code, parts.globals, {}, parts.closure)
    frame.namespace = {}
    vm.run(frame)
    return make_class(vm, name, bases, frame.namespace, kwargs, again=frame.again)


def make_class(
    vm: Machine,
    name: Value,
    bases: tuple[Value, ...],
    names: dict[str, Value],
    kwargs: dict[str, Value],
    *,
    again: bool = False,
) -> Value:
    """The class of these names, made for real. Some may have been bound more than once, or deleted (`again`)."""
    above = tuple(vm.known(base, "class") for base in bases)
    given = {key: vm.concretely(value) for key, value in kwargs.items()}
    for meta in (given.get("metaclass"), *(type(base) for base in above)):
        prepare = getattr(class_lookup(meta, "__prepare__"), "__func__", type) if isinstance(meta, type) else type
        if (meta is not None and not isinstance(meta, type)) or prepare.__module__ not in PYTHONS:
            raise Break("unsupported instruction", name="class statement")  # `__prepare__` is code of the user's
    try:
        resolved = types.resolve_bases(above)
        meta, prepared, _ = types.prepare_class(vm.known(name, "name"), resolved, dict(given))
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    heard = check(meta, resolved, prepared, names)
    if heard and resolved is not above:
        raise Break("unsupported instruction", name="class statement")
    if again and type(prepared) is not dict:  # which may have something to say to that
        raise Break("unsupported instruction", name="class statement")
    cell = names.pop("__classcell__", None)
    real = {key: real_of(vm, value) for key, value in names.items()}
    if cell is not None:
        real["__classcell__"] = real_of(vm, cell)
    try:
        made = new_class(vm.known(name, "name"), above, given, real, heard)
    except Break:
        raise
    except Exception as error:  # what the statement itself raises
        raise vm.error(type(error), *error.args) from None
    if cell is not None:
        vm.cell_set(vm.as_object(cell), Known(made))
    vm.made_classes[made] = vm.inside[id(made)] = vm.step
    if heard:
        told = {key: value for key, value in kwargs.items() if key != "metaclass"}
        above_it = vm.new(super, cls=Known(made), obj=Known(made))
        vm.call(vm.getattr(above_it, "__init_subclass__"), [], told)
    return Known(made)


class Unheard:
    """In front of the bases while a class is made: their `__init_subclass__` is followed afterwards."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def new_class(name: str, bases: tuple[Any, ...], given: dict[str, Any], names: dict[str, Any], heard: bool) -> type:
    """The class, without what its bases would do to it if they hear of it."""
    if not heard:
        return types.new_class(name, bases, given, lambda space: fill(space, names))
    made = types.new_class(name, (Unheard, *bases), given, lambda space: fill(space, names))
    try:
        made.__bases__ = bases
    except TypeError:  # they lie in memory in another way
        raise Break("unsupported instruction", name="class statement") from None
    return made


def fill(space: Any, names: dict[str, Any]) -> None:
    for name, obj in names.items():
        space[name] = obj


def check(meta: type, bases: tuple[Any, ...], prepared: Any, names: dict[str, Value]) -> bool:
    """Nothing of the user's runs where the class is made, but for what bases say to it, if they do."""
    told = [class_lookup(base, "__init_subclass__") for base in bases if isinstance(base, type)]
    heard = any(getattr(each, "__func__", type).__module__ not in PYTHONS for each in told)
    by_enum = type(prepared) is not dict and any(name in names or written(bases, name) for name in RUN_BY_ENUM)
    kinds = {value.pytype for value in names.values()}.difference(ATTRIBUTES)
    named = any(is_told(kind, "__set_name__") for kind in kinds)
    if meta.__module__ not in PYTHONS or by_enum or named or (heard and type(prepared) is not dict):
        raise Break("unsupported instruction", name="class statement")
    return heard


def is_told(cls: type, name: str) -> bool:
    """Whether the class answers to that method, other than with C code."""
    return type(class_lookup(cls, name)) not in (Missing, types.MethodDescriptorType, types.WrapperDescriptorType)


def written(bases: tuple[Any, ...], name: str) -> bool:
    """Whether some base says this itself, Python's own aside."""
    owners = [base for cls in bases if isinstance(cls, type) for base in cls.__mro__ if name in base.__dict__]
    return any(owner.__module__ not in PYTHONS for owner in owners)


# -- what a real class holds ------------------------------------------------------------------------------------------
WRAPPERS: dict[type, tuple[str, ...]] = {  # of functions, in C: what each is made with
    property: ("fget", "fset", "fdel", "__doc__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
ATTRIBUTES = (functools.cached_property, dataclasses.Field, dataclasses.InitVar, enum.auto)  # made by attributes alone


MARKERS = ("dataclasses", "enum")  # whose own objects say that something is missing


DESCRIPTOR = ("__get__", "__set__", "__delete__", "__set_name__")  # what classes ask of what lies in them


class StandIn:
    """For something that a real class must not hold."""

    def __bool__(self) -> bool:
        raise Break("unsupported instruction", name="class statement")  # as of a method's `__isabstractmethod__`


def real_of(vm: Machine, value: Value) -> Any:
    """What lies in the class for a value. Read from there, it is the value again."""
    if value.__class__ is Known:
        return value.obj
    if value.__class__ is not Object:
        raise Break("unsupported instruction", name="class statement")
    made = vm.realized.get(value.ref)
    if made is None:
        made = vm.realized[value.ref] = make_real(vm, value)
        if value.pytype not in ATTRIBUTES:  # which learn their names when the class is made
            vm.heap.by_id[id(made)] = value
        if vm.entity(value).fresh:
            vm.inside[id(made)] = vm.step
    return made


def make_real(vm: Machine, value: Object) -> Any:
    entity, cls = vm.entity(value), value.pytype
    if not entity.fresh and (cls.__module__ in MARKERS or cls is types.MappingProxyType):
        return entity.real
    if cls is types.CellType:
        return types.CellType()
    if cls is types.FunctionType and entity.fresh:
        return real_function(vm, value)
    if entity.fresh and cls in WRAPPERS:
        return cls(*(real_of(vm, entity.attrs[name]) for name in WRAPPERS[cls] if name in entity.attrs))
    if entity.fresh and cls in ATTRIBUTES:
        plain = object.__new__(cls)
        for name, item in entity.attrs.items():
            object.__setattr__(plain, name, real_of(vm, item))
        return plain
    if entity.fresh and cls in (list, tuple, set):
        return cls(real_of(vm, item) for item in vm.iterate(value))
    if entity.fresh and cls is dict:
        return {real_of(vm, key): real_of(vm, item) for key, item in vm.dict_items(value)}
    looked_at = any(class_lookup(cls, name) is not MISSING for name in DESCRIPTOR)
    if looked_at or cls.__hash__ is None or (cls.__module__ in (*PYTHONS, *MARKERS) and cls is not object):
        raise Break("unsupported instruction", name="class statement")
    return StandIn()


def real_function(vm: Machine, value: Object) -> types.FunctionType:
    """Its code, with cells that stand for the frame's."""
    entity = vm.entity(value)
    code, space, given = entity.note.parts.code, entity.note.parts.globals, entity.note.given
    parts = {name: real_of(vm, part) for name, part in given.items() if name != "annotations"}
    fn = types.FunctionType(code, space.real, code.co_name, parts.get("defaults"), parts.get("closure"))
    fn.__qualname__ = qualname_of(code)
    if "kwdefaults" in parts:
        fn.__kwdefaults__ = parts["kwdefaults"]
    fn.__annotations__ = real_of(vm, vm.getattr(value, "__annotations__"))
    for name, item in entity.attrs.items():
        if name != "__annotations__":
            setattr(fn, name, real_of(vm, item))
    return fn


def wrapper(cls: type) -> None:
    """property, staticmethod, classmethod: what they are made with is what they show."""
    fields = WRAPPERS[cls]

    def new(vm: Machine, made: Known, /, *args: Value, **kwargs: Value) -> Value:
        if made.obj is not cls or kwargs or len(args) > len(fields):
            raise Break("unsupported type", type=made.obj.__name__)
        return vm.new(cls, **dict(zip(fields, args)))

    models(cls, "__new__")(new)

    def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        if not vm.entity(self).fresh or self.pytype is not cls:
            raise Break("unsupported method", name="__init__", type=cls.__name__)
        return NONE

    def is_abstract(vm: Machine, self: Value) -> Value:  # asks for the truth of what may be anything
        raise Break("unsupported attribute", name="__isabstractmethod__", type=cls.__name__)

    models(cls, "__init__")(init)
    models(cls, ".__isabstractmethod__")(is_abstract)


for _wrapper in WRAPPERS:
    wrapper(_wrapper)


def changer(method: str, field: str) -> None:
    """`@p.setter`: a property like this one with another function."""

    def row(vm: Machine, self: Value, fn: Value) -> Value:
        if self.__class__ is not Object or not vm.entity(self).fresh:
            raise Break("unsupported method", name=method, type="property")
        return vm.new(property, **{**vm.entity(self).attrs, field: fn})

    models(property, method)(row)


for _method, _field in (("getter", "fget"), ("setter", "fset"), ("deleter", "fdel")):
    changer(_method, _field)


# -- decorators -------------------------------------------------------------------------------------------------------
def decorator(fn: Any) -> None:
    """A function of Python's that changes a class by rules of its own: one of the frame's is changed for real."""

    def row(vm: Machine, cls: Value, *args: Value, **kwargs: Value) -> Value:
        real = vm.known(cls, "class")
        if real not in vm.made_classes or any(owner is real for owner, _ in vm.class_written):
            raise Break("unknown call", name=fn.__name__)
        given = [vm.concretely(arg) for arg in args]
        try:
            made = fn(real, *given, **{name: vm.concretely(value) for name, value in kwargs.items()})
        except (TypeError, ValueError) as error:
            raise vm.error(type(error), *error.args) from None
        forget(vm, real)
        vm.made_classes[made] = vm.inside[id(made)] = vm.made_classes[real]
        return Known(made)

    function(fn)(row)


decorator(dataclasses._process_class)  # type: ignore[attr-defined]
decorator(functools.total_ordering)


def forget(vm: Machine, cls: type) -> None:
    """The class is not what it was when it was looked at."""
    for table in (vm.class_attrs, vm.slots, vm.rows):
        for key in [key for key in table if key[0] is cls]:
            del table[key]
    source = class_source(cls)
    for fact in [fact for fact, guard in vm.guards.items() if guard.source is source]:
        del vm.guards[fact]
    for path in [path for path in vm.by_source if path.root() is source]:
        del vm.by_source[path]
