"""Texts of objects in containers, and as `%` puts them into a text: each object says how it is written."""

from __future__ import annotations

import collections
import functools
import re
import string
import types
from collections.abc import Callable
from typing import Any

from torchdynamo.capture.torch.symbols import is_unknown
from torchdynamo.capture.types.dict_views import VIEWS
from torchdynamo.capture.types.exceptions import args_of
from torchdynamo.capture.types.sequence import limit
from torchdynamo.capture.vm import c_fields
from torchdynamo.capture.vm.lookup import TEXTS, asks_the_program
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, is_open, models
from torchdynamo.core.value import Known, Object, Value


def text_of(vm: Machine, value: Value, convert: Any = repr) -> str:
    """Return `repr(value)`, or what else converts it. Ends the graph where that is not known."""
    text: str = vm.known(vm.call(Known(convert), [value], {}), "text")
    return text


def list_text(vm: Machine, self: Object) -> str:
    return f"[{', '.join([text_of(vm, item) for item in vm.iterate(self)])}]"


def tuple_text(vm: Machine, self: Object) -> str:
    texts = [text_of(vm, item) for item in vm.iterate(self)]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def dict_text(vm: Machine, self: Object) -> str:
    return f"{{{', '.join([f'{text_of(vm, key)}: {text_of(vm, item)}' for key, item in vm.dict_items(self)])}}}"


def view_text(vm: Machine, self: Object) -> str:
    return f"{self.pytype.__name__}({list_text(vm, self)})"


def ordered_text(vm: Machine, self: Object) -> str:
    """Return the text of an OrderedDict: of a list of pairs, or of a dict, as Python's version writes it."""
    if is_empty(vm, self, dict):
        return f"{self.pytype.__name__}()"
    if IN_PAIRS:
        return f"{self.pytype.__name__}({list_text(vm, vm.as_object(vm.call_method(self, 'items')))})"
    return f"{self.pytype.__name__}({dict_text(vm, self)})"


IN_PAIRS = "[" in repr(collections.OrderedDict({0: 0}))


def deque_text(vm: Machine, self: Object) -> str:
    most = limit(vm, self)
    return f"{self.pytype.__name__}({list_text(vm, self)}{'' if most is None else f', maxlen={most}'})"


def asks_for_items() -> bool:
    """Return whether this version of Python asks a subclass of set for the items that it writes."""
    return "1" not in repr(type("Asked", (set,), {"__iter__": lambda self: iter(())})([1]))


SETS_ARE_ASKED = asks_for_items()


def set_text(vm: Machine, self: Object) -> str:
    base = set if issubclass(self.pytype, set) else frozenset
    if is_empty(vm, self, base):
        return f"{self.pytype.__name__}()"
    items: Any = self if SETS_ARE_ASKED else vm.call(Known(base.__iter__), [self], {})
    within = f"{{{list_text(vm, items)[1:-1]}}}"
    return within if self.pytype is set else f"{self.pytype.__name__}({within})"


def is_empty(vm: Machine, self: Object, base: Any) -> bool:
    """Return whether a container has no items, whatever length its class gives."""
    return not vm.known(vm.call(Known(base.__len__), [self], {}), "length")


def name_of(value: Object) -> str:
    return "namespace" if value.pytype is types.SimpleNamespace else value.pytype.__name__


def namespace_text(vm: Machine, self: Object) -> str:
    pairs = [(vm.known(key, "name"), value) for key, value in vm.dict_items(vm.getattr(self, "__dict__"))]
    return f"{name_of(self)}({', '.join([f'{key}={text_of(vm, value)}' for key, value in pairs if key])})"


def default_text(vm: Machine, self: Object) -> str:
    factory = c_fields.read(vm, self, collections.defaultdict, "default_factory")
    made_by = once(vm, factory, "...", text_of) if factory.__class__ is Object else text_of(vm, factory)
    return f"{self.pytype.__name__}({made_by}, {once(vm, self, '{...}', dict_text)})"


def slice_text(vm: Machine, self: Object) -> str:
    return f"slice({', '.join([text_of(vm, vm.getattr(self, name)) for name in ('start', 'stop', 'step')])})"


def exception_text(vm: Machine, self: Object) -> str:
    texts = [text_of(vm, each) for each in args_of(vm, self)]
    return f"{self.pytype.__name__}({', '.join(texts)})"


def once(vm: Machine, value: Object, inside_itself: str, text: Callable[[Machine, Object], str]) -> str:
    """Return the text of a container; within its own text, what stands for it there (`%s`: the name of its class)."""
    if value.ref in vm.written_out:
        return inside_itself.replace("%s", name_of(value))
    vm.written_out.add(value.ref)
    try:
        return text(vm, value)
    finally:
        vm.written_out.remove(value.ref)


def written_as(base: Any, inside_itself: str | None, text: Callable[[Machine, Object], str]) -> None:
    """Register `base.__repr__`. inside_itself: what stands for a container within its own text, if anything does."""

    def row(vm: Machine, self: Value) -> Value:
        in_c = next(each for each in self.pytype.__mro__ if "__repr__" in each.__dict__ and not is_open(each))
        if in_c is not base or self.__class__ is not Object:  # a class of C's that writes itself otherwise
            return vm.run_pure(in_c.__repr__, [self], {})
        return Known(text(vm, self) if inside_itself is None else once(vm, self, inside_itself, text))

    models(base, "__repr__")(row)


written_as(list, "[...]", list_text)
written_as(tuple, "(...)", tuple_text)
written_as(dict, "{...}", dict_text)
written_as(collections.OrderedDict, "...", ordered_text)
written_as(collections.defaultdict, None, default_text)
written_as(collections.deque, "[...]", deque_text)
written_as(set, "%s(...)", set_text)
written_as(frozenset, "%s(...)", set_text)
written_as(types.SimpleNamespace, "%s(...)", namespace_text)
written_as(slice, None, slice_text)
written_as(BaseException, None, exception_text)
for _view in VIEWS.values():
    written_as(_view, "...", view_text)


@function(ascii)
def ascii_(vm: Machine, obj: Value) -> Value:
    return Known(text_of(vm, obj).encode("ascii", "backslashreplace").decode("ascii"))


FIELD = re.compile(r"%(\(\w*\))?([#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?[hlL]?)(.)", re.DOTALL)
CONVERT: dict[str, Any] = {"s": str, "r": repr, "a": ascii}
# Of integers no float is made, as large ones overflow; of floats no integer, as infinity does
NUMBERS: dict[str, tuple[type, ...]] = dict.fromkeys("diu", (bool, int)) | dict.fromkeys("fFeEgG", (bool, float))


def asks_nothing(vm: Machine, value: Value) -> bool:
    """Return whether no code is asked for the text of a value: it is a constant, or depends on what a tensor holds."""
    if is_unknown(vm, value):
        return True
    known = vm.concrete(value)
    return known is not None and not asks_the_program(vm, TEXTS, known)


def takes(conversion: str, value: Value) -> bool:
    """Return whether a field is known to raise nothing for a value but what the value's own code raises."""
    return conversion in CONVERT or value.pytype in NUMBERS.get(conversion, ())


@models(str, "__mod__")
def fill_in(vm: Machine, self: Value, given: Value) -> Value:
    """Return `self % given`, for which objects that are not constants are asked for their texts first."""
    if self.__class__ is not Known or asks_nothing(vm, given):
        return vm.run_pure(str.__mod__, [self, given], {})
    values = list(vm.iterate(given)) if issubclass(given.pytype, tuple) else [given]
    fields = [field for field in FIELD.finditer(self.obj) if field[3] != "%"]
    plain = all(not field[1] and "*" not in field[2] and takes(field[3], value) for field, value in zip(fields, values))
    if len(fields) != len(values) or not plain:
        return vm.run_pure(str.__mod__, [self, given], {})
    for at, field in enumerate(fields):
        if field[3] in CONVERT:
            values[at] = Known(text_of(vm, values[at], CONVERT[field[3]]))
    template = FIELD.sub(lambda field: f"%{field[2]}s" if field[3] in CONVERT else field[0], self.obj)
    return vm.run_pure(str.__mod__, [Known(template), vm.make_tuple(values)], {})


@models(str, "format")
def format_(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Return `self.format(...)`, for which objects that are not constants are asked for their texts."""
    as_it_is = functools.partial(vm.run_pure, str.format, [self, *args], kwargs)
    if self.__class__ is not Known or all(asks_nothing(vm, each) for each in (*args, *kwargs.values())):
        return as_it_is()
    try:
        fields = list(string.Formatter().parse(self.obj))
    except ValueError:
        return as_it_is()
    named = {name: value for name, value in kwargs.items() if not name.isdigit()}
    given: dict[str, Value] = named | {str(at): value for at, value in enumerate(args)}
    names = [name for _, name, *_ in fields if name is not None]
    if not any(names):
        names = [str(at) for at in range(len(names))]
    known = all("{" not in (spec or "") and (how is None or how in CONVERT) for _, _, spec, how in fields)
    if not known or not given.keys() >= set(names):
        return as_it_is()
    texts, following = [], iter(names)
    for literal, name, spec, conversion in fields:
        texts.append(literal)
        if name is not None:
            value = given[next(following)]
            value = vm.call(Known(CONVERT[conversion]), [value], {}) if conversion else value
            texts.append(vm.known(vm.call(Known(format), [value, Known(spec)] if spec else [value], {}), "text"))
    return Known("".join(texts))
