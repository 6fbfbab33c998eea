"""Tell how many items on the stack an instruction uses, which the table of capture does not say of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.interpreter import OPS

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
    "EXC_MATCH": lambda arg: 1,
    "WITH_EXIT": lambda arg: 3 + versions.EXIT_SLOTS,
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
