"""Emit calls of the parts that were outlined: the arguments, and what is done on each way out."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torchdynamo import _native
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.codegen.operands import Receiver, push_callee
from torchdynamo.codegen.outline import RETURNED, Outlined, WayOut, load
from torchdynamo.codegen.resume import Unset


class PartCalls:
    """Emits calls of parts within one code. A frame of it is not seen in tracebacks of what the parts raise."""

    def __init__(self, emit: Receiver) -> None:
        self.emit = emit
        self.raised = Label()

    def call(
        self,
        part: Outlined,
        function: Callable[[], None],
        go_on: Callable[[WayOut], None],
        stays: Collection[str] = (),
    ) -> None:
        """Emit a call of a part. Its stack is in temporaries.

        function: pushes the part as a function. go_on: emits what is done on a way, when its results are in variables
        and temporaries. stays: variables that keep their object during the call.
        """
        emit, after = self.emit, list[Item]()
        push_callee(emit, function)
        for name in part.names:
            moves = name in part.touched and name not in stays
            load(name, name in part.unsure, moves, emit.items, after, emit.position)
        for depth, null in enumerate(part.stack):
            if not null:
                emit.op("LOAD_FAST", f"__stack{depth}")
            if not null and depth >= part.below:
                emit.op("DELETE_FAST", f"__stack{depth}")
        start = RegionStart(self.raised, False, 0)
        emit.items.append(start)
        emit.op("CALL", (len(part.names) + part.stack.count(False), ()))
        emit.items.append(RegionEnd(start))
        outcomes: list[tuple[int, WayOut | None]] = [
            *([(RETURNED, None)] if part.returns else []),
            *enumerate(part.ways),
        ]
        emit.op(*("UNPACK", 2) if outcomes else ("RETURN",))  # what is left by exceptions alone does not return
        labels = [Label() for _ in outcomes]
        for (number, _), label in list(zip(outcomes, labels, strict=True))[1:]:
            emit.op("COPY", 1)
            emit.op("LOAD_CONST", number)
            emit.op("COMPARE", "==")
            emit.op("BRANCH", ("true", label))
        for (_, way), label in zip(outcomes, labels, strict=True):
            emit.items.append(label)
            emit.op("POP")
            if way is None:
                emit.op("RETURN")
            else:
                self.take(way)
                go_on(way)
        emit.items += after

    def take(self, way: WayOut) -> None:
        """Emit instructions that put a part's results into variables and temporaries."""
        emit = self.emit
        emit.op("UNPACK", len(way.given) + len(way.names))
        for depth in way.given:
            emit.op("STORE_FAST", f"__stack{depth}")
        for name in way.names:
            if name not in way.unsure:
                emit.op("STORE_FAST", name)
                continue
            there = Label()
            emit.op("STORE_FAST", name)
            emit.op("LOAD_FAST", name)
            emit.op("LOAD_CONST", Unset)
            emit.op("COMPARE", "is")
            emit.op("BRANCH", ("false", there))
            emit.op("DELETE_FAST", name)
            emit.items.append(there)

    def finish(self) -> None:
        """Emit what raises on an exception that left a part, whose traceback begins with the part's frame."""
        emit = self.emit
        emit.items.append(self.raised)
        emit.op("STORE_FAST", "__raised")
        push_callee(emit, lambda: emit.op("LOAD_CONST", _native.leave_out_first))
        emit.op("LOAD_FAST", "__raised")
        emit.op("DELETE_FAST", "__raised")
        emit.op("CALL", (1, ()))
        emit.items.append(Instruction("RERAISE", 0, emit.position))
