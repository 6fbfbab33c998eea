"""Leaving a frame by a break: the instruction itself in Python, then a continuation for each way on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from torchdynamo._native import with_globals
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import way_out
from torchdynamo.bytecode.instruction import Instruction, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import BreakExit, Callee
from torchdynamo.capture.interpreter import MANY, OPS
from torchdynamo.codegen import dynamism_across_breaks, resume
from torchdynamo.codegen.emit import BOUND, GRAPH, CodeEmitter
from torchdynamo.core.signals import Restart
from torchdynamo.core.value import ABSENT, Known, Object, Value
from torchdynamo.graph.tracebacks import Above

# Instructions that look below what they pop: how many further items.
PEEKS: dict[str, Any] = {
    "APPEND": lambda arg: arg[1],
    "EXTEND": lambda arg: arg[1],
    "IMPORT_FROM": lambda arg: 1,
    "GET_LEN": lambda arg: 1,
    "MATCH_MAPPING": lambda arg: 1,
    "MATCH_SEQUENCE": lambda arg: 1,
    "MATCH_KEYS": lambda arg: 2,
    "BRANCH_KEEP": lambda arg: 1,
    "FOR_ITER": lambda arg: 1,
    "SEND": lambda arg: 2,
}
# how many values the others of "however many" push: LOAD_SUPER may push an empty slot, which cannot be handed over
COUNTED: dict[str, Callable[[Any], int]] = {
    "UNPACK": lambda arg: int(arg),
    "UNPACK_EX": lambda arg: int(arg[0] + arg[1] + 1),
}
NO_CONTINUATION = frozenset({"RAISE", "RERAISE", "RETURN"})


class Exit:
    """Leaving by a break: the instruction itself, then the continuation for each way on.

    Where the break is in a call that was being followed, the call is that of code for the callee's frame, which leaves
    in the same way: it executes the instruction there, goes on, and returns.
    """

    def __init__(
        self,
        emit: CodeEmitter,
        code: CodeType,
        exit: BreakExit,
        made: list[CodeType],
        skipped: list[CodeType],
        names: dict[str, Any],
    ) -> None:
        """Begin an emission. names: the globals that the code runs with."""
        self.emit = emit
        self.raw = code
        self.exit = exit
        self.code = decode(code)
        self.made = made
        self.skipped = skipped
        self.needed = 0 if exit.resume_here or exit.callee else operands(self.code.instructions[exit.at])
        self.below = exit.stack[: len(exit.stack) - self.needed]
        self.shape = [value is ABSENT for value in self.below]  # of the stack below the operands: True where NULL
        self.inner = Inner(emit.capture, exit.callee, made, skipped, names) if exit.callee else None
        self.held = {*code.co_varnames[:1], *held(emit, exit)}  # super() reads the first, unseen
        why = emit.capture.why
        self.of_data = why is not None and why.reason in dynamism_across_breaks.OF_DATA

    def push_snapshot(self) -> None:
        """Emit a snapshot: locals by their names, the stack and what a callee is given into temporaries.

        All values are pushed before any local is written: they may be read from arguments.
        """
        emit = self.emit
        wanted = self.held | live_locals(self.code, self.exit.at)
        moved = [name for name, value in self.exit.locals.items() if name in wanted and not is_own(value, name)]
        for name in moved:
            emit.value(self.exit.locals[name])
        stored = [*moved]
        for depth, value in enumerate(self.exit.stack):
            if value is not ABSENT:
                emit.value(value)
                stored.append(f"__stack{depth}")
        if self.inner is not None:
            self.inner.push(emit)
            stored += self.inner.given()
        for name in reversed(stored):
            emit.op("STORE_FAST", name)
        for name in argument_names(self.raw):
            gone = self.exit.locals.get(name, ABSENT) is ABSENT and name not in stored
            if gone and name not in self.raw.co_cellvars:
                emit.op("DELETE_FAST", name)
        self.let_go()

    def let_go(self) -> None:
        """Delete what was only needed to make the values: it neither lives on nor is seen by who reads the frame."""
        self.emit.op("DELETE_FAST", BOUND)
        self.emit.op("DELETE_FAST", GRAPH)
        for index in range(len(self.emit.outputs)):
            self.emit.op("DELETE_FAST", f"__out{index}")
        for name in self.emit.made.values():
            self.emit.op("LOAD_CONST", None)  # it may not be set
            self.emit.op("STORE_FAST", name)
            self.emit.op("DELETE_FAST", name)

    def write(self) -> None:
        """Leave, from where locals and temporaries are in their places."""
        emit, exit = self.emit, self.exit
        if exit.resume_here:
            self.resume(exit.at, stays=True)
            return
        region = self.code.lookup(exit.at)
        handler = Label()
        start = RegionStart(handler, region.lasti, 0) if region is not None else None
        for depth, value in enumerate(exit.stack[len(self.below) :], len(self.below)):
            if value is ABSENT:
                emit.op("NULL")
                continue
            emit.op("LOAD_FAST", f"__stack{depth}")
            emit.op("DELETE_FAST", f"__stack{depth}")  # an exception that is raised leads to this frame
        if start is not None:
            emit.items.append(start)
        if self.inner is not None:
            self.inner.call(emit)
            emit.items += [RegionEnd(start)] if start is not None else []
            self.after(exit.at + 1, len(self.shape), 1)
        else:
            self.step(self.code.instructions[exit.at], self.needed, start)
        if region is not None:
            emit.items.append(handler)
            self.shape = self.shape[: region.depth]
            if len(self.below) < region.depth:
                raise Restart(-1)
            self.after(region.handler, region.depth, 2 if region.lasti else 1)

    def step(self, instruction: Instruction, needed: int, region: RegionStart | None) -> None:
        """Emit the instruction that could not be captured, and the call of the continuation."""
        emit, index = self.emit, self.exit.at
        depth = len(self.shape)
        op, arg = instruction.op, instruction.arg
        end = [RegionEnd(region)] if region is not None else []
        if op == "RERAISE":
            emit.items += [Instruction(op, 0, self.first_raised(instruction)), *end]
            return
        if op in NO_CONTINUATION:
            emit.items += [Instruction(op, arg, instruction.position), *end]
            return
        if op in ("BRANCH", "BRANCH_KEEP"):
            other = Label()
            emit.items += [Instruction(op, (arg[0], other), instruction.position), *end]
            self.after(index + 1, depth, 0)
            emit.items.append(other)
            self.after(self.code.targets[arg[1]], depth, 1 if op == "BRANCH_KEEP" else 0)
            return
        if op in ("LOAD_METHOD", "LOAD_SUPER"):
            self.look_up(instruction, end)
            return
        pushes = COUNTED[op](arg) if op in COUNTED else OPS[op][2]
        if pushes is None or pushes == MANY:
            raise Restart(-1)
        emit.items += [Instruction(op, arg, instruction.position), *end]
        popped = operands(instruction) - (PEEKS[op](arg) if op in PEEKS else 0)
        self.after(index + 1, depth, needed - popped + pushes)

    def first_raised(self, instruction: Instruction) -> Any:
        """Return where the frame is then: where the handler was entered from; None: in the frame that this one goes on
        for.
        """
        if not instruction.arg or not versions.EXCEPTION_TABLE:
            return instruction.position
        came = self.exit.stack[-instruction.arg - 1]
        return self.code.instructions[came.obj].position if came.__class__ is Known and came.source is None else None

    def look_up(self, instruction: Instruction, end: list[RegionEnd]) -> None:
        """Emit a method lookup, which leaves two things, one of which may be NULL; nobody knows which. So it is looked
        up as any attribute is, and the NULL is put beside it."""
        if instruction.op == "LOAD_METHOD":
            plain, method = Instruction("LOAD_ATTR", instruction.arg, instruction.position), True
        else:
            name, method, two = instruction.arg
            plain = Instruction("LOAD_SUPER", (name, False, two), instruction.position)
        self.emit.items += [plain, *end]
        null = (0 if versions.NULL_FIRST else 1) if method else None
        self.after(self.exit.at + 1, len(self.shape), 2 if method else 1, null)

    def after(self, index: int, depth: int, results: int, null: int | None = None) -> None:
        """Take the results off the stack (all but the one that is NULL), and call the continuation at `index`."""
        for at in reversed(range(results)):
            if at != null:
                self.emit.op("STORE_FAST", f"__stack{depth + at}")
        shape, self.shape = self.shape, [*self.shape[:depth], *(at == null for at in range(results))]
        code = self.resume(index, stays=False)
        self.shape = shape
        for at in (depth + result for result in range(results) if result != null):
            if self.exit.callee is not None:
                dynamism_across_breaks.take(code, f"__stack{at}", self.exit.callee.code)
            elif self.of_data:
                dynamism_across_breaks.draw(code, f"__stack{at}")
            else:
                dynamism_across_breaks.get_back(code, f"__stack{at}")

    def resume(self, index: int, stays: bool) -> CodeType:
        emit = self.emit
        bound = [name for name in self.raw.co_varnames if name in self.exit.locals]
        wanted = self.held | live_locals(self.code, index)
        names = tuple(
            name
            for name in [*bound, *(n for n in self.exit.locals if n not in bound)]
            if name in wanted and self.exit.locals[name] is not ABSENT
        )
        until = self.way_out() if stays else None
        code, *rest = resume.continuation(self.raw, index, names, tuple(self.shape), until)
        if stays:
            self.skipped.append(code)
        self.made += [code, *rest]
        free = resume.free_names(resume.origin(self.raw).code)
        emit.callee(lambda: self.function(code, free))
        for name in names:
            emit.op("LOAD_FAST", name)
        for depth, null in enumerate(self.shape):
            if not null:
                emit.op("LOAD_FAST", f"__stack{depth}")
                emit.op("DELETE_FAST", f"__stack{depth}")  # not to be seen by who reads a frame that waits
        emit.op("CALL", (code.co_argcount, ()))
        emit.op("RETURN")
        stack = {f"__stack{depth}": value for depth, value in enumerate(self.below) if depth < len(self.shape)}
        dynamism_across_breaks.give(
            code, {**{name: self.exit.locals[name] for name in names}, **stack}, emit.capture.machine
        )
        return code

    def way_out(self) -> int | None:
        """Return what follows the loop that stays Python, where nothing is on the stack any more: it is
        captured again.
        """
        iterating = self.code.instructions[self.exit.at].op == "FOR_ITER"
        return way_out(self.code, self.exit.at) if len(self.shape) == iterating else None

    def function(self, code: CodeType, free: tuple[str, ...]) -> None:
        for name in free:
            self.emit.op("LOAD_CELL", name)
        if free:
            self.emit.op("BUILD", ("tuple", len(free)))
        self.emit.const(code)
        self.emit.op("MAKE_FUNCTION", ("closure",) if free else ())


class Inner:
    """Code for the frame of a callee: given what its variables and stack held, it leaves as the frame would."""

    def __init__(
        self,
        capture: Capture,
        callee: Callee,
        made: list[CodeType],
        skipped: list[CodeType],
        names: dict[str, Any],
    ) -> None:
        """Begin a continuation. names: the globals of the code that calls it."""
        emit = CodeEmitter(capture)
        self.elsewhere = callee.globals.real is not names
        code, exit = callee.code, callee.exit
        emit.position = decode(code).instructions[exit.at].position
        leaving = Exit(emit, code, exit, made, skipped, callee.globals.real)
        self.callee = callee
        self.within = leaving.inner
        wanted = leaving.held | live_locals(leaving.code, exit.at)
        kept = {name: value for name, value in exit.locals.items() if name in wanted and value is not ABSENT}
        stack = {f"__stack{depth}": value for depth, value in enumerate(exit.stack) if value is not ABSENT}
        self.values: dict[str, Value] = {**kept, **stack}
        leaving.write()
        given = (*self.values, *(self.within.given() if self.within else ()))
        self.code = resume.taking_over(code, emit.items, given, Above(callee.passed) if callee.passed else None)
        self.free = resume.free_names(code)

    def given(self) -> list[str]:
        """Return the temporaries of whoever calls it: the function's parts, and its arguments."""
        within = self.within.given() if self.within else ()
        count = self.elsewhere + bool(self.free) + len(self.values) + len(within)
        return [f"__given{index}" for index in range(count)]

    def push(self, emit: CodeEmitter) -> None:
        """Push all that, in that order."""
        if self.elsewhere:
            emit.namespace(self.callee.globals)
        if self.free:
            for name in self.free:
                emit.value(self.callee.cells[name])
            emit.op("BUILD", ("tuple", len(self.free)))
        for value in self.values.values():
            emit.value(value)
        if self.within is not None:
            self.within.push(emit)

    def call(self, emit: CodeEmitter) -> None:
        """Make the function, and call it with the rest."""
        names = iter(self.given())
        emit.callee(lambda: self.function(emit, names))
        rest = list(names)
        for name in rest:
            self.take(emit, name)
        emit.op("CALL", (len(rest), ()))

    def function(self, emit: CodeEmitter, names: Iterator[str]) -> None:
        """Push the function, whose parts are the first of these temporaries."""
        space = next(names) if self.elsewhere else ""
        if space:
            emit.function(with_globals)
        if self.free:
            self.take(emit, next(names))
        emit.const(self.code)
        emit.op("MAKE_FUNCTION", ("closure",) if self.free else ())
        if space:
            self.take(emit, space)
            emit.op("CALL", (2, ()))

    def take(self, emit: CodeEmitter, name: str) -> None:
        """Push what a temporary holds, and nothing else holds any more."""
        emit.op("LOAD_FAST", name)
        emit.op("DELETE_FAST", name)


def operands(instruction: Instruction) -> int:
    """Return how many stack items an instruction looks at."""
    pops = OPS[instruction.op][1] if instruction.op in OPS else 0
    count = pops if isinstance(pops, int) else pops(instruction.arg)
    return count + (PEEKS[instruction.op](instruction.arg) if instruction.op in PEEKS else 0)


def held(emit: CodeEmitter, exit: BreakExit) -> Iterator[str]:
    """Yield the variables that keep a weakly referenced object alive until the function returns.

    Where it is there already: it came with the frame, or the instruction is given it. Tensors need not live on.
    """
    operands, made = {value.ref for value in exit.stack if value.__class__ is Object}, emit.capture.machine.made_classes
    for name, value in exit.locals.items():
        entity = emit.heap[value] if isinstance(value, Object) else None
        source = entity.source if entity is not None else getattr(value, "source", None)
        came = source is not None and source.how == "local" and not issubclass(value.pytype, torch.Tensor)
        exports = value.pytype is memoryview  # while it is there, what it shows does not change its size
        known = value.__class__ is Known and id(value.obj) in made  # to its bases
        if came or exports or known or (entity is not None and entity.ref in operands):
            yield name


def is_own(value: Any, name: str) -> bool:
    """Return whether the value is the argument of that name, untouched."""
    source = getattr(value, "source", None)
    return source is not None and source.how == "local" and source.arg == name
