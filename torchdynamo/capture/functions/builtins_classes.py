"""isinstance, issubclass and what else is asked of classes; abc, whose registrations count there."""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Callable
from typing import Any

import torch

from torchdynamo.capture.vm import abstract_answers, lookup, model
from torchdynamo.capture.vm import call as calls
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import derives
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import MODELS, function, models
from torchdynamo.capture.vm.wrap import lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Guard, Pinned, Source
from torchdynamo.core.value import TRUE, Known, Object, TensorNode, Value, boolean


@function(type)
def type_(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) == 3 and not kwargs:
        made: Value = MODELS[type, "__new__"](vm, Known(type), *args)
        return made
    if len(args) != 1:
        raise vm.error(TypeError, "type() takes 1 or 3 arguments")
    if kwargs:
        raise Break("unknown call", name="type")
    return lift(vm, args[0].pytype)


@function(isinstance)
def isinstance_(vm: Machine, obj: Value, classes: Value) -> Value:
    return boolean(ask_each(vm, obj, classes, "__instancecheck__", instance_of))


def ask_each(
    vm: Machine, first: Any, classes: Value, method: str, ask: Callable[[Machine, Any, Any], bool], depth: int = 0
) -> bool:
    """Return whether `ask` holds for any class in a nest of tuples.

    Classes are asked one by one, since an object may stand in the place of a class and answer (`typing.Sequence`).
    """
    if classes.__class__ is Object:
        if classes.pytype is tuple:
            return any(
                ask_each(vm, first, each, method, ask, count_depth(method, depth)) for each in vm.iterate(classes)
            )
        check = vm.bound_special(classes, method)
        if check is not None:
            return vm.truth(vm.call(check, [first], {}))
        if model.find_slot(classes.pytype, "__iter__")[0] == "model":
            what = "isinstance() arg 2 must be a type" if ask is instance_of else "issubclass() arg 2 must be a class"
            raise vm.error(TypeError, f"{what}, a tuple of {'types' if ask is instance_of else 'classes'}, or a union")
    return ask(vm, first, vm.concretely(classes))


def instance_of(vm: Machine, obj: Value, wanted: Any, depth: int = 0) -> bool:
    """Return `isinstance(obj, wanted)`: the exact type counts at once, else the metaclass of `wanted` decides."""
    if type(wanted) is tuple:
        return any(instance_of(vm, obj, one, count_depth("isinstance", depth)) for one in wanted)
    if isinstance(wanted, types.UnionType):
        return any(instance_of(vm, obj, one) for one in wanted.__args__)
    if obj.pytype is wanted:
        return True
    if type(wanted) is type:
        return instance_by_order(vm, wanted, obj)
    return ask_metaclass(vm, wanted, "__instancecheck__", obj)


def subclass_of(vm: Machine, cls: Any, wanted: Any, depth: int = 0) -> bool:
    """Return `issubclass(cls, wanted)`: the metaclass of `wanted` decides."""
    if type(wanted) is tuple:
        return any(subclass_of(vm, cls, one, count_depth("issubclass", depth)) for one in wanted)
    if isinstance(wanted, types.UnionType):
        return any(subclass_of(vm, cls, one) for one in wanted.__args__)
    if type(wanted) is type:
        return subclass_by_order(vm, wanted, cls)
    return ask_metaclass(vm, wanted, "__subclasscheck__", Known(cls))


@function(issubclass)
def issubclass_(vm: Machine, cls: Value, classes: Value) -> Value:
    return boolean(ask_each(vm, cls, classes, "__subclasscheck__", subclass_of_value))


def subclass_of_value(vm: Machine, cls: Value, wanted: Any) -> bool:
    """Return `issubclass(cls, wanted)`. An object that says nothing of bases is refused in Python's words."""
    if isinstance(wanted, types.UnionType):
        wanted = wanted.__args__
    if type(wanted) is tuple:
        return any(subclass_of_value(vm, cls, one) for one in wanted)
    if cls.__class__ is not Known and type(wanted) in NO_OTHERS and vm.has_attribute(cls, "__bases__") is None:
        raise vm.error(TypeError, "issubclass() arg 1 must be a class")
    return subclass_of(vm, vm.known(cls, "class"), wanted)


NO_OTHERS = (type, abc.ABCMeta)  # metaclasses that ask classes, and objects with `__bases__`, only


def ask_metaclass(vm: Machine, wanted: Any, method: str, about: Value) -> bool:
    """Return what the class of `wanted` answers by its `__instancecheck__` or `__subclasscheck__`."""
    asking = Known(wanted)
    if issubclass(type(wanted), type):
        lookup.guard_metaclass(vm, wanted)
    slot = lookup.guarded_slot(vm, type(wanted), method)
    if slot[0] == "model":
        return vm.truth(slot[1](vm, asking, about))
    check = vm.bound_special(asking, method)
    if check is None or type(wanted) is types.GenericAlias:  # neither is a class: Python refuses it in its words
        return ask_python(vm, isinstance if method == "__instancecheck__" else issubclass, None, wanted)
    return vm.truth(vm.call(check, [about], {}))


def count_depth(name: str, depth: int) -> int:
    """Return the depth of a tuple inside of a tuple of classes. Raises Break beyond DEPTH levels."""
    if depth > MAX_DEPTH:
        raise Break("inlining too deep", name=name)
    return depth + 1


MAX_DEPTH = 20


# -- the checks that metaclasses inherit ------------------------------------------------------------------------------
@models(type, "__instancecheck__")
def check_instance(vm: Machine, cls: Value, obj: Value) -> Value:
    return boolean(instance_by_order(vm, vm.known(cls, "class"), obj))


@models(type, "__subclasscheck__")
def check_subclass(vm: Machine, cls: Value, other: Value) -> Value:
    return boolean(subclass_by_order(vm, vm.known(cls, "class"), vm.known(other, "class")))


@function(abc.ABCMeta.__instancecheck__)
def check_abstract_instance(vm: Machine, cls: Value, instance: Value) -> Value:
    """Return whether the class that the object says it has, or its type, is a subclass."""
    wanted, said = vm.known(cls, "class"), claimed_class(vm, instance)
    return boolean((said is not None and subclass_of(vm, said, wanted)) or subclass_of(vm, instance.pytype, wanted))


@function(abc.ABCMeta.__subclasscheck__)
def check_abstract_subclass(vm: Machine, cls: Value, subclass: Value) -> Value:
    return by_registrations(vm, abc.ABCMeta.__subclasscheck__, cls, subclass)


def by_registrations(vm: Machine, check: Callable[..., bool], cls: Value, subclass: Value) -> Value:
    """Return the answer of an abstract class about a subclass: by bases, `__subclasshook__` or registrations.

    A negative answer is guarded, as registrations may follow. A positive one stays as long as the class remembers it.
    """
    wanted, real = vm.known(cls, "class"), vm.known(subclass, "class")
    refuse_written(vm, wanted, real)
    rest_on_order(vm, real)
    answer = ask_python(vm, lambda cls, wanted: check(wanted, cls), real, wanted)
    vm.answers[real, wanted] = bool(answer)
    for guard in guards_of_answer(real, wanted, bool(answer)):
        vm.guard(*guard[:3])
    return boolean(answer)


def refuse_written(vm: Machine, *classes: Any) -> None:
    """Raise Break for classes that the frame has written to: Python, asked about them, would not see it."""
    bases = [base for cls in classes if isinstance(cls, type) for base in cls.__mro__]
    if vm.effects.wrote_classes and any(map(vm.effects.wrote_in, bases)):
        raise Break("unknown call", name="isinstance")


def guards_of_answer(cls: type, abstract: type, answer: bool) -> list[Guard]:
    """Return the guards of what an abstract class has just said of a class."""
    remembered = abstract_answers.guard_of(abstract, cls)
    guards = [] if answer else [Guard(REGISTRATIONS, "UNREGISTERED", (cls, abstract, abc.get_cache_token()))]
    return guards if remembered is None else [*guards, Guard(*remembered)]


if "__subclasscheck__" in vars(type(typing.Protocol)):  # else inherited

    @function(type(typing.Protocol).__subclasscheck__)
    def check_protocol_subclass(vm: Machine, cls: Value, other: Value) -> Value:
        return by_registrations(vm, type(typing.Protocol).__subclasscheck__, cls, other)


@function(type(typing.Protocol).__instancecheck__)
def check_protocol(vm: Machine, cls: Value, instance: Value) -> Value:
    """Return whether an object is an instance of a Protocol. Its members are looked up, and thereby guarded."""
    protocol: Any = vm.known(cls, "class")
    refuse_written(vm, protocol, instance.pytype)
    if not getattr(protocol, "_is_protocol", False):
        return check_abstract_instance(vm, cls, instance)
    names = getattr(protocol, "__protocol_attrs__", None) or typing._get_protocol_attrs(protocol)  # type: ignore[attr-defined]
    found = [vm.has_attribute(instance, name) for name in sorted(names)]
    real = vm.entity(instance).real if instance.__class__ is Object else MISSING
    real = instance.obj if instance.__class__ is Known else real
    if real is not MISSING:
        return boolean(ask_python(vm, isinstance, real, protocol))
    return boolean(None not in found or counts_anyway(vm, protocol, instance.pytype))


def counts_anyway(vm: Machine, protocol: type, cls: type) -> bool:
    """Return whether a protocol counts instances of a class without its members: of a subclass, or a registered one.

    Raises Break where the protocol only remembers that it did: Python tells for how long.
    """
    if subclass_by_order(vm, protocol, cls):
        return True
    cache_token(vm)
    if abstract_answers.is_remembered(protocol, cls):
        raise Break("unknown call", name="isinstance")
    return False


@models(type(torch.FloatTensor), "__instancecheck__")
def check_legacy_type(vm: Machine, cls: Value, obj: Value) -> Value:
    """Compare dtype and device, which a tensor's guard holds."""
    return boolean(obj.__class__ is TensorNode and isinstance(obj.fake, vm.known(cls, "class")))


def model_flagged(cls: type, flag: str) -> None:
    """Model the metaclass of Parameter or Buffer, which takes any tensor for an instance that has the flag."""

    def row(vm: Machine, self: Value, instance: Value) -> Value:
        wanted = vm.known(self, "class")
        if wanted is cls and derives(instance.pytype, torch.Tensor):
            found = vm.has_attribute(instance, flag)
            if found is not None and vm.truth(found):
                return TRUE
        return boolean(instance_by_order(vm, wanted, instance))

    function(type(cls).__instancecheck__)(row)


model_flagged(torch.nn.Parameter, "_is_param")
model_flagged(torch.nn.Buffer, "_is_buffer")


def instance_by_order(vm: Machine, wanted: type, obj: Value) -> bool:
    """Return whether the object's type, or the class that it says it has, has `wanted` among its bases."""
    if subclass_by_order(vm, wanted, obj.pytype):
        return True
    said = claimed_class(vm, obj)
    return said is not None and subclass_by_order(vm, wanted, said)


def subclass_by_order(vm: Machine, wanted: type, cls: Any) -> bool:
    """Return whether `wanted` is in the order of bases; TypeError where `cls` is no class."""
    rest_on_order(vm, cls)
    return ask_python(vm, lambda cls, wanted: type.__subclasscheck__(wanted, cls), cls, wanted)


def rest_on_order(vm: Machine, cls: Any) -> None:
    if lookup.is_class(cls):
        lookup.guard_bases(vm, cls)


def claimed_class(vm: Machine, obj: Value) -> type | None:
    """Return what an object says its class is, where that is another class than its type."""
    if obj.__class__ is not Object or not lookup.class_lies(vm, obj.pytype):
        return None
    said = vm.has_attribute(obj, "__class__")
    if said is None or said.__class__ is not Known or not isinstance(said.obj, type) or said.obj is obj.pytype:
        return None
    return said.obj


def ask_python(vm: Machine, ask: Callable[[Any, Any], bool], obj: Any, wanted: Any) -> bool:
    """Call Python's own check. A TypeError is raised in the program; any other exception ends the graph."""
    try:
        return ask(obj, wanted)
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    except Exception as error:  # from a `__subclasshook__`; Python will raise it again
        raise Break("unknown call", name=ask.__name__) from error


REGISTRATIONS = Source("call", Source("pinned", None, Pinned(abc.get_cache_token)), ())


@function(abc.get_cache_token)
def cache_token(vm: Machine) -> Value:
    """Return the number that goes up with each class registered with an abstract one; it is guarded."""
    token = abc.get_cache_token()
    vm.guard(REGISTRATIONS, "EQUALS_MATCH", token)
    vm.of_process["the number of classes registered with abstract ones"] = None
    return Known(token)


# -- methods of classes -----------------------------------------------------------------------------------------------
@models(type, "__subclasses__")
def subclasses(vm: Machine, cls: Value) -> Value:
    """Return the list of direct subclasses that exist now. Their number is guarded."""
    real: type = vm.known(cls, "class")
    found: list[type] = type.__subclasses__(real)
    asked = Source("call", Source("pinned", None, Pinned(real.__subclasses__)), ())
    vm.guard(asked, "LENGTH", len(found))
    return vm.new(list, [wrap(vm, one, Source("item", asked, at)) for at, one in enumerate(found)])


@models(type, "__call__")
def type_call(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """Construct an instance, as `type.__call__` does when a metaclass's `__call__` delegates to it."""
    return calls.construct(vm, cls.obj, list(args), dict(kwargs))


@models(type, "mro")
def mro(vm: Machine, cls: Value) -> Value:
    """Return the MRO as a list. Raises Break while the class is being made, and where its metaclass overrides `mro`."""
    order = vm.known(cls, "class").__mro__
    if order is None or type(cls.pytype.__dict__.get("mro")) is types.FunctionType:
        raise Break("unsupported method", name="mro", type="type")
    return lift(vm, list(order))
