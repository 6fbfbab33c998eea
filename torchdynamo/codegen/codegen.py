"""The code that replaces a frame's: call the graph, replay effects, then return, or step over a break and go on."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names, assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import BreakExit, Return
from torchdynamo.capture.interpreter import MANY, OPS
from torchdynamo.capture.kept import were_changed
from torchdynamo.capture.signals import Attentive, Restart
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import ABSENT
from torchdynamo.codegen import effects, resume
from torchdynamo.codegen.attempt import Attempt
from torchdynamo.codegen.emit import BOUND, BoundIndex, Emitter

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


class Draft(NamedTuple):
    """Replacement code before the graph is compiled: everything but the call of the graph."""

    code: CodeType
    items: list[Item]
    outputs: list[Any]  # graph nodes, in the order the code unpacks them
    bound: list[Source]  # what the code reads of the bound tuple
    continuations: list[CodeType]
    skipped: list[CodeType]  # those that stay Python
    position: Any
    attempt: Attempt | None  # where the graph rests on checks


def draft(capture: Capture, then: Callable[[Emitter], None] | None = None) -> Draft:
    """Write the part after the graph's call. Raises Restart where something cannot be made again.

    `then` writes what comes after the effects.
    """
    if were_changed(capture.machine):
        raise Attentive
    emit = Emitter(capture)
    decoded = decode(capture.code)
    continuations: list[CodeType] = []
    skipped: list[CodeType] = []
    if capture.exit.__class__ is BreakExit:
        emit.position = decoded.instructions[capture.exit.at].position
    else:
        emit.position = None
    attempt = Attempt(emit, capture) if capture.machine.checks or capture.machine.may_raise else None
    if capture.exit.__class__ is BreakExit:
        effects.root_cells(emit, capture)
    effects.replay(emit, capture)
    if isinstance(capture.exit, Return):
        emit.value(capture.exit.value)
        effects.root_cells_that_stay(emit, capture)
        if then is not None:
            then(emit)
        emit.op("RETURN")
    else:
        if resume.inspects_itself(capture.code):
            raise Restart(-1)
        if then is not None:
            then(emit)
        Exit(emit, capture, capture.exit, continuations, skipped).write()
    outputs, bound = list(emit.outputs), list(emit.bound)
    return Draft(capture.code, emit.items, outputs, bound, continuations, skipped, emit.position, attempt)


class Exit:
    """Leaving by a break: the instruction itself, then the continuation for each way on."""

    def __init__(self, emit: Emitter, capture: Capture, exit: BreakExit, made: list[CodeType], skipped: list[CodeType]):
        self.emit = emit
        self.capture = capture
        self.exit = exit
        self.code = decode(capture.code)
        self.made = made
        self.skipped = skipped
        self.shape: list[bool] = []  # the stack below the operands: True where NULL

    def write(self) -> None:
        emit, exit = self.emit, self.exit
        instruction = self.code.instructions[exit.at]
        needed = 0 if exit.resume_here else operands(instruction)
        below = exit.stack[: len(exit.stack) - needed]
        operand_values = exit.stack[len(exit.stack) - needed :] if needed else []
        self.shape = [value is ABSENT for value in below]
        self.push_snapshot(below, operand_values)
        if exit.resume_here:
            self.resume(exit.at, stays=True)
            return
        region = self.code.lookup(exit.at)
        handler = Label()
        start = RegionStart(handler, region.lasti, 0) if region is not None else None
        if start is not None:
            emit.items.append(start)
        self.step(instruction, needed, start)
        if region is not None:
            emit.items.append(handler)
            self.shape = self.shape[: region.depth]
            if len(below) < region.depth:
                raise Restart(-1)
            self.after(region.handler, region.depth, 2 if region.lasti else 1)

    def push_snapshot(self, below: list[Any], operand_values: list[Any]) -> None:
        """Locals go where their names say, the stack below into temporaries, the operands onto the stack.

        All values are pushed before any local is written: they may be read from arguments.
        """
        emit = self.emit
        wanted = self.live_anywhere()
        first = self.capture.code.co_varnames[:1]  # super() reads it, unseen
        moved = [n for n, value in self.exit.locals.items() if (n in wanted or n in first) and not is_own(value, n)]
        for name in moved:
            emit.value(self.exit.locals[name])
        stored = [*moved]
        for depth, value in enumerate([*below, *operand_values]):
            if value is not ABSENT:
                emit.value(value)
                stored.append(f"__stack{depth}")
        for name in reversed(stored):
            emit.op("STORE_FAST", name)
        for name in argument_names(self.capture.code):
            gone = self.exit.locals.get(name, ABSENT) is ABSENT and name not in stored
            if gone and name not in self.capture.code.co_cellvars:
                emit.op("DELETE_FAST", name)
        for depth, value in enumerate(operand_values, len(below)):
            if value is ABSENT:
                emit.op("NULL")
            else:
                emit.op("LOAD_FAST", f"__stack{depth}")

    def live_anywhere(self) -> frozenset[str]:
        return live_locals(self.code, self.exit.at)

    def step(self, instruction: Instruction, needed: int, region: RegionStart | None) -> None:
        """The instruction that could not be captured, and what follows it."""
        emit, index = self.emit, self.exit.at
        depth = len(self.shape)
        op, arg = instruction.op, instruction.arg
        end = [RegionEnd(region)] if region is not None else []
        if op == "RERAISE":
            arg = 0  # the place it was first raised at went with the handler that was followed
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

    def look_up(self, instruction: Instruction, end: list[RegionEnd]) -> None:
        """What finds a method leaves two things, of which one may be NULL; which, nobody knows before. So it is looked
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
        self.resume(index, stays=False)
        self.shape = shape

    def resume(self, index: int, stays: bool) -> None:
        emit, capture = self.emit, self.capture
        bound = [name for name in capture.code.co_varnames if name in self.exit.locals]
        live = live_locals(self.code, index)
        first = capture.code.co_varnames[:1]
        names = tuple(
            name
            for name in [*bound, *(n for n in self.exit.locals if n not in bound)]
            if (name in live or name in first) and self.exit.locals[name] is not ABSENT
        )
        code = resume.continuation(capture.code, index, names, tuple(self.shape))
        if stays:
            self.skipped.append(code)
        self.made.append(code)
        free = resume.free_names(resume.origin(capture.code).code)
        emit.callee(lambda: self.function(code, free))
        for name in names:
            emit.op("LOAD_FAST", name)
        for depth, null in enumerate(self.shape):
            if not null:
                emit.op("LOAD_FAST", f"__stack{depth}")
        emit.op("CALL", (code.co_argcount, ()))
        emit.op("RETURN")

    def function(self, code: CodeType, free: tuple[str, ...]) -> None:
        for name in free:
            self.emit.op("LOAD_CELL", name)
        if free:
            self.emit.op("BUILD", ("tuple", len(free)))
        self.emit.const(code)
        self.emit.op("MAKE_FUNCTION", ("closure",) if free else ())


def operands(instruction: Instruction) -> int:
    """How many stack items an instruction looks at."""
    pops = OPS[instruction.op][1] if instruction.op in OPS else 0
    count = pops if isinstance(pops, int) else pops(instruction.arg)
    return count + (PEEKS[instruction.op](instruction.arg) if instruction.op in PEEKS else 0)


def is_own(value: Any, name: str) -> bool:
    """Whether the value is the argument of that name, untouched."""
    source = getattr(value, "source", None)
    return source is not None and source.how == "local" and source.arg == name


def finish(draft: Draft, graph: Any, arguments: list[str], bound_inputs: int, discard: bool) -> CodeType:
    """The whole code: the graph's call first. `arguments` are the locals it takes; the rest comes bound."""
    head: list[Item] = []
    position = draft.position
    made = lambda op, arg=None: head.append(Instruction(op, arg, position))  # noqa: E731
    if graph is not None:
        emit_call(made, graph, arguments, bound_inputs, len(draft.bound))
        if draft.attempt is not None:
            head += draft.attempt.look(position)
        if discard or not draft.outputs:
            made("POP")
        else:
            made("UNPACK", len(draft.outputs))
            for index in range(len(draft.outputs)):
                made("STORE_FAST", f"__out{index}")
    for item in (*head, *draft.items):
        if isinstance(item, Instruction) and item.arg.__class__ is BoundIndex:
            item.arg = int(item.arg) + bound_inputs
    bound = [BOUND] if draft.bound or bound_inputs else []
    return assemble([*head, *draft.items], draft.code, varnames=[*bound, *locals_of(draft.code)])


def emit_call(made: Any, graph: Any, arguments: list[str], bound_inputs: int, extras: int) -> None:
    if versions.NULL_FIRST:
        made("NULL")
    made("LOAD_CONST", graph)
    if not versions.NULL_FIRST:
        made("NULL")
    for name in arguments:
        made("LOAD_FAST", name)
    if bound_inputs:
        made("LOAD_FAST", BOUND)
        if extras:
            made("LOAD_CONST", slice(0, bound_inputs))
            made("GETITEM")
    made("CALL", (len(arguments) + bool(bound_inputs), ()))


def locals_of(code: CodeType) -> list[str]:
    arguments = argument_names(code)
    return [name for name in code.co_varnames if name not in arguments]
