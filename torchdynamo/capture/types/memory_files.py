"""io.StringIO and io.BytesIO that the frame makes: each has a shadow."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, iterates, models, rebuilds
from torchdynamo.capture.vm.shadows import Shadow, run, shadows
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import FALSE, NONE, Known, Object, Value

FILES: tuple[Any, ...] = (io.StringIO, io.BytesIO)


def contents(vm: Machine, self: Object, name: str) -> Any:
    """Return the shadow. Ends the graph for a file that existed: it may hold much, and something else in each call."""
    entity = vm.entity(self)
    if not entity.fresh:
        raise Break("unsupported type", type=self.pytype.__name__)
    return entity.items


SHADOW = Shadow(contents)  # reading moves the place


def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """Make an empty file, which `__init__` fills."""
    if cls.obj not in FILES:
        raise Break("unsupported type", type=cls.obj.__name__)
    return vm.new(cls.obj, cls.obj())


def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    run(vm, SHADOW, "__init__", self, args, kwargs)
    vm.entity(self).payload = len(args) > 1 or "newline" in kwargs  # it reads and writes lines its own way
    return NONE


def next_line(vm: Machine, self: Object) -> Value:
    line = run(vm, SHADOW, "readline", self, (), {})
    if not line:
        raise vm.error(StopIteration)
    return lift(vm, line)


def itself(vm: Machine, self: Object) -> Value:
    return self


def lines(vm: Machine, self: Object) -> Iterator[Value]:
    while True:
        line = run(vm, SHADOW, "readline", self, (), {})
        if not line:
            return
        yield lift(vm, line)


def leave(vm: Machine, self: Object, *error: Value) -> Value:
    """Close the file, at the end of a `with` block."""
    run(vm, SHADOW, "close", self, (), {})
    return FALSE


def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.items.closed or entity.payload:
        raise Restart(entity.born - 1)
    push_call(emit, file_at, entity.pytype, entity.items.getvalue(), entity.items.tell())


def file_at(cls: Any, text: Any, at: int) -> Any:
    """Return a file of these contents, at this place."""
    file = cls(text)
    file.seek(at)
    return file


for _cls in FILES:
    shadows(_cls, SHADOW, own="getbuffer")
    models(_cls, "__new__")(new)
    models(_cls, "__init__")(init)
    models(_cls, "__exit__")(leave)
    models(_cls, "__iter__")(itself)
    models(_cls, "__next__")(next_line)
    iterates(_cls)(lines)
    rebuilds(_cls)(rebuild)
