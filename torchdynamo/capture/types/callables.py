"""Functions made in the frame, bound methods, partials, super, cells, properties as values."""

from __future__ import annotations

import functools
import types
from typing import Any

from torchdynamo.bytecode.qualnames import qualname_of
from torchdynamo.bytecode.versions import docstring
from torchdynamo.capture.frame import MadeFunction
from torchdynamo.capture.vm import c_fields, lookup, namespaces
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, models, passes_on, rebuilds
from torchdynamo.capture.vm.operators import inverting
from torchdynamo.capture.vm.wrap import lift, wrap
from torchdynamo.core.naming import class_name
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, Value, boolean


@models(types.FunctionType, "__call__")
@passes_on
def call_function(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Call a function that the frame made."""
    return vm.enter_function(vm.entity(self).payload_as(MadeFunction).parts, self, list(args), dict(kwargs))


@models(types.FunctionType, "__get__")
def bind_function(vm: Machine, self: Value, obj: Value, cls: Value = NONE) -> Value:
    if obj.__class__ is Known and obj.obj is None:
        return self
    return vm.bound_method(obj, self, "")


FUNCTION_NAMES = tuple(  # what this Python's functions have of these
    name
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__type_params__")
    if hasattr(types.FunctionType, name)
)
VALUE_FORMAT = 1  # annotationlib.Format.VALUE: what a function that makes annotations is asked for
FUNCTION_PARTS = {"__defaults__": "defaults", "__kwdefaults__": "kwdefaults", "__closure__": "closure"}


def made_name(field: str) -> Any:
    def row(vm: Machine, self: Value) -> Value:
        if self.__class__ is Known:
            name, source = getattr(self.obj, field), self.source
            return wrap(vm, name, Source("attr", source, field)) if source is not None else lift(vm, name)
        assert self.__class__ is Object
        entity = vm.entity(vm.as_object(self))
        if field in entity.attrs:
            return entity.attrs[field]
        parts = entity.payload_as(MadeFunction).parts
        code, space = parts.code, parts.globals
        answers = {
            "__name__": code.co_name,
            "__doc__": docstring(code),
            "__module__": space.real.get("__name__"),
            "__type_params__": (),
        }
        return Known(answers.get(field, qualname_of(code)))

    return row


def made_part(field: str, given: str) -> Any:
    def row(vm: Machine, self: Value) -> Value:
        if self.__class__ is Known:
            real, source = self.obj, self.source
            part = getattr(real, field)
            return wrap(vm, part, Source("attr", source, field)) if source is not None else lift(vm, part)
        return vm.entity(vm.as_object(self)).payload_as(MadeFunction).given.get(given, NONE)

    return row


for _field in FUNCTION_NAMES:
    models(types.FunctionType, "." + _field)(made_name(_field))
for _field, _given in FUNCTION_PARTS.items():
    models(types.FunctionType, "." + _field)(made_part(_field, _given))


@models(types.FunctionType, ".__code__")
def function_code(vm: Machine, self: Value) -> Value:
    """Return a function's code object: the guard on a function is a guard on its code."""
    if self.__class__ is Known:
        return Known(self.obj.__code__)
    assert self.__class__ is Object
    return Known(vm.entity(self).payload_as(MadeFunction).parts.code)


def function_annotate(vm: Machine, self: Value) -> Value:
    """Return the function that makes a function's annotations, or None. Newer Pythons have such."""
    if self.__class__ is not Known:
        entity = vm.entity(vm.as_object(self))
        if "__annotate__" in entity.attrs:
            return entity.attrs["__annotate__"]
    return made_part("__annotate__", "annotate")(vm, self)


if "__annotate__" in vars(types.FunctionType):
    models(types.FunctionType, ".__annotate__")(function_annotate)


@models(types.FunctionType, ".__annotations__")
def function_annotations(vm: Machine, self: Value) -> Value:
    if self.__class__ is Known:
        real, source = self.obj, self.source
        if source is None:
            return lift(vm, real.__annotations__)
        return wrap(vm, real.__annotations__, Source("attr", source, "__annotations__"))
    assert self.__class__ is Object
    entity = vm.entity(self)
    if "__annotations__" not in entity.attrs:
        given = entity.payload_as(MadeFunction).given
        made_by = function_annotate(vm, self)
        if not (made_by.__class__ is Known and made_by.obj is None):
            notes = vm.call(made_by, [Known(VALUE_FORMAT)], {})
        else:
            flat = list(vm.iterate(given["annotations"])) if "annotations" in given else []
            notes = vm.make_dict(zip(flat[::2], flat[1::2]))
        vm.effects.look(entity, "__annotations__", notes)
    return entity.attrs["__annotations__"]


@models(types.FunctionType, "__setattr__")
def set_function_attribute(vm: Machine, self: Value, name: Known, value: Value) -> Value:
    """Set an attribute of a function that the frame made. Ends the graph where that changes what it runs."""
    if self.__class__ is not Object or name.obj in ("__code__", *FUNCTION_PARTS):
        raise Break("unsupported attribute write", name=name.obj, type="function")
    entity = vm.entity(self)
    vm.effects.write(entity, name.obj, value)
    return NONE


@rebuilds(types.FunctionType)
def rebuild_function(emit: Emitter, entity: Entity) -> None:
    made = entity.payload_as(MadeFunction)
    if emit.is_home(made.parts.globals):
        for part in made.given.values():
            emit.value(part)
        emit.const(made.parts.code)
        emit.op("MAKE_FUNCTION", tuple(made.given))
    else:  # it was made by a function that was followed, in a module of its own
        emit.function(function_of)
        emit.const(made.parts.code)
        emit.namespace(made.parts.globals)
        emit.const(tuple(made.given))
        for part in made.given.values():
            emit.value(part)
        emit.op("CALL", (3 + len(made.given), ()))
    emit.fields(entity.attrs)


def function_of(code: types.CodeType, space: dict[str, Any], names: tuple[str, ...], *given: Any) -> types.FunctionType:
    """Return a function of this code, as MAKE_FUNCTION does, whose globals are those of another module."""
    parts = dict(zip(names, given))
    fn = types.FunctionType(code, space, None, parts.get("defaults"), parts.get("closure"))
    if "kwdefaults" in parts:
        fn.__kwdefaults__ = parts["kwdefaults"]
    if "annotate" in parts:
        fn.__annotate__ = parts["annotate"]  # type: ignore[attr-defined, unused-ignore]
        return fn
    notes = parts.get("annotations", ())
    fn.__annotations__ = dict(zip(notes[::2], notes[1::2])) if isinstance(notes, tuple) else notes
    return fn


@rebuilds(types.CellType)
def rebuild_cell(emit: Emitter, entity: Entity) -> None:
    """Materialize a variable of an inlined function, for the functions that share it."""
    push_call(emit, types.CellType)
    emit.keep(entity)  # before its contents, which may lead back to it
    if not emit.waits(entity, entity.attrs.get("cell_contents")):
        emit.fields(entity.attrs)


@models(types.MethodType, "__call__")
@models(types.BuiltinMethodType, "__call__")
@models(types.MethodWrapperType, "__call__")
@passes_on
def call_method(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    direct, vm.direct = vm.direct, False
    owner, fn = parts_of(vm, self)
    vm.direct = direct
    return vm.call(fn, [owner, *args], dict(kwargs))


@models(types.MethodType, "__new__")
def new_method(vm: Machine, cls: Known, fn: Value, owner: Value) -> Value:
    return vm.new(types.MethodType, __self__=owner, __func__=fn)


@models(types.MethodType, "__init__")
def init_method(vm: Machine, self: Object, *args: Value) -> Value:
    return NONE


def parts_of(vm: Machine, self: Object) -> tuple[Value, Value]:
    if self.__class__ is not Object:
        raise Break("unsupported attribute", name="__self__", type=self.pytype.__name__)
    entity = vm.entity(self)
    if entity.real is MISSING:
        return entity.attrs["__self__"], entity.attrs["__func__"]
    assert entity.source is not None
    owner = wrap(vm, entity.real.__self__, Source("attr", entity.source, "__self__"))
    if self.pytype is types.MethodType:
        return owner, wrap(vm, entity.real.__func__, Source("attr", entity.source, "__func__"))
    found = lookup.class_lookup(owner.pytype, entity.real.__name__)
    if type(found) not in lookup.PLAIN_METHODS:
        raise Break("unknown call", name=entity.real.__name__)
    vm.guard(Source("attr", entity.source, "__name__"), "EQUALS_MATCH", entity.real.__name__)
    return owner, Known(found)


@models(types.MethodType, ".__self__")
@models(types.BuiltinMethodType, ".__self__")
def method_self(vm: Machine, self: Object) -> Value:
    return parts_of(vm, self)[0]


@models(types.MethodType, ".__func__")
def method_func(vm: Machine, self: Object) -> Value:
    return parts_of(vm, self)[1]


@models(types.MethodType, ".__doc__")
def method_doc(vm: Machine, self: Object) -> Value:
    return vm.getattr(parts_of(vm, self)[1], "__doc__")


@models(types.BuiltinMethodType, ".__qualname__")
def builtin_method_qualname(vm: Machine, self: Value) -> Value:
    if self.__class__ is Known:
        return Known(self.obj.__qualname__)
    owner, fn = parts_of(vm, vm.as_object(self))
    return Known(f"{class_name(owner.pytype)}.{vm.known(fn, 'method').__name__}")


@models(types.MethodType, "__eq__")
def same_method(vm: Machine, self: Object, other: Value) -> Value:
    """Return whether two bound methods are one function of one object."""
    if other.pytype is not types.MethodType:
        return Known(NotImplemented)
    (owner, fn), (their_owner, their_fn) = parts_of(vm, self), parts_of(vm, vm.as_object(other))
    return boolean(vm.identical(owner, their_owner) and vm.truth(vm.binary("==", fn, their_fn)))


models(types.MethodType, "__ne__")(inverting(same_method))


@models(types.MethodType, "__getattr__")
def method_getattr(vm: Machine, self: Object, name: str) -> Value:
    """Return an attribute of a bound method's function, which a method shows as its own."""
    return vm.getattr(parts_of(vm, self)[1], name)


@rebuilds(types.MethodType)
def rebuild_method(emit: Emitter, entity: Entity) -> None:
    push_call(emit, types.MethodType, entity.attrs["__func__"], entity.attrs["__self__"])


@rebuilds(types.BuiltinMethodType)
def rebuild_builtin_method(emit: Emitter, entity: Entity) -> None:
    """Materialize a method of C by its descriptor: a look-up by name may find another (`super().__call__`)."""
    push_call(emit, _bind, entity.attrs["__func__"], entity.attrs["__self__"])


def _bind(descriptor: Any, owner: Any) -> Any:
    """Bind a descriptor as looking it up on the owner would; functions of pybind11 do not bind themselves."""
    if not hasattr(type(descriptor), "__get__"):
        return types.MethodType(descriptor, owner)
    return descriptor.__get__(owner, type(owner))


@models(functools.partial, "__call__")
def call_partial(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    fn, given, named = (c_fields.read(vm, self, functools.partial, name) for name in PARTS_OF_PARTIAL)
    known = {vm.known(key, "keyword"): value for key, value in vm.dict_items(named)}
    return vm.call(fn, [*vm.iterate(given), *args], {**known, **kwargs})


@models(functools.partial, "__new__")
def new_partial(vm: Machine, cls: Known, fn: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Make a partial. One of a bare partial takes that one's function and arguments, as Python does."""
    given, named = list(args), dict(kwargs)
    if fn.__class__ is Object and issubclass(fn.pytype, functools.partial) and is_bare(vm, fn):
        fn, inner, known = (c_fields.read(vm, fn, functools.partial, name) for name in PARTS_OF_PARTIAL)
        given = [*vm.iterate(inner), *given]
        named = {**{vm.known(key, "keyword"): value for key, value in vm.dict_items(known)}, **named}
    made = vm.new(cls.obj)
    keywords = vm.make_dict((Known(name), value) for name, value in named.items())
    c_fields.hold(vm, vm.entity(made), functools.partial, func=fn, args=vm.make_tuple(given), keywords=keywords)
    return made


def is_bare(vm: Machine, partial: Object) -> bool:
    """Return whether a partial has no attributes beside what it is made of."""
    if lookup.class_lookup(partial.pytype, "__call__") is not functools.partial.__dict__["__call__"]:
        return False
    entity = vm.entity(partial)
    own = namespaces.own_attributes(vm, entity)
    if own is not None and entity.source is not None:
        vm.guard(Source("dict", entity.source), "LENGTH", len(own))
    return not own and set(entity.attrs) <= set(PARTS_OF_PARTIAL)


@models(functools.partial, "__init__")
def init_partial(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    return NONE


@rebuilds(functools.partial)
def rebuild_partial(emit: Emitter, entity: Entity) -> None:
    own = [c_fields.name_of(entity.pytype, functools.partial, name) for name in PARTS_OF_PARTIAL]
    push_call(emit, _make_partial, entity.pytype, *(entity.attrs[name] for name in own))
    emit.fields({name: value for name, value in entity.attrs.items() if name not in own})


PARTS_OF_PARTIAL = ("func", "args", "keywords")


def _make_partial(cls: type[functools.partial[Any]], fn: Any, args: Any, keywords: Any) -> Any:
    return functools.partial.__new__(cls, fn, *args, **keywords)
