"""Functions of the standard library that are what their arguments make of them: namedtuple, how copies are made."""

from __future__ import annotations

import collections
import copyreg
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.lookup import class_lookup
from torchdynamo.capture.model import for_type, function, is_open, models
from torchdynamo.capture.scalars import plain_value
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import NONE, Known, Object, Value
from torchdynamo.capture.wrap import constant

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@function(sys.intern)
def intern(vm: Machine, text: Value) -> Value:
    if text.pytype is not str and issubclass(text.pytype, str):
        raise vm.error(TypeError, f"can't intern {text.pytype.__name__}")
    return vm.run_pure(sys.intern, [text], {})


@function(pickle.dumps)
def dumps(vm: Machine, obj: Value, protocol: Value = NONE) -> Value:
    """Of what has no parts that could be one object or two, which the bytes would tell."""
    real = vm.concretely(obj)
    if type(real) not in (dict, list, tuple, bool, int, float, type(None)) or (
        type(real) in (dict, list, tuple) and real
    ):
        raise Break("unknown call", name="pickle.dumps")
    return vm.run_pure(pickle.dumps, [obj, protocol], {})


@function(collections.namedtuple)
def namedtuple(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """A class of constants; it belongs to the module whose code asks for it."""
    named = {name: vm.concretely(arg) for name, arg in kwargs.items()}
    named.setdefault("module", vm.frames[-1].globals.real.get("__name__"))
    try:
        return constant(vm, collections.namedtuple(*map(vm.concretely, args), **named))
    except (ValueError, TypeError) as error:
        raise vm.error(type(error), *error.args) from None


@function(os.fspath)
def fspath(vm: Machine, path: Value) -> Value:
    """A string is its own path."""
    if issubclass(path.pytype, (str, bytes)):
        return path
    return vm.special(path, "__fspath__")


def reduce_set(vm: Machine, self: Object) -> Value:
    """How copy.deepcopy takes these containers apart."""
    if self.pytype is not set:
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)
    return vm.make_tuple([Known(self.pytype), vm.make_tuple([vm.new(list, list(vm.iterate(self)))]), NONE])


def reduce_dict(vm: Machine, self: Object) -> Value:
    if self.pytype not in (collections.OrderedDict, collections.defaultdict):
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)
    given = [vm.getattr(self, "default_factory")] if self.pytype is collections.defaultdict else []
    items = vm.iterator(vm.call_method(self, "items"))
    return vm.make_tuple([Known(self.pytype), vm.make_tuple(given), NONE, NONE, items])


TAKEN_APART: dict[type, Any] = {
    set: reduce_set,
    collections.OrderedDict: reduce_dict,
    collections.defaultdict: reduce_dict,
}
PICKLING = ("__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")


@models(object, "__reduce_ex__")
def reduce_ex(vm: Machine, self: Value, protocol: Value) -> Value:
    """How copy.copy takes a plain object apart: its class, and its `__dict__`."""
    cls = self.pytype
    row = for_type(TAKEN_APART, cls)
    if row is not None:
        return row(vm, self)
    plain = all(is_open(base) and "__slots__" not in base.__dict__ for base in cls.__mro__[:-1])
    own = [
        name
        for name in PICKLING
        if class_lookup(cls, name) is not object.__dict__.get(name, class_lookup(object, name))
    ]
    if self.__class__ is not Object or not plain or own or vm.concretely(protocol) < 2:
        raise Break("unsupported method", name="__reduce_ex__", type=cls.__name__)
    state: Value = vm.instance_dict(self)
    if not vm.truth(state):
        state = NONE
    made = vm.make_tuple([Known(cls)])
    return vm.make_tuple([Known(copyreg.__newobj__), made, state, NONE, NONE])  # type: ignore[attr-defined]


def joiner(cls: Any) -> None:
    def row(vm: Machine, self: Value, items: Value) -> Value:
        return vm.run_pure(
            cls.join, [self, vm.new(list, [plain_value(vm, item) or item for item in vm.iterate(items)])], {}
        )

    models(cls, "join")(row)


joiner(str)
joiner(bytes)
