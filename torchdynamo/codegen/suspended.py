"""Rewrite generators and coroutines: what is between two `yield`s is a function of its own, which is captured.

What is left of the body stays Python: `yield`, `await` and `yield from` themselves, with the handlers around them. So
the generator is CPython's own, and what is sent to it, thrown into it and seen of it is as ever. All variables that are
set are there while it waits.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Code, Instruction, Item, Label, Region, RegionEnd, RegionStart
from torchdynamo.bytecode.stacks import NULL, VALUE, UnknownEffect, stacks
from torchdynamo.capture.vm.self_inspection import inspects_itself
from torchdynamo.codegen import resume
from torchdynamo.codegen.outline import KINDS, Kind, NotOutlined, PartPlace, WayOut, effects, part, put_away
from torchdynamo.codegen.part_calls import PartCalls
from torchdynamo.codegen.setups import with_object_for_place


class Wait(NamedTuple):
    """Instructions with which the function waits, and the one at which it goes on."""

    instructions: tuple[int, ...]
    resumed: int
    region: Region | None


BEFORE = frozenset({"GET_YIELD_FROM_ITER", "GET_AWAITABLE", "GET_ANEXT", "ASYNC_WITH_ENTER"})


def waits(code: Code) -> dict[int, Wait]:
    """Return where a function waits, by the first instruction of each wait. Raises NotOutlined."""
    if "waits" not in code.analyses:
        found = (wait_at(code, index) for index, each in enumerate(code.instructions) if each.op == "YIELD")
        code.analyses["waits"] = {wait.instructions[0]: wait for wait in found}
    known: dict[int, Wait] = code.analyses["waits"]
    return known


def wait_at(code: Code, index: int) -> Wait:
    """Return the wait that a YIELD instruction is a part of. Raises NotOutlined for one of another form."""
    instructions, targets = code.instructions, set(code.targets.values())
    first, last, resumed = index, index, index + 1
    if instructions[index].arg is not None:
        send, back = instructions[index - 1], instructions[index + 1]
        if send.op != "SEND" or back.op != "JUMP" or code.targets[back.arg] != index - 1:
            raise NotOutlined
        first, last, resumed = index - 2, index + 1, code.targets[send.arg]
        while instructions[first - 1].op in BEFORE and first not in targets:
            first -= 1
    elif instructions[index - 1].op == "INTRINSIC" and instructions[index - 1].arg == "ASYNC_GEN_WRAP":
        first = index - 1
    inside = range(first, last + 1)
    regions = {code.lookup(each) for each in inside}
    if len(regions) > 1:
        raise NotOutlined
    return Wait(tuple(inside), resumed, regions.pop())


KINDS["segment"] = Kind(lambda code, start: waits(code).__contains__, True, lambda place: 0)


def rewritten(code: CodeType) -> CodeType | None:
    """Return the code of a generator or coroutine that calls functions for what is between its waits.

    None if that cannot be done.
    """
    decoded = decode(code)
    if not versions.OUTLINES or inspects_itself(code):
        return None
    known: dict[str, CodeType | None] = decoded.analyses.setdefault("rewritten", {})
    if "code" not in known:
        try:
            known["code"] = Rewriting(code).run()
        except (NotOutlined, UnknownEffect):
            known["code"] = None
    return known["code"]


class Rewriting:
    """The state of one rewriting: instructions so far, and the parts that are still to be called."""

    def __init__(self, code: CodeType) -> None:
        self.raw = code
        self.code = decode(code)
        self.waits = waits(self.code)
        self.items: list[Item] = []
        self.position: Any = None
        self.calls = PartCalls(self)
        self.entries: dict[int, tuple[Label, tuple[bool, ...]]] = {}  # where parts begin
        self.heads: dict[int, tuple[Label, WayOut]] = {}  # where the function waits
        self.to_call: list[int] = []
        self.to_wait: list[int] = []

    def op(self, op: str, arg: Any = None) -> None:
        self.items.append(Instruction(op, arg, self.position))

    def run(self) -> CodeType:
        """Return the code. Raises NotOutlined or UnknownEffect."""
        self.entry(0, ())
        while self.to_call or self.to_wait:
            if self.to_call:
                self.call(self.to_call.pop())
            else:
                self.wait(self.to_wait.pop())
        self.calls.finish()
        return assemble(self.items, self.raw)

    def entry(self, index: int, stack: tuple[bool, ...]) -> Label:
        """Return the label of the call of the part that begins at an instruction."""
        if index not in self.entries:
            self.entries[index] = Label(), stack
            self.to_call.append(index)
        label, known = self.entries[index]
        if known != stack:
            raise NotOutlined
        return label

    def call(self, index: int) -> None:
        """Emit a call of the part that begins at an instruction."""
        label, stack = self.entries[index]
        self.position = self.code.instructions[index].position
        self.items.append(label)
        made = part(self.raw, PartPlace("segment", index, stack))
        self.calls.call(made, lambda: self.function(made.code), self.go_on)

    def go_on(self, way: WayOut) -> None:
        if way.to not in self.heads:
            self.heads[way.to] = Label(), way
            self.to_wait.append(way.to)
        self.op("JUMP", self.heads[way.to][0])

    def function(self, code: CodeType) -> None:
        """Push a function of the frame's cells."""
        free = resume.free_names(self.raw)
        for name in free:
            self.op("LOAD_CELL", name)
        if free:
            self.op("BUILD", ("tuple", len(free)))
        self.op("LOAD_CONST", code)
        self.op("MAKE_FUNCTION", ("closure",) if free else ())

    def wait(self, index: int) -> None:
        """Emit a wait, and jumps to what follows it."""
        label, way = self.heads[index]
        wait = self.waits[index]
        self.items.append(label)
        self.position = self.code.instructions[index].position
        for depth, null in enumerate(way.stack):
            if null:
                self.op("NULL")
                continue
            self.op("LOAD_FAST", f"__stack{depth}")
            self.op("DELETE_FAST", f"__stack{depth}")
        region = wait.region
        start = None if region is None else RegionStart(Label(), region.lasti, region.depth)
        self.items += [start] if start is not None else []
        self.copy(wait)
        self.items += [RegionEnd(start)] if start is not None else []
        entry = tuple(NULL if null else VALUE for null in way.stack)
        inside = frozenset(wait.instructions)
        found = stacks(self.code, index, entry, lambda each: each not in inside, effects())
        self.store(tuple(slot == NULL for slot in found[wait.resumed]), wait.resumed)
        if start is not None and region is not None:
            self.items += [start.handler, *with_object_for_place(region.lasti)]
            self.store((*way.stack[: region.depth], *[False] * (1 + region.lasti)), region.handler)

    def copy(self, wait: Wait) -> None:
        """Emit the instructions of a wait."""
        there, end = Label(), Label()
        for index in wait.instructions:
            item = self.code.instructions[index]
            if item.op == "SEND":
                self.items += [there, Instruction("SEND", end, item.position)]
            elif item.op == "JUMP":
                self.items += [Instruction("JUMP", there, item.position), end]
            else:
                self.items.append(item)

    def store(self, stack: tuple[bool, ...], index: int) -> None:
        """Put the stack into temporaries and go to the call of the part at an instruction."""
        put_away(self.op, stack)
        self.op("JUMP", self.entry(index, stack))
