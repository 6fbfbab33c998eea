"""Exceptions: made, raised, caught and asked about. One that was raised stays in the capture: where it passed cannot be
made again, so a frame that keeps such an exception is left before it."""

from __future__ import annotations

import sys
import types
from typing import Any

from torchdynamo._native import type_name
from torchdynamo.capture.vm import attribute_writes, c_fields
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.exception_state import state_of
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import class_lookup, guard_bases
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, is_open, models, plain_new, rebuilds
from torchdynamo.capture.vm.wrap import lift, wrap
from torchdynamo.core.signals import Break, Raised, Restart
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import ABSENT, FALSE, NONE, TRUE, Known, Object, Value

KEYWORDS: dict[type, tuple[str, ...]] = {  # what else these take, and keep
    ImportError: ("name", "path"),
    AttributeError: ("name", "obj"),
    NameError: ("name",),
}


def native(cls: type) -> type:
    """Return the class written in C that an exception is an instance of."""
    return next(base for base in cls.__mro__ if not is_open(base))


def fields_of(cls: type) -> dict[str, str]:
    """Return what instances of a class keep beside the arguments: names in C, and names in their entities."""
    kinds = (types.MemberDescriptorType, types.GetSetDescriptorType)
    bases = [base for base in reversed(cls.__mro__) if not is_open(base) and base not in PLAIN]
    found = [(base, name) for base in bases for name, each in base.__dict__.items() if type(each) in kinds]
    return {name: c_fields.name_of(cls, base, name) for base, name in found}


PLAIN = (BaseException, object)


@models(BaseException, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    real = cls.obj
    if real is OSError and len(args) > 1:  # which of its subclasses it is, the number says
        real = type(OSError(*(vm.concretely(arg) for arg in args)))
    made = vm.new(real, list(args))
    keep(vm, made, args)
    return made


@models(BaseException, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    entity = vm.entity(self)
    taken = next((names for base, names in KEYWORDS.items() if issubclass(self.pytype, base)), ())
    if any(name not in taken for name in kwargs):
        if taken:
            raise Break("unknown call", name=self.pytype.__name__)
        raise vm.error(TypeError, f"{type_name(self.pytype)}() takes no keyword arguments")
    if not entity.fresh:
        raise Break("side effect not replayable", what=f"{self.pytype.__name__}.__init__()")
    vm.effects.items(entity)
    entity.items = list(args)
    keep(vm, self, args)
    names = fields_of(self.pytype)
    vm.effects.write_all(entity, {names[name]: value for name, value in kwargs.items()})
    return NONE


def keep(vm: Machine, made: Object, args: tuple[Value, ...]) -> None:
    """Store the fields that the arguments fill."""
    names = fields_of(made.pytype)
    if not names:
        return
    entity, cls = vm.entity(made), native(made.pytype)
    if any(issubclass(cls, base) for base in KEYWORDS):
        vm.effects.write_all(entity, dict.fromkeys(names.values(), NONE))
        if "msg" in names:
            vm.effects.write(entity, names["msg"], args[0] if len(args) == 1 else NONE)
    elif issubclass(cls, StopIteration):
        vm.effects.write(entity, names["value"], args[0] if args else NONE)
    elif issubclass(cls, SystemExit):
        code = vm.make_tuple(list(args)) if len(args) > 1 else args[0] if args else NONE
        vm.effects.write(entity, names["code"], code)
    else:
        keep_as_it_does(vm, made, cls, names, args)


def keep_as_it_does(vm: Machine, made: Object, cls: type, names: dict[str, str], args: tuple[Value, ...]) -> None:
    """Store the fields of an exception of constants, as a real one made of them has them."""
    try:
        sample = cls(*(vm.concretely(arg) for arg in args))
    except (TypeError, ValueError) as error:
        raise vm.refused(error) from None
    entity = vm.entity(made)
    entity.items = [lift(vm, arg) for arg in sample.args]
    for name, key in names.items():
        value = getattr(sample, name, MISSING)
        if value is not MISSING:
            vm.effects.write(entity, key, lift(vm, value))
            if value is None:  # to store None is not the same as to store nothing
                entity.loaded[key] = entity.attrs[key]


@rebuilds(BaseException)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Materialize an exception as the frame left it, without running its `__init__` again."""
    if state_of(entity).raised:
        raise Restart(entity.born - 1)
    push_call(emit, bare, entity.pytype, *(entity.items or ()))


def bare(cls: type[BaseException], *args: Any) -> BaseException:
    made: BaseException = plain_new(cls)(cls, *args)
    ARGS.__set__(made, args)
    return made


ARGS: Any = BaseException.__dict__["args"]


# -- attributes -------------------------------------------------------------------------------------------------------
def args_of(vm: Machine, self: Object) -> list[Value]:
    """Return the arguments that an exception was made with."""
    entity = vm.entity(self)
    if entity.items is None and not entity.fresh:
        assert entity.source is not None
        entity.items = list(vm.iterate(c_fields.read(vm, self, BaseException, "args")))
    return list(entity.items or ())


@models(BaseException, ".args")
def args(vm: Machine, self: Object) -> Value:
    return vm.make_tuple(args_of(vm, self))


def chained(name: str, default: Value, always: bool) -> None:
    """Register an attribute that raising may fill. With `always`, what the frame wrote to it stays true."""

    def row(vm: Machine, self: Object) -> Value:
        entity = vm.entity(self)
        if not entity.fresh:
            assert entity.source is not None
            return wrap(vm, getattr(entity.real, name), Source("attr", entity.source, name))
        if state_of(entity).raised and not always and name not in entity.attrs:
            nothing_handled_at_entry(vm)
        return entity.attrs.get(name, default)

    models(BaseException, "." + name)(row)


for _name, _default, _always in (
    ("__cause__", NONE, True),
    ("__suppress_context__", FALSE, True),
    ("__context__", NONE, False),
):
    chained(_name, _default, _always)


@models(BaseException, ".__traceback__")
def traceback(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.fresh:
        return vm.new(types.TracebackType) if state_of(entity).raised else NONE
    assert entity.source is not None
    return wrap(vm, entity.real.__traceback__, Source("attr", entity.source, "__traceback__"))


@models(types.TracebackType, "__getattribute__")
def traceback_getattr(vm: Machine, self: Object, name: str) -> Value:
    """Refuse to read a traceback's attributes, which only eager Python knows. It may be passed around."""
    raise Break("unsupported attribute", name=name, type="traceback")


@models(BaseException, "__setattr__")
def setattr_(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    """Set an attribute. Ends the graph for an exception that existed, of which C does more than a replay could."""
    text, entity = name.obj, vm.entity(self)
    own = class_lookup(self.pytype, text) is BaseException.__dict__.get(text)
    held = own and text in ("args", "__traceback__", "__context__", "__cause__", "__suppress_context__")
    if not held and fields_of(self.pytype).get(text) != text:
        attribute_writes.generic_setattr(vm, self, text, value)
        return NONE
    if not entity.fresh or not held or value is ABSENT:
        raise Break("unsupported attribute write", name=text, type=self.pytype.__name__)
    if text == "args":
        items = list(vm.iterate(value))
        vm.effects.items(entity)
        entity.items = items
    elif text == "__traceback__":
        set_traceback(vm, self, value)
    elif text == "__suppress_context__":
        vm.effects.write(entity, text, Known(vm.truth(value)))
    else:
        set_linked(vm, self, text, value)
    return NONE


def set_traceback(vm: Machine, self: Object, value: Value) -> None:
    if value is not NONE and value.pytype not in (types.TracebackType, type(None)):
        raise vm.error(TypeError, "__traceback__ must be a traceback or None")
    if value.pytype is types.TracebackType:
        vm.note_raised(self)


def set_linked(vm: Machine, self: Object, name: str, value: Value) -> None:
    """Set `__cause__` or `__context__`."""
    if not issubclass(value.pytype, (BaseException, type(None))):
        raise vm.error(TypeError, f"exception {name.strip('_')} must be None or derive from BaseException")
    c_fields.hold(vm, vm.entity(self), BaseException, **{name: value})
    if name == "__cause__":
        c_fields.hold(vm, vm.entity(self), BaseException, __suppress_context__=TRUE)


@models(BaseException, "with_traceback")
def with_traceback(vm: Machine, self: Object, value: Value) -> Value:
    if not vm.entity(self).fresh:
        raise Break("unsupported method", name="with_traceback", type=self.pytype.__name__)
    set_traceback(vm, self, value)
    return self


@models(BaseException, "add_note")
def add_note(vm: Machine, self: Object, note: Value) -> Value:
    if not issubclass(note.pytype, str):
        raise vm.error(TypeError, f"note must be a str, not {type_name(note.pytype)!r}")
    notes = vm.has_attribute(self, "__notes__")
    if notes is None:
        notes = vm.new(list, [])
        vm.setattr(self, "__notes__", notes)
    vm.call_method(notes, "append", note)
    return NONE


# -- text -------------------------------------------------------------------------------------------------------------
@models(KeyError, "__str__")
def key_error_str(vm: Machine, self: Object) -> Value:
    """Return the text of a KeyError: of one key, its repr."""
    given = args_of(vm, self)
    return vm.call(Known(repr), given, {}) if len(given) == 1 else exception_str(vm, self)


@models(BaseException, "__str__")
def exception_str(vm: Machine, self: Object) -> Value:
    says = next(base for base in self.pytype.__mro__ if "__str__" in base.__dict__)
    if says not in SAY_ARGS and not is_open(says):
        return said_by_fields(vm, self, says)
    given = args_of(vm, self)
    if len(given) == 1:
        return vm.call(Known(str), given, {})
    return vm.call(Known(str), [vm.make_tuple(given)], {}) if given else Known("")


SAY_ARGS = (BaseException, ImportError, KeyError, AttributeError, NameError)


def said_by_fields(vm: Machine, self: Object, says: type[BaseException]) -> Value:
    """Return the text that a real exception with these fields has."""
    entity = vm.entity(self)
    if not entity.fresh:
        raise Break("unsupported method", name="__str__", type=says.__name__)
    sample = bare(native(self.pytype), *(vm.concretely(arg) for arg in args_of(vm, self)))
    for name, key in fields_of(self.pytype).items():
        value = entity.attrs.get(key)
        if value is not None and value is not ABSENT and value is not entity.loaded.get(key):
            object.__setattr__(sample, name, vm.concretely(value))
    return Known(says.__str__(sample))


# -- what is being handled --------------------------------------------------------------------------------------------
HANDLED = Source("call", Source("pinned", None, Pinned(sys.exc_info)), ())


def handled(vm: Machine) -> Object | None:
    """Return the exception that is being handled, in this function or in one that called it."""
    found = [exc for frame in vm.frames for exc in frame.handling]
    if found:
        return found[-1]
    nothing_handled_at_entry(vm)
    return None


def nothing_handled_at_entry(vm: Machine) -> None:
    """Guard that the frame's caller is not handling an exception."""
    if vm.handled_at_entry is not None:
        raise Break("unknown call", name="sys.exc_info")
    vm.guard(HANDLED, "EQUALS_MATCH", (None, None, None))


@function(sys.exc_info)
def exc_info(vm: Machine) -> Value:
    exc = handled(vm)
    if exc is None:
        return lift(vm, (None, None, None))
    return vm.make_tuple([Known(exc.pytype), exc, vm.new(types.TracebackType)])


def exception(vm: Machine) -> Value:
    return handled(vm) or NONE


if hasattr(sys, "exception"):
    function(sys.exception)(exception)


def raise_again(vm: Machine) -> Raised:
    """Return the signal of `raise` without an exception."""
    exc = handled(vm)
    return vm.error(RuntimeError, "No active exception to reraise") if exc is None else Raised(exc)


def raise_new(vm: Machine, exc: Value, cause: Value | None = None) -> Raised:
    """Return the signal of `raise exc from cause`."""
    if exc.__class__ is Known and isinstance(exc.obj, type) and issubclass(exc.obj, BaseException):
        exc = vm.call(exc, [], {})
    if exc.__class__ is not Object or not issubclass(exc.pytype, BaseException):
        if exc.__class__ is Known and isinstance(exc.obj, BaseException):
            raise Break("side effect not replayable", what="raising an exception that existed")
        raise vm.error(TypeError, "exceptions must derive from BaseException")
    entity = vm.entity(exc)
    if not entity.fresh:
        raise Break("side effect not replayable", what="raising an exception that existed")
    vm.effects.remember(entity, state_of(entity)._replace(whole=None))  # by itself, it is no part of a group any more
    vm.put_in_context(exc)
    if cause is not None:
        if cause.__class__ is Known and isinstance(cause.obj, type) and issubclass(cause.obj, BaseException):
            cause = vm.call(cause, [], {})
        if not issubclass(cause.pytype, (BaseException, type(None))):
            raise vm.error(TypeError, "exception causes must derive from BaseException")
        set_linked(vm, exc, "__cause__", cause)
    return Raised(exc)


def matches(vm: Machine, exc: Value, classes: Value) -> bool:
    """Return whether `except classes` catches an exception."""
    wanted = vm.concretely(classes)
    for cls in wanted if isinstance(wanted, tuple) else (wanted,):
        if not isinstance(cls, type) or not issubclass(cls, BaseException):
            raise vm.error(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    guard_bases(vm, exc.pytype)
    return any(cls in exc.pytype.__mro__ for cls in (wanted if isinstance(wanted, tuple) else (wanted,)))
