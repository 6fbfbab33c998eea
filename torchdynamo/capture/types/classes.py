"""Classes that the frame makes. The body is followed; a real class is made of what it left, for as long as the capture.

Such a class stays inside: replacement code that needs it makes it again (class_again.py), and where it needs something
that leads to it (a method in C), the graph ends before the class statement. So nobody sees that calls share it.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import functools
import types
import typing
from typing import Any

from torchdynamo.capture.frame import Frame, MadeFunction
from torchdynamo.capture.types.class_contents import ATTRIBUTES, PYTHONS, is_stood_for, real_of
from torchdynamo.capture.types.supers import SuperOf
from torchdynamo.capture.vm.heap import Missing
from torchdynamo.capture.vm.lookup import class_lookup, derives, guard_metaclass
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, models
from torchdynamo.capture.vm.remade_classes import MadeClass, new_class, pushing_call
from torchdynamo.capture.vm.wrap import by_identity, class_source
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value, boolean

RUN_BY_ENUM = ("__new__", "__init__", "_generate_next_value_", "_missing_")


@function(builtins.__build_class__)
def build_class(vm: Machine, body: Value, name: Value, *bases: Value, **kwargs: Value) -> Value:
    """Execute a class statement."""
    parts = vm.entity(vm.as_object(body)).payload_as(MadeFunction).parts
    frame = Frame(parts.code, parts.globals, {}, parts.closure)
    frame.namespace = {}
    vm.run(frame)
    meta, resolved, prepared = prepare(vm, name, bases, kwargs)
    if meta.__module__ in PYTHONS:
        if frame.again and type(prepared) is not dict:  # names bound twice, or deleted: it may have something to say
            raise Break("unsupported instruction", name="class statement")
        return make_class(vm, None, (meta, resolved, prepared), name, bases, frame.namespace, kwargs)
    if resolved != [vm.known(base, "class") for base in bases]:
        raise Break("unsupported instruction", name="class statement")
    for base in resolved:
        guard_metaclass(vm, base)
    space = vm.make_dict((Known(key), value) for key, value in frame.namespace.items())
    told = {key: value for key, value in kwargs.items() if key != "metaclass"}
    made = vm.call(Known(meta), [name, vm.new(tuple, list(bases)), space], told)
    cell = frame.namespace.get("__classcell__")
    held = vm.entity(vm.as_object(cell)).attrs.get("cell_contents") if cell is not None else made
    if not (made.__class__ is held.__class__ is Known and held.obj is made.obj):
        raise Break("unsupported instruction", name="class statement")  # it was not passed on to `type.__new__`
    return made


def prepare(
    vm: Machine, name: Value, bases: tuple[Value, ...], kwargs: dict[str, Value]
) -> tuple[type, list[Any], Any]:
    """Return a class statement's metaclass, the bases as that is given them, and the namespace that it prepares."""
    above = [vm.known(base, "class") for base in bases]
    given = {key: vm.concretely(value) for key, value in kwargs.items()}
    for meta in (given.get("metaclass"), *(type(base) for base in above)):
        asked = getattr(class_lookup(meta, "__prepare__"), "__func__", type) if isinstance(meta, type) else type
        if (meta is not None and not isinstance(meta, type)) or asked.__module__ not in PYTHONS:
            raise Break("unsupported instruction", name="class statement")  # `__prepare__` is code of the user's
    try:
        resolved = types.resolve_bases(above)
        meta, prepared, _ = types.prepare_class(vm.known(name, "name"), resolved, given)
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    return meta, list(resolved), prepared


def make_class(
    vm: Machine,
    by: tuple[type, type] | None,
    prepared: tuple[type, list[Any], Any],
    name: Value,
    bases: tuple[Value, ...],
    names: dict[str, Value],
    kwargs: dict[str, Value],
) -> Value:
    """Make a class for real.

    `by`: None for a class statement, else whose `__new__` makes it, and the metaclass. `prepared`: the metaclass that
    wins, the bases as that is given them, and the namespace.
    """
    meta, resolved, space = prepared
    heard = check(meta, resolved, space, names, followed=by is not None and meta is by[1])
    above = tuple(vm.known(base, "class") for base in bases)
    if heard and tuple(resolved) != above:
        raise Break("unsupported instruction", name="class statement")
    if "__classcell__" in names and not is_empty(vm, names["__classcell__"]):
        raise Break("unsupported instruction", name="class statement")  # somebody's who has put it into two classes
    real = {key: real_of(vm, value) for key, value in names.items()}
    if type(space) is not dict and any(map(is_stood_for, real.values())):
        raise Break("unsupported instruction", name="class statement")  # members are looked at when they are made
    given = {key: vm.concretely(value) for key, value in kwargs.items()}
    try:
        made = new_class(by, vm.known(name, "name"), above, given, real, heard)
    except Break:
        raise
    except Exception as error:  # what the statement itself raises
        if heard and type(error) is TypeError:  # perhaps for the base that was put in front of them
            raise Break("unsupported instruction", name="class statement") from None
        raise vm.refused(error) from None
    if "__classcell__" in names:
        vm.cell_set(vm.as_object(names["__classcell__"]), Known(made))
    makers = NONE if by is None else vm.make_tuple([Known(each) for each in by])
    tables = [vm.make_dict((Known(key), value) for key, value in each.items()) for each in (kwargs, names)]
    parts = [makers, name, vm.make_tuple(list(bases)), *tables, boolean(heard)]
    MadeClass(vm.step, pushing_call(new_class, parts, {})).known_to(vm, made)
    if heard:
        told = {key: value for key, value in kwargs.items() if key != "metaclass"}
        above_it = vm.new(super, payload=SuperOf(Known(made), Known(made)))
        vm.call(vm.getattr(above_it, "__init_subclass__"), [], told)
    return Known(made)


def is_empty(vm: Machine, cell: Value) -> bool:
    """Return whether a value is a cell that the frame made, for no class as yet."""
    entity = vm.entity(cell) if cell.__class__ is Object else None
    return entity is not None and entity.fresh and cell.pytype is types.CellType and not entity.attrs


def winner(meta: type, bases: list[Any]) -> type:
    """Return the most derived metaclass. Raises Python's TypeError, in the program, where there is none."""
    for base in bases:
        if derives(type(base), meta):
            meta = type(base)
    return meta


def named(vm: Machine, space: Value) -> dict[str, Value]:
    """Return a namespace as names; the class belongs to the module whose code asks for it, unless they say another."""
    names = {vm.known(key, "name"): value for key, value in vm.dict_items(space)}
    module = vm.frames[-1].globals.real.get("__name__")
    return names if module is None else {**names, "__module__": names.get("__module__", Known(module))}


def maker(cls: Any) -> None:
    """Register `__new__` of Python's own metaclass, which the program's metaclass goes on to."""

    def row(vm: Machine, meta: Value, /, *args: Value, **kwargs: Value) -> Value:
        if len(args) != 3:
            raise Break("unknown call", name=f"{cls.__name__}.__new__")
        name, bases, space = args
        above, real = tuple(vm.iterate(bases)), vm.known(meta, "class")
        resolved = [vm.known(base, "class") for base in above]
        prepared: tuple[type, list[Any], Any] = winner(real, resolved), resolved, {}
        return make_class(vm, (cls, real), prepared, name, above, named(vm, space), kwargs)

    models(cls, "__new__")(row) if cls is type else function(cls.__new__)(row)


maker(type)
maker(abc.ABCMeta)


@models(type, "__init__")
def init_type(vm: Machine, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Do nothing: `type.__new__` has made the class."""
    return NONE


def check(meta: type, bases: list[Any], prepared: Any, names: dict[str, Value], followed: bool) -> bool:
    """Return whether a base hears of the new class (`__init_subclass__`).

    Ends the graph if making the class runs other code of the user's. `followed`: what the metaclass does when it is
    called is captured.
    """
    told = [class_lookup(base, "__init_subclass__") for base in bases if isinstance(base, type)]
    heard = any(getattr(each, "__func__", type).__module__ not in PYTHONS for each in told)
    by_enum = type(prepared) is not dict and any(name in names or written(bases, name) for name in RUN_BY_ENUM)
    kinds = {value.pytype for value in names.values()}.difference(ATTRIBUTES)
    named = any(is_told(kind, "__set_name__") for kind in kinds)
    plain = followed and by_identity(meta) and class_lookup(meta, "mro") is type.__dict__["mro"]
    own = meta.__module__ not in PYTHONS and not plain
    if own or by_enum or named or (heard and type(prepared) is not dict):
        raise Break("unsupported instruction", name="class statement")
    return heard


def is_told(cls: type, name: str) -> bool:
    """Return whether the class answers to that method, other than with C code."""
    return type(class_lookup(cls, name)) not in (Missing, types.MethodDescriptorType, types.WrapperDescriptorType)


def written(bases: list[Any], name: str) -> bool:
    """Return whether some base that is not Python's own defines a name."""
    owners = [base for cls in bases if isinstance(cls, type) for base in cls.__mro__ if name in base.__dict__]
    return any(owner.__module__ not in PYTHONS for owner in owners)


# -- decorators -------------------------------------------------------------------------------------------------------
def decorator(fn: Any) -> None:
    """Register a function of Python that changes a class; the real class of one of the frame's changes at capture."""

    def row(vm: Machine, cls: Value, *args: Value, **kwargs: Value) -> Value:
        real = vm.known(cls, "class")
        if id(real) not in vm.made_classes or vm.effects.wrote_in(real):
            raise Break("unknown call", name=fn.__name__)
        given = [vm.concretely(arg) for arg in args]
        try:
            made = fn(real, *given, **{name: vm.concretely(value) for name, value in kwargs.items()})
        except (TypeError, ValueError) as error:
            raise vm.refused(error) from None
        forget(vm, real)
        again = pushing_call(fn, [cls, *args], kwargs)
        if made is real:
            vm.made_classes[id(real)].changes.append(again)
        else:
            MadeClass(vm.made_classes[id(real)].step, again).known_to(vm, made)
        return Known(made)

    function(fn)(row)


decorator(dataclasses._process_class)  # type: ignore[attr-defined]
decorator(functools.total_ordering)
decorator(typing.runtime_checkable)


def forget(vm: Machine, cls: type) -> None:
    """Drop what was looked up in a class, which has been changed since."""
    for table in (vm.class_attrs, vm.slots, vm.rows):
        for key in [key for key in table if key[0] is cls]:
            del table[key]
    source = class_source(cls)
    for path in [path for path in vm.by_source if path.root() is source]:
        del vm.by_source[path]
