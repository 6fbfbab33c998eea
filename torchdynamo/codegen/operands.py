"""Count the operands of instructions, where the table of capture does not say how many; find those of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture.interpreter import OPS


class Receiver(Protocol):
    """Receiver of emitted instructions."""

    items: list[Item]
    position: Any

    def op(self, op: str, arg: Any = None) -> None: ...


def push_callee(emit: Receiver, push: Callable[[], object]) -> None:
    """Emit a callable, which `push` pushes, and the NULL beside it, in the order of the Python version."""
    if versions.NULL_FIRST:
        emit.op("NULL")
    push()
    if not versions.NULL_FIRST:
        emit.op("NULL")


# Instructions that use stack items below those that they pop -> how many.
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
    "GET_ANEXT": lambda arg: 1,
    "EXC_MATCH": lambda arg: versions.EXCEPTION_AT,
    "WITH_EXIT": lambda arg: versions.EXIT_DEPTH,
}
# Instructions that push a variable number of values -> how many. LOAD_SUPER may push NULL, which cannot be passed on.
COUNTED: dict[str, Callable[[Any], int]] = {
    "UNPACK": lambda arg: int(arg),
    "UNPACK_EX": lambda arg: int(arg[0] + arg[1] + 1),
}


def operands(instruction: Instruction) -> int:
    """Return how many stack items an instruction uses."""
    pops = OPS[instruction.op][1] if instruction.op in OPS else 0
    count = pops if isinstance(pops, int) else pops(instruction.arg)
    return count + (PEEKS[instruction.op](instruction.arg) if instruction.op in PEEKS else 0)
