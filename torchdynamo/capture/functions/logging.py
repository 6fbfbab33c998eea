"""logging: messages are deferred calls, replayed in order with the frame's side effects."""

from __future__ import annotations

import logging
import os
from typing import Any

from torchdynamo.capture.frame import Frame
from torchdynamo.capture.functions.warnings import REST, frame_above
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, polyfill, present
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.signals import Break
from torchdynamo.core.value import FALSE, NONE, ONE, Value


@polyfill(logging.Logger.isEnabledFor)
def is_enabled_for(self, level):  # type: ignore[no-untyped-def]
    """Return whether a logger emits messages of this level, without its cache of answers."""
    if self.disabled:
        return False
    return self.manager.disable < level and level >= self.getEffectiveLevel()


@polyfill(*present(logging, "_acquireLock", "_releaseLock"))
def unlocked():  # type: ignore[no-untyped-def]
    """Do nothing: a lock is not needed, since the loggers are looked up in one step."""


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
    """Defer a message of constants: handlers get it after the graph."""
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

    vm.effects.defer(f"log {plain[0]!r}", emit_log)
    return NONE


def is_logging(frame: Frame) -> bool:
    """Return whether a frame runs code of the logging module itself."""
    return os.path.normcase(frame.raw.co_filename) == logging._srcfile


def write_log(logger: logging.Logger, level: int, msg: Any, args: Any, place: tuple[str, int, str]) -> None:
    """Hand a message to the handlers of a logger, as `Logger._log` does once it knows the caller."""
    file, line, name = place
    first = frame_above(0) if name.startswith(REST) else None
    if first is not None:
        name = first.f_code.co_name
    logger.handle(logger.makeRecord(logger.name, level, file, line, msg, args, None, name, None, None))
