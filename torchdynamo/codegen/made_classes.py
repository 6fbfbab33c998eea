"""Materialize classes that the frame made, once per call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.core.signals import Restart
from torchdynamo.core.source import Source

if TYPE_CHECKING:
    from torchdynamo.codegen.emit import CodeEmitter


def push(emit: CodeEmitter, cls: type) -> None:
    """Push a class that the frame made; materialize it at its first use."""
    vm, key = emit.capture.machine, ("class", id(cls))
    if key in emit.made:
        emit.op("LOAD_FAST", emit.made[key])
        return
    made = vm.made_classes[id(cls)]
    if key in emit.making:
        raise Restart(made.step - 1)  # it contains itself
    emit.making.add(key)
    made.push(emit)
    emit.keep_as(key, f"__class{len(emit.made)}")
    emit.making.discard(key)
    for change in made.changes:
        change(emit)
        emit.op("POP")
    emit.fields(vm.effects.all_written(cls))
    for cell in emit.waiting.pop(key, ()):
        emit.const(cls)
        emit.local(cell)
        emit.op("STORE_ATTR", "cell_contents")


def push_part(emit: CodeEmitter, source: Source) -> None:
    """Push an object found inside of a class that the frame made, from the materialized class."""
    base = source.base
    if base is None:
        emit.const(source.arg.object)
    elif source.how == "class_attr":
        emit.function(class_lookup)
        push_part(emit, base)
        emit.op("LOAD_CONST", source.arg)
        emit.op("CALL", (2, ()))
    elif source.how == "attr":
        push_part(emit, base)
        emit.op("LOAD_ATTR", source.arg)
    else:
        emit.refuse_made_classes(source.root().arg.object)
