"""Leave a frame at a graph break: emit the uncaptured instruction, then calls of continuations."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

from torchdynamo._native import with_globals
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.bound import UNSETS
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import way_out
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.bytecode.stacks import LOOKUPS, looks_up_method, plain_lookup
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import BreakExit, Callee
from torchdynamo.capture.interpreter import MANY, OPS
from torchdynamo.codegen import dynamism_across_breaks, resume, setups, turns
from torchdynamo.codegen.emit import BOUND, GRAPH, CodeEmitter
from torchdynamo.codegen.operands import COUNTED, PEEKS, operands, push_callee
from torchdynamo.codegen.outline import load
from torchdynamo.core.call_sites import calls
from torchdynamo.core.signals import Restart
from torchdynamo.core.value import ABSENT, Known, Object, Value
from torchdynamo.graph.tracebacks import Above

NO_CONTINUATION = frozenset({"RAISE", "RERAISE", "RETURN"})


class Exit:
    """Leaves a frame at a break: emits the instruction itself, then a call of the continuation for each way on.

    If the break is in an inlined call, the instruction is a call of code for the callee's frame, which leaves in the
    same way: it executes the instruction there, goes on, and returns.
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
        """Set up the exit. names: the globals that the code runs with."""
        self.emit = emit
        self.raw = code
        self.exit = exit
        self.code = decode(code)
        self.made = made
        self.skipped = skipped
        self.needed = 0 if exit.resume_here or exit.callee else operands(self.code.instructions[exit.at])
        self.below = exit.stack[: len(exit.stack) - self.needed]
        self.shape = [value is ABSENT for value in self.below]  # stack below the operands: True for each NULL
        self.inner = Inner(emit.capture, exit.callee, made, skipped, names) if exit.callee else None
        self.held = {*code.co_varnames[:1], *held(emit, exit)}  # super() reads the first without an instruction
        why = emit.capture.why
        self.raises = why is not None and why.raises  # as the program does: Python has to run the very same
        self.of_data = why is not None and why.reason in dynamism_across_breaks.OF_DATA

    def store_snapshot(self) -> None:
        """Store the locals under their names; the stack, and values for a callee's code, in temporaries.

        All values are pushed before any local is written, because they may be read from arguments.
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
        for index, (value, _) in enumerate(self.exit.handling):
            emit.value(value)
            stored.append(f"__handled{index}")
        if self.inner is not None:
            self.inner.push(emit)
            stored += self.inner.given()
        for name in reversed(stored):
            emit.op("STORE_FAST", name)
        for name in argument_names(self.raw):
            gone = self.exit.locals.get(name, ABSENT) is ABSENT and name not in stored
            if gone and name not in self.raw.co_cellvars:
                emit.op("DELETE_FAST", name)
        self.delete_temporaries()

    def delete_temporaries(self) -> None:
        """Delete temporaries, so that they do not keep objects alive and are not seen in the frame's locals."""
        self.emit.op("DELETE_FAST", BOUND)
        self.emit.op("DELETE_FAST", GRAPH)
        for index in range(len(self.emit.outputs)):
            self.emit.op("DELETE_FAST", f"__out{index}")
        for name in self.emit.made.values():
            self.emit.op("LOAD_CONST", None)  # the local may be unset, and deleting it would raise
            self.emit.op("STORE_FAST", name)
            self.emit.op("DELETE_FAST", name)

    def handle(self) -> None:
        """Emit instructions after which the exceptions are being handled that the frame handles."""
        for index, (_, depth) in enumerate(self.exit.handling):
            self.emit.op("LOAD_FAST", f"__handled{index}")
            self.emit.op("DELETE_FAST", f"__handled{index}")
            self.emit.op("PUSH_EXC_INFO")
            self.emit.op("POP")
            self.emit.op("STORE_FAST", f"__stack{depth}")

    def write(self) -> None:
        """Emit the exit; locals and temporaries have been stored."""
        emit, exit = self.emit, self.exit
        self.handle()
        if exit.resume_here:
            turn = turns.turn_of(self.raw, exit.at, tuple(self.shape))
            if turn is None or self.raises:
                self.resume(exit.at, stays=True)
            else:
                turns.write(self, turn)
            return
        region = self.code.lookup(exit.at)
        handler = Label()
        start = RegionStart(handler, region.lasti, 0) if region is not None else None
        if start is not None and not versions.EXCEPTION_TABLE:  # the stack is cut to what it is here
            emit.items.append(start)
        for depth, value in enumerate(exit.stack[len(self.below) :], len(self.below)):
            if value is ABSENT:
                emit.op("NULL")
                continue
            emit.op("LOAD_FAST", f"__stack{depth}")
            emit.op("DELETE_FAST", f"__stack{depth}")  # a traceback would keep the frame, and this value, alive
        if start is not None and versions.EXCEPTION_TABLE:
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
            emit.items += [*setups.handled(region.depth), *setups.with_object_for_place(region.lasti)]
            self.after(region.handler, region.depth, 2 if region.lasti else 1)

    def step(self, instruction: Instruction, needed: int, region: RegionStart | None) -> None:
        """Emit the instruction that could not be captured, then calls of the continuations after it."""
        emit, index = self.emit, self.exit.at
        depth = len(self.shape)
        op, arg = instruction.op, instruction.arg
        end = [RegionEnd(region)] if region is not None else []
        left = [Instruction("POP_BLOCK")] if end and not versions.EXCEPTION_TABLE else []  # by a jump
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
            emit.items += [other, *left]
            self.after(self.code.targets[arg[1]], depth, 1 if op == "BRANCH_KEEP" else 0)
            return
        if op == "FOR_ITER":  # of a loop whose turns end in waits
            over = Label()
            emit.items += [Instruction(op, over, instruction.position), *end]
            self.after(index + 1, depth, 2)
            emit.items += [over, *left]
            self.after(self.code.targets[arg], depth, 0)
            return
        if op in LOOKUPS:
            self.look_up(instruction, end)
            return
        pushes = COUNTED[op](arg) if op in COUNTED else OPS[op][2]
        if pushes is None or pushes == MANY or op == "LOAD_SPECIAL":  # whether it pushes NULL is not known before
            raise Restart(-1)
        emit.items += [*setups.alone(instruction), *end]
        if op in UNSETS:
            self.exit.locals.pop(arg, None)
        popped = operands(instruction) - (PEEKS[op](arg) if op in PEEKS else 0)
        self.after(index + 1, depth, needed - popped + pushes)

    def first_raised(self, instruction: Instruction) -> Any:
        """Return the position that a re-raise shows: where the handler was entered; None in a continuation's caller."""
        if not instruction.arg or not versions.EXCEPTION_TABLE:
            return instruction.position
        came = self.exit.stack[-instruction.arg - 1]
        return self.code.instructions[came.obj].position if came.__class__ is Known and came.source is None else None

    def look_up(self, instruction: Instruction, end: list[RegionEnd]) -> None:
        """Emit a method lookup as a plain attribute lookup, with a NULL beside its result.

        The instruction itself pushes two items, of which either may be NULL, which is not known before.
        """
        method = looks_up_method(instruction)
        self.emit.items += [plain_lookup(instruction), *end]
        null = (0 if versions.NULL_FIRST else 1) if method else None
        self.after(self.exit.at + 1, len(self.shape), 2 if method else 1, null)

    def after(self, index: int, depth: int, results: int, null: int | None = None) -> None:
        """Pop `results` results, except the NULL at position `null`, and call the continuation at `index`."""
        for at in reversed(range(results)):
            if at != null:
                self.emit.op("STORE_FAST", f"__stack{depth + at}")
        shape, self.shape = self.shape, [*self.shape[:depth], *(at == null for at in range(results))]
        code = self.resume(index, stays=False)
        self.shape = shape
        for at in (depth + result for result in range(results) if result != null):
            if self.exit.callee is not None:
                dynamism_across_breaks.record_callee(code, f"__stack{at}", self.exit.callee.code)
            elif self.of_data:
                dynamism_across_breaks.record_read(code, f"__stack{at}")
            else:
                dynamism_across_breaks.record_returned(code, f"__stack{at}")

    def resume(self, index: int, stays: bool) -> CodeType:
        """Emit a call of the continuation at `index`; `stays`: in a loop that stays Python."""
        bound = [name for name in self.raw.co_varnames if name in self.exit.locals]
        wanted = self.held | live_locals(self.code, index)
        names = tuple(
            name
            for name in [*bound, *(n for n in self.exit.locals if n not in bound)]
            if name in wanted and self.exit.locals[name] is not ABSENT
        )
        code = self.go_on(index, names, self.way_out() if stays else None)
        if stays:
            self.skipped.append(code)
        stack = {f"__stack{depth}": value for depth, value in enumerate(self.below) if depth < len(self.shape)}
        dynamism_across_breaks.record_variables(
            code, {**{name: self.exit.locals[name] for name in names}, **stack}, self.emit.capture.machine
        )
        return code

    def go_on(
        self, index: int, names: tuple[str, ...], until: int | None = None, unsure: tuple[str, ...] = ()
    ) -> CodeType:
        """Emit a call of the continuation at `index` that is given these variables, and return its code."""
        emit, after = self.emit, list[Item]()
        code, *rest = resume.continuation(self.raw, index, names, tuple(self.shape), until, unsure)
        self.made += [code, *rest]
        push_callee(emit, lambda: self.function(code))
        for name in names:
            load(name, name in unsure, False, emit.items, after, emit.position)
        for depth, null in enumerate(self.shape):
            if not null:
                emit.op("LOAD_FAST", f"__stack{depth}")
                emit.op("DELETE_FAST", f"__stack{depth}")  # hidden from readers of this frame during the call
        emit.op("CALL", (code.co_argcount, ()))
        emit.op("RETURN")
        emit.items += after
        return code

    def is_set(self, name: str) -> bool:
        """Return whether a variable is set where the frame is left."""
        return self.exit.locals.get(name, ABSENT) is not ABSENT

    def way_out(self) -> int | None:
        """Return the instruction after the uncaptured loop, where the stack is empty and capture
        starts again; or None.
        """
        iterating = self.code.instructions[self.exit.at].op == "FOR_ITER"
        return way_out(self.code, self.exit.at) if len(self.shape) == iterating else None

    def function(self, code: CodeType) -> None:
        """Push a function of the frame's cells."""
        free = resume.free_names(resume.origin(self.raw).code)
        for name in free:
            self.emit.op("LOAD_CELL", name)
        if free:
            self.emit.op("BUILD", ("tuple", len(free)))
        self.emit.const(code)
        self.emit.op("MAKE_FUNCTION", ("closure",) if free else ())


class Inner:
    """Code for a callee's frame: given its variables and stack, it leaves at the break as the frame would."""

    def __init__(
        self,
        capture: Capture,
        callee: Callee,
        made: list[CodeType],
        skipped: list[CodeType],
        names: dict[str, Any],
    ) -> None:
        """Emit the code. names: the globals of the code that calls this."""
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
        way = Above(calls(callee.passed)) if callee.passed else None
        self.code = resume.rest_of_frame(code, emit.items, given, way)
        self.free = resume.free_names(code)

    def given(self) -> list[str]:
        """Return the names of the caller's temporaries: the parts of the function, then its arguments."""
        within = self.within.given() if self.within else ()
        count = self.elsewhere + bool(self.free) + len(self.values) + len(within)
        return [f"__given{index}" for index in range(count)]

    def push(self, emit: CodeEmitter) -> None:
        """Push the parts of the function and its arguments, in the order of `given`."""
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
        """Create the function from its parts and call it with its arguments."""
        names = iter(self.given())
        push_callee(emit, lambda: self.function(emit, names))
        rest = list(names)
        for name in rest:
            self.take(emit, name)
        emit.op("CALL", (len(rest), ()))

    def function(self, emit: CodeEmitter, names: Iterator[str]) -> None:
        """Create and push the function; the first of `names` hold its parts."""
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
        """Push the content of a temporary and delete the temporary."""
        emit.op("LOAD_FAST", name)
        emit.op("DELETE_FAST", name)


def held(emit: CodeEmitter, exit: BreakExit) -> Iterator[str]:
    """Yield the variables that must keep their object alive until the function returns, because it may be observed.

    These hold objects that came with the frame or that the instruction is given, which may be weakly referenced.
    Tensors need not live on.
    """
    operands, made = {value.ref for value in exit.stack if value.__class__ is Object}, emit.capture.machine.made_classes
    for name, value in exit.locals.items():
        entity = emit.heap[value] if isinstance(value, Object) else None
        source = entity.source if entity is not None else getattr(value, "source", None)
        came = source is not None and source.how == "local" and not issubclass(value.pytype, torch.Tensor)
        exports = value.pytype is memoryview  # while it lives, its buffer cannot be resized
        known = value.__class__ is Known and id(value.obj) in made  # a class that its bases' `__subclasses__` show
        if came or exports or known or (entity is not None and entity.ref in operands):
            yield name


def is_own(value: Any, name: str) -> bool:
    """Return whether a value is the unchanged argument of this name."""
    source = getattr(value, "source", None)
    return source is not None and source.how == "local" and source.arg == name
