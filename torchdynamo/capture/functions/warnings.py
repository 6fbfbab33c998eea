"""`warnings.warn`: said in order, where the frame's effects are done.

A warning is attributed to a frame so many calls up. Of functions that are inlined, and of those that a model stands
for, file and line are known. For those above, the stack is looked at when it is said. What the filters make an error is
raised in its place.

`warnings.catch_warnings` and the functions that change filters are followed as they are written: they assign names of
the module `warnings`. Under filters of the frame's own, what is to be done with a warning is known, and goes with it.
"""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any, NamedTuple

from torchdynamo.bytecode.decode import decode
from torchdynamo.capture.frame import Globals
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, present
from torchdynamo.core.call_sites import Passed, namespace
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import NO_ITEMS, NONE, ONE, Known, Object, Value

REST = "__resume_at_"  # how codegen names the rest of a function: one activation of the user's, several frames
FILTERS_CHANGED = "filters of warnings changed"
WARNS = "warn "  # beginning of the texts of deferred warnings
HOOKS = ("showwarning", "_showwarnmsg_impl")  # names of `warnings` that say how one is shown


@function(warnings.warn)
def warn(
    vm: Machine,
    message: Value,
    category: Value = NONE,
    stacklevel: Value = ONE,
    source: Value = NONE,
    skip_file_prefixes: Value = NO_ITEMS,
) -> Value:
    text, kind = text_and_category(vm, message, category)
    level = max(vm.known(stacklevel, "stacklevel"), 1)
    frames = activations(vm)
    prefixes = vm.concretely(skip_file_prefixes)
    if prefixes != ():
        level, frames = max(level, 2), frames_outside(frames, prefixes)
        if level > len(frames):  # whose files are above is not known
            raise Break("builtin with effects", name="warnings.warn")
    frame = frames[-level] if level <= len(frames) else None
    module = vm.constant(None if frame is None else frame.globals.real.get("__name__") or "<string>")
    line = frame.line if frame is not None else None
    changed = newest_change(vm)
    decided = vm.known(vm.call(Known(action_for), [Known(text), Known(kind), module, Known(line)], {}), "action")
    if decided == "unknown" or (frame is None and changed is not None):
        raise Break("builtin with effects", name="warnings.warn")
    if decided == "error":
        raise vm.error(kind, text)
    if decided == "ignore":
        return NONE
    if is_hooked(vm):
        if frame is None or changed is None:
            raise Break("builtin with effects", name="warnings.warn")
        hand_over(vm, changed, decided, (text, kind, line), frame)
    else:
        warned = DeferredWarning(vm, decided, text, kind, frame, level - len(frames))
        vm.effects.defer(f"{WARNS}{kind.__name__} {text!r}", warned)
    return NONE


class Activation(NamedTuple):
    """A call of a Python function that is being captured, where it stands."""

    code: types.CodeType
    line: int | None
    globals: Globals


def activations(vm: Machine) -> list[Activation]:
    """Return the calls that eager would have on its stack, outermost first, from the captured frame on."""
    found = []
    for frame in vm.frames:
        found += [activation_of(vm, each) for each in frame.passed]
        if frame.globals.source is not None:  # a polyfill stands for C, which has no frame
            found.append(Activation(frame.raw, frame.position().line, frame.globals))
    return found


def activation_of(vm: Machine, passed: Passed) -> Activation:
    """Return the call of a function that a model stands for."""
    code = passed.code()
    assert code is not None
    places = {each.offset: each.position for each in decode(code).instructions}
    position = places[passed.offset]
    home = Source("dict", Source("module", None, passed.module))
    names = Globals(namespace(passed.module), home, vm.roots.builtins)
    return Activation(code, None if position is None else position.lineno, names)


def frames_outside(frames: list[Activation], prefixes: Any) -> list[Activation]:
    """Return the frames that count as callers of the last one, and it: those of files that begin otherwise."""
    if type(prefixes) is not tuple or not all(type(each) is str for each in prefixes):
        raise Break("builtin with effects", name="warnings.warn")
    return [*(each for each in frames[:-1] if not each.code.co_filename.startswith(prefixes)), frames[-1]]


def is_hooked(vm: Machine) -> bool:
    """Return whether the frame has assigned a function to which warnings go."""
    return vm.effects.wrote_names and any(vm.effects.renames(vars(warnings), name) for name in HOOKS)


def hand_over(vm: Machine, changed: FiltersChange, decided: str, what: tuple[Any, ...], frame: Activation) -> None:
    """Hand a warning to the function that the frame has assigned, once for each place since the filters changed."""
    text, kind, line = what
    if decided in ("default", "module"):
        key = (id(frame.globals.real), text, kind, line if decided == "default" else 0)
        if key in changed.said:
            return
        changed.said.add(key)
    elif decided not in ("always", "all"):
        raise Break("builtin with effects", name="warnings.warn")
    place: list[Value] = [Known(each) for each in (text, kind, frame.code.co_filename, line)]
    vm.call(Known(show_message), place, {})


def show_message(text, category, filename, line):  # type: ignore[no-untyped-def]
    """Show a warning, as the end of `warnings.warn_explicit` does."""
    warnings._showwarnmsg(warnings.WarningMessage(category(text), category, filename, line))  # type: ignore[attr-defined]


def text_and_category(vm: Machine, message: Value, category: Value) -> tuple[str, type[Warning]]:
    """Return text and category of a warning; of an instance, those that it has."""
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
    """Return the action that the filters decide. Inlined, so that each filter that decides is guarded.

    Without a module, a filter that names one may match or not: "unknown" is returned if that decides about an error.
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


class DeferredWarning:
    """Emit a warning, as a deferred call. The graph ends before it if the frame looks into the list where it goes."""

    def __init__(
        self,
        vm: Machine,
        action: str,
        text: str,
        kind: type[Warning],
        frame: Activation | None,
        above: int,
    ) -> None:
        self.vm, self.action, self.step = vm, action, vm.step
        self.text, self.kind, self.frame, self.above = text, kind, frame, above

    def __call__(self, emit: Emitter) -> None:
        log = getattr(warnings._showwarnmsg_impl, "__self__", None)  # type: ignore[attr-defined]
        if log is not None and id(log) in self.vm.heap.by_id:
            raise Restart(self.step - 1, "a warning in a list that is looked at")
        emit.function(give_warning)
        for each in (self.text, self.kind):
            emit.const(each)
        if self.frame is None:
            emit.const(self.above)
            emit.op("CALL", (3, ()))
        else:
            emit.const(0)
            emit.const(self.frame.code.co_filename)
            emit.const(self.frame.line)
            emit.namespace(self.frame.globals)
            emit.const(self.action if newest_change(self.vm) else None)
            emit.op("CALL", (7, ()))
        emit.op("POP")


def give_warning(
    text: str,
    kind: type[Warning],
    above: int,
    file: str = "",
    line: int | None = 1,
    space: dict[str, Any] | None = None,
    action: Any = None,
) -> None:
    """Give a warning in the name of a place, or of the frame `above` activations above the caller."""
    if above:
        frame = frame_above(above)
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("sys", 1)
        space = frame.f_globals if frame is not None else sys.__dict__
    assert space is not None
    registry = space.setdefault("__warningregistry__", {})
    filters = warnings.filters
    try:
        if action is not None:
            warnings.filters = [(action, None, kind, None, 0)]
        warnings.warn_explicit(text, kind, file, line or 1, space.get("__name__") or "<string>", registry)
    finally:
        warnings.filters = filters


def frame_above(above: int) -> types.FrameType | None:
    """Return the frame `above` activations above that of the compiled function that asks."""
    frame = first_activation(sys._getframe(2))
    for _ in range(above):
        frame = first_activation(frame.f_back if frame is not None else None)
    return frame


def first_activation(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the frame in which a function began, given that of one of its continuations."""
    while frame is not None and frame.f_code.co_name.startswith(REST):
        frame = frame.f_back
    return frame


# -- filters ----------------------------------------------------------------------------------------------------------
class FiltersChange:
    """Note, as a deferred call, that the filters changed: what was given once in a place may be given again there.

    Warnings of operators come when the graph runs, after the filters of a block are gone. Where the frame would see
    that (it records warnings, or makes them errors), the graph ends before.
    """

    def __init__(self, vm: Machine, since: FiltersChange | None) -> None:
        self.vm = vm
        self.begins: tuple[int, int] = since.begins if since and since.shows() else (vm.step, vm.ops)
        self.said: set[tuple[Any, ...]] = set()
        self.makes_errors = vm.truth(vm.call(Known(makes_errors), [], {}))

    def shows(self) -> bool:
        """Return whether the frame can see the warnings that are given in it."""
        return self.makes_errors or is_hooked(self.vm)

    def check(self) -> None:
        """Restart the capture before the change if operators followed it whose warnings the frame would see."""
        step, ops = self.begins
        if self.shows() and self.vm.ops > ops:
            raise Restart(step - 1, "operators where warnings are recorded or errors")

    def __call__(self, emit: Emitter) -> None:
        if self is newest_change(self.vm):
            self.check()
        emit.function(warnings._filters_mutated)  # type: ignore[attr-defined]
        emit.op("CALL", (0, ()))
        emit.op("POP")


def are_deferred(vm: Machine) -> bool:
    """Return whether warnings, or changes of their filters, wait until the graph has run."""
    return any(each.text == FILTERS_CHANGED or each.text.startswith(WARNS) for each in vm.effects.deferred)


def newest_change(vm: Machine) -> FiltersChange | None:
    """Return the last change of the filters by the frame."""
    return next((each.emit for each in reversed(vm.effects.deferred) if isinstance(each.emit, FiltersChange)), None)


def makes_errors():  # type: ignore[no-untyped-def]
    """Return whether a filter makes errors of warnings that operators may give."""
    for action, _, kind, _, _ in warnings.filters:
        if action == "error" and any(
            issubclass(each, kind) for each in (UserWarning, DeprecationWarning, FutureWarning)
        ):
            return True
    return False


@function(*present(warnings, "_acquire_lock", "_release_lock"))
def locked(vm: Machine) -> Value:
    """Return nothing: the lock is taken where the change of the filters is made."""
    return NONE


@function(*present(warnings, "_filters_mutated", "_filters_mutated_lock_held"))
def filters_changed(vm: Machine) -> Value:
    before = newest_change(vm)
    if before is not None:
        before.check()
    vm.effects.defer(FILTERS_CHANGED, FiltersChange(vm, before))
    return NONE
