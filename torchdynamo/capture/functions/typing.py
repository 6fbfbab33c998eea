"""typing: get_type_hints evaluates texts where they were written, so that each name in them is guarded."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.frame import Frame, Globals
from torchdynamo.capture.vm.attributes import ANNOTATIONS
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import guard_bases, guarded_own, is_class
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, models
from torchdynamo.capture.vm.wrap import class_attribute, lift, wrap
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Source
from torchdynamo.core.value import FALSE, Known, Value


@function(typing.get_type_hints)
def get_type_hints(vm: Machine, obj: Value, *spaces: Value, include_extras: Value = FALSE, **named: Value) -> Value:
    """Return the annotations of a class or plain function that existed at entry, evaluated."""
    real = vm.known(obj, "annotated")
    if spaces or named or hasattr(real, "__wrapped__"):
        raise Break("unknown call", name="typing.get_type_hints")
    for notes, home in annotations_of(vm, obj, real):
        if home is None:
            raise Break("unknown call", name="typing.get_type_hints")
        for key, note in vm.dict_items(notes):
            vm.known(key, "name")
            for text in texts_of(vm.known(note, "annotation")):
                evaluate(vm, text, home)
    hints = typing.get_type_hints(real, include_extras=vm.truth(include_extras))
    return vm.make_dict((Known(name), lift(vm, hint)) for name, hint in hints.items())


def annotations_of(vm: Machine, obj: Value, real: Any) -> Iterator[tuple[Value, Globals | None]]:
    """Yield each dict of annotations that counts, with the namespace in which it was written."""
    if isinstance(real, types.FunctionType):
        yield vm.getattr(obj, "__annotations__"), vm.globals_of(real, getattr(obj, "source", None))
        return
    if not is_class(real):
        raise Break("unknown call", name="typing.get_type_hints")
    guard_bases(vm, real)
    for base in real.__mro__:
        try:
            getattr(base, "__annotations__", None)  # evaluates them for good, as get_type_hints does
        except Exception:
            raise Break("unknown call", name="typing.get_type_hints") from None
        for name in ANNOTATIONS:
            notes = guarded_own(vm, base, name)
            if type(notes) is dict:
                yield wrap(vm, notes, class_attribute(vm, base, name)), names_of_module(vm, base.__module__)
            elif notes is not MISSING:
                raise Break("unknown call", name="typing.get_type_hints")


def names_of_module(vm: Machine, name: str) -> Globals | None:
    """Return the namespace of an imported module; None if it is not imported."""
    module = sys.modules.get(name)
    if module is None:
        return None
    home = Source("dict", Source("module", None, name))
    return Globals(module.__dict__, home, vm.roots.builtins)


def texts_of(note: Any) -> Iterator[str]:
    """Yield the texts that an annotation is, or holds."""
    if isinstance(note, (str, typing.ForwardRef)):
        yield note if isinstance(note, str) else note.__forward_arg__
    elif typing.get_origin(note) is not typing.Literal:
        for part in typing.get_args(note):
            yield from texts_of(part)


def evaluate(vm: Machine, text: str, home: Globals) -> None:
    """Evaluate an annotation's text in its module's namespace, so that all it reads is guarded."""
    try:
        value = vm.run(Frame(compile(text, "<annotation>", "eval"), home, {}, {}))
    except (SyntaxError, Raised):
        raise Break("unknown call", name="typing.get_type_hints") from None
    for found in texts_of(vm.known(value, "annotation")):
        if found != text:
            evaluate(vm, found, home)


@models(typing.NewType, "__call__")
def new_type(vm: Machine, self: Value, value: Value) -> Value:
    """Return the value itself: a NewType is for checkers only."""
    return value
