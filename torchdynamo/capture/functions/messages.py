"""What a program tells its user: `warnings.warn`, and loggers. Said in order, where the frame's effects are done.

A warning is attributed to a frame so many calls up. Frames that are followed are known: their file and line are. For
those above, the stack is looked at when it is said. What the filters make an error is raised in its place.
"""

from __future__ import annotations

import logging
import os
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.frame import Frame
from torchdynamo.capture.model import Emitter, function, polyfill
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import FALSE, NONE, Known, Object, Value
from torchdynamo.capture.wrap import CONSTANTS

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

ONE = Known(1)
REST = "__resume_at_"  # how codegen names the rest of a function: one activation of the user's, several frames


@function(warnings.warn)
def warn(vm: Machine, message: Value, category: Value = NONE, stacklevel: Value = ONE, source: Value = NONE) -> Value:
    text, kind = what_is_said(vm, message, category)
    level = max(vm.known(stacklevel, "stacklevel"), 1)
    frames = [frame for frame in vm.frames if frame.globals.source is not None]
    frame = frames[-level] if level <= len(frames) else None
    module = vm.constant(None if frame is None else frame.globals.real.get("__name__") or "<string>")
    line = frame.position().line if frame is not None else None
    action = vm.call(Known(action_for), [Known(text), Known(kind), module, Known(line)], {})
    decided = vm.known(action, "action")
    if decided == "unknown":
        raise Break("builtin with effects", name="warnings.warn")
    if decided == "error":
        raise vm.error(kind, text)
    if decided != "ignore":
        vm.later.append(Warned(text, kind, frame, line, level - len(frames)).emit)
    return NONE


def what_is_said(vm: Machine, message: Value, category: Value) -> tuple[str, type[Warning]]:
    """Text and category; for a warning that was made, those it has."""
    if message.__class__ is Object and issubclass(message.pytype, Warning):
        args = vm.entity(message).items
        in_c = [type(getattr(message.pytype, name)) is types.WrapperDescriptorType for name in ("__init__", "__str__")]
        if all(in_c) and len(args) == 1 and vm.entity(message).fresh:
            return vm.known(args[0], "message"), message.pytype
    text, kind = vm.known(message, "message"), vm.known(category, "category")
    kind = UserWarning if kind is None else kind
    if type(text) is not str or not isinstance(kind, type) or not issubclass(kind, Warning):
        raise Break("builtin with effects", name="warnings.warn")
    return text, kind


def action_for(text, category, module, line):  # type: ignore[no-untyped-def]
    """What the filters say, as `warnings` asks them. Followed, so that each that decides is guarded.

    Without a module, filters that ask for one may hold or not: "unknown" if that matters to what is done here.
    """
    maybe = False
    for action, wanted, kind, where, at in warnings.filters:
        said = wanted is None or (wanted == text if isinstance(wanted, str) else wanted.match(text))
        if said and issubclass(category, kind):
            if module is None and (where is not None or at):
                if action == "error":
                    return "unknown"
                maybe = True
            elif at in (0, line) and (
                where is None or (where == module if isinstance(where, str) else where.match(module))
            ):
                return "default" if maybe and action == "ignore" else action
    return warnings.defaultaction  # type: ignore[attr-defined]


class Warned:
    """A warning that is to be given."""

    def __init__(self, text: str, kind: type[Warning], frame: Frame | None, line: int | None, above: int) -> None:
        self.text, self.kind, self.frame, self.line, self.above = text, kind, frame, line, above

    def emit(self, emit: Emitter) -> None:
        emit.function(give_warning)
        for each in (self.text, self.kind):
            emit.const(each)
        if self.frame is None:
            emit.const(self.above)
            emit.op("CALL", (3, ()))
        else:
            emit.const(0)
            emit.const(self.frame.raw.co_filename)
            emit.const(self.line)
            emit.namespace(self.frame.globals)
            emit.op("CALL", (6, ()))
        emit.op("POP")


def give_warning(
    text: str,
    kind: type[Warning],
    above: int,
    file: str = "",
    line: int | None = 1,
    space: dict[str, Any] | None = None,
) -> None:
    """Give it, in the name of this place, or of the frame that many activations above our caller."""
    if above:
        frame = caller(above)
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("sys", 1)
        space = frame.f_globals if frame is not None else sys.__dict__
    assert space is not None
    registry = space.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, kind, file, line or 1, space.get("__name__") or "<string>", registry)


def caller(above: int) -> types.FrameType | None:
    """The frame so many activations above that of the compiled function that asks."""
    frame = first_part(sys._getframe(2))
    for _ in range(above):
        frame = first_part(frame.f_back if frame is not None else None)
    return frame


def first_part(frame: types.FrameType | None) -> types.FrameType | None:
    """The frame the function began in: it calls what goes on with the rest of it."""
    while frame is not None and frame.f_code.co_name.startswith(REST):
        frame = frame.f_back
    return frame


# -- logging ----------------------------------------------------------------------------------------------------------
@polyfill(logging.Logger.isEnabledFor)
def is_enabled_for(self, level):  # type: ignore[no-untyped-def]
    """Without its cache."""
    if self.disabled:
        return False
    return self.manager.disable < level and level >= self.getEffectiveLevel()


@polyfill(*(getattr(logging, name) for name in ("_acquireLock", "_releaseLock") if hasattr(logging, name)))
def unlocked():  # type: ignore[no-untyped-def]
    """Which loggers there are is looked at in one step."""


@function(logging.Logger._log)
def log(
    vm: Machine,
    self: Value,
    level: Value,
    msg: Value,
    args: Value,
    exc_info: Value = NONE,
    extra: Value = NONE,
    stack_info: Value = FALSE,
    stacklevel: Value = ONE,
) -> Value:
    """A message of constants is handed to the handlers afterwards."""
    plain = [vm.known(each, "message") for each in (msg, args, exc_info, extra, stack_info)]
    items = plain[1] if type(plain[1]) is tuple else (plain[1],)
    if any(plain[2:]) or not all(type(each) in CONSTANTS for each in (plain[0], *items)):
        raise Break("builtin with effects", name="logging.Logger._log")
    frames = [frame for frame in vm.frames if frame.globals.source is not None and not is_logging(frame)]
    depth = vm.known(stacklevel, "stacklevel")
    frame = frames[-depth] if 1 <= depth <= len(frames) else None
    if frame is None:
        raise Break("builtin with effects", name="logging.Logger._log")
    place = (frame.raw.co_filename, frame.position().line, frame.raw.co_name)

    def emit_log(emit: Emitter) -> None:
        emit.function(write_log)
        emit.value(self)
        for each in (vm.known(level, "level"), plain[0], plain[1], place):
            emit.const(each)
        emit.op("CALL", (5, ()))
        emit.op("POP")

    vm.later.append(emit_log)
    return NONE


def is_logging(frame: Frame) -> bool:
    return os.path.normcase(frame.raw.co_filename) == logging._srcfile


def write_log(logger: logging.Logger, level: int, msg: Any, args: Any, place: tuple[str, int, str]) -> None:
    """What `Logger._log` does once it knows who called."""
    file, line, name = place
    first = caller(0) if name.startswith(REST) else None
    if first is not None:
        name = first.f_code.co_name
    logger.handle(logger.makeRecord(logger.name, level, file, line, msg, args, None, name, None, None))
