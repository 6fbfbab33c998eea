"""A Capture in words: graph, guards, effects, exit. Golden tests hold exactly this text."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch.fx

from torchdynamo.capture.exits import BreakExit, Return
from torchdynamo.capture.frame import MadeFunction
from torchdynamo.capture.types.pending_appends import Tail
from torchdynamo.capture.vm.effect_kinds import EffectKind, Write
from torchdynamo.capture.vm.model import HOLDS
from torchdynamo.core.value import ABSENT, Absent, Known, Lazy, Object, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.capture import Capture
    from torchdynamo.capture.vm.heap import Entity


def show(capture: Capture) -> str:
    """Return a capture as text, a section each for graph, guards, effects, exit; empty sections are left out."""
    vm = capture.machine
    sections = [
        ("graph", [node_line(node) for node in vm.builder.graph.nodes if node.op != "output"]),
        ("guards", [guard_line(guard) for guard in capture.guards]),
        ("effects", list(effect_lines(capture))),
        ("exit", exit_lines(capture)),
    ]
    return "\n".join(f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections if lines)


def node_line(node: torch.fx.Node) -> str:
    """Return a node as a line: `mul = mul(x, 2)`; an input with its dtype and shape."""
    if node.op == "placeholder":
        example = node.meta["example_value"]
        if not isinstance(example, torch.Tensor):
            return f"{node.name}: {type(example).__name__}"
        return f"{node.name}: {str(example.dtype).removeprefix('torch.')}{list(example.shape)}"
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    dot = "." if node.op == "call_method" else ""
    given = [str(arg) for arg in node.args] + [f"{key}={arg}" for key, arg in node.kwargs.items()]
    return f"{node.name} = {dot}{name}({', '.join(given)})"


def guard_line(guard: Any) -> str:
    """Return a guard as a line: `x TENSOR_MATCH`, with its argument where it is short."""
    arg = guard.arg
    if guard.kind == "CLASS_ATTR":
        what = "absent" if isinstance(arg[1], Absent) else getattr(arg[1], "__qualname__", type(arg[1]).__name__)
        return f"{guard.source} CLASS_ATTR {arg[0]} = {what}"
    if arg is None or guard.kind == "TENSOR_MATCH":
        return f"{guard.source} {guard.kind}"
    text = getattr(arg, "__qualname__", None) or getattr(arg, "__name__", None) or repr(arg)
    return f"{guard.source} {guard.kind} {text}"


def effect_lines(capture: Capture) -> Iterator[str]:
    """Return the side effects to replay, a line each."""
    for write in capture.machine.effects.pending():
        yield LINES[write.kind](capture, write)


def items_line(capture: Capture, write: Write) -> str:
    sign = "+=" if isinstance(write.owner.items, Tail) else "="
    return f"{write.owner.source} {sign} {contents(capture, write.owner)}"


def attribute_line(capture: Capture, write: Write) -> str:
    return f"{write.owner.source}.{write.name} = {value_text(capture, write.value)}"


def tensor_line(capture: Capture, write: Write) -> str:
    return f"{write.owner.source or write.owner.node}.{write.name} = {value_text(capture, write.value)}"


def name_line(capture: Capture, write: Write) -> str:
    return f"global {write.name} = {value_text(capture, write.value)}"


def function_line(capture: Capture, write: Write) -> str:
    return f"{write.owner.source.base}.{write.name} = {value_text(capture, write.value)}"


def class_line(capture: Capture, write: Write) -> str:
    return f"class {write.owner.__qualname__}.{write.name} = {value_text(capture, write.value)}"


def deferred_line(capture: Capture, write: Write) -> str:
    return f"then {write.owner.text}"


def state_line(capture: Capture, write: Write) -> str:
    return f"then {write.owner.__name__}({', '.join(value_text(capture, arg) for arg in write.value)})"


LINES: dict[EffectKind, Callable[[Capture, Write], str]] = {
    EffectKind.ITEMS: items_line,
    EffectKind.ATTRIBUTE: attribute_line,
    EffectKind.THREAD_LOCAL: attribute_line,
    EffectKind.TENSOR: tensor_line,
    EffectKind.NAME: name_line,
    EffectKind.FUNCTION: function_line,
    EffectKind.CLASS: class_line,
    EffectKind.DEFERRED: deferred_line,
    EffectKind.STATE: state_line,
}


def exit_lines(capture: Capture) -> list[str]:
    leave = capture.exit
    if isinstance(leave, Return):
        return [f"return {value_text(capture, leave.value)}"]
    return [f"break before instruction {leave.at}", *frame_lines(capture, leave)]


def frame_lines(capture: Capture, leave: BreakExit) -> list[str]:
    """Return the lines for the contents of a frame that is left, and for the frames that it calls."""
    lines = [f"{name} = {value_text(capture, value)}" for name, value in leave.locals.items()]
    stack = ", ".join(value_text(capture, value) for value in leave.stack if value is not ABSENT)
    lines.append(f"stack: {stack}")
    if leave.callee is not None:
        called = frame_lines(capture, leave.callee.exit)
        lines += [f"in {leave.callee.code.co_name}", *(f"  {line}" for line in called)]
    return lines


def contents(capture: Capture, entity: Entity) -> str:
    """Return the items of a container as text."""
    items = entity.items
    if isinstance(items, dict):
        pairs = [item if isinstance(item, list) else (None, item) for item in items.values()]
        inside = [
            f"{value_text(capture, k)}: {value_text(capture, v)}" if k else value_text(capture, v) for k, v in pairs
        ]
        return "{" + ", ".join(inside) + "}"
    if isinstance(items, list):
        inside = [value_text(capture, item) for item in items]
        return f"({', '.join(inside)})" if issubclass(entity.pytype, tuple) else f"[{', '.join(inside)}]"
    return ""


def value_text(capture: Capture, value: Value) -> str:
    """Return a value as short text."""
    if value.__class__ is Known:
        obj = value.obj
        return str(getattr(obj, "__qualname__", None) or repr(obj))
    if value.__class__ is TensorNode or value.__class__ is Symbol:
        return str(value.node)
    if value.__class__ is Lazy:
        return str(value.source)
    if value.__class__ is Object:
        entity = capture.machine.entity(value)
        if entity.source is not None:
            return str(entity.source)
        if entity.pytype is types.FunctionType:
            return f"<function {entity.payload_as(MadeFunction).parts.code.co_name}>"
        name = "" if entity.pytype in (list, tuple, dict, set) else entity.pytype.__name__
        holds = HOLDS.nearest(entity.pytype)
        held = entity.attrs if holds is None else {**holds(entity), **entity.attrs}
        attrs = ", ".join(f"{key}={value_text(capture, item)}" for key, item in held.items())
        return f"{name}{contents(capture, entity)}" + (f"<{attrs}>" if attrs else "")
    return "NULL"
