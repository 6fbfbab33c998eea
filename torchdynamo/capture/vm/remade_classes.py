"""Classes of the frame, made again by the replacement code: each call has its own, as in Python."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.emitted_calls import push_call_by_name
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine
    from torchdynamo.capture.vm.model import Emitter

Push = Callable[["Emitter"], None]


@dataclass
class MadeClass:
    """Describe a class that the frame made: its root step, what pushes it anew, and what changes it then."""

    step: int
    push: Push
    changes: list[Push] = field(default_factory=list)
    cls: Any = None

    def known_to(self, vm: Machine, cls: type) -> None:
        """Register the real class that stands for this one during the capture."""
        self.cls = cls
        vm.made_classes[id(cls)] = self
        vm.inside[id(cls)] = self.step


class StandIn:
    """Stand in a real class for a value that it must not hold."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def __bool__(self) -> bool:
        raise Break("unsupported instruction", name="class statement")  # as of a method's `__isabstractmethod__`


class NoInitSubclass:
    """Stand in front of the bases while a class is made, so that their `__init_subclass__` is inlined and not run."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def new_class(
    by: tuple[type, type] | None,
    name: str,
    bases: tuple[Any, ...],
    given: dict[str, Any],
    names: Mapping[str, Any],
    heard: bool,
) -> type:
    """Make a class with these names; with `heard`, without running `__init_subclass__` of its bases.

    `by`: the class whose `__new__` makes it, and the metaclass; None for what a class statement does.
    """
    above = (NoInitSubclass, *bases) if heard else bases
    if by is None:
        made = types.new_class(name, above, given, lambda space: fill(space, names))
    else:
        maker, meta = by
        made = maker.__new__(meta, name, above, dict(names), **given)
    if heard:
        made.__bases__ = bases
    return made


def fill(space: Any, names: Mapping[str, Any]) -> None:
    """Put names into the namespace of a class."""
    for name, obj in names.items():
        space[name] = obj


def pushing_call(fn: Any, args: list[Value], kwargs: Mapping[str, Value]) -> Push:
    """Return code that pushes the result of a function call."""

    def push(emit: Emitter) -> None:
        push_call_by_name(emit, fn, args, kwargs)

    return push
