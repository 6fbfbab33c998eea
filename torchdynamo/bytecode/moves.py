"""Translate instructions that move values on the stack, and control flow (see `writers`)."""

from __future__ import annotations

import bytecode as package

from torchdynamo.bytecode import rows, versions
from torchdynamo.bytecode.emit import StreamWriter, Writer
from torchdynamo.bytecode.instruction import Instruction, Label, RegionEnd

_HAS = versions.OPCODES.__contains__
_OPPOSITE = {"true": "false", "false": "true", "none": "not none", "not none": "none"}


def _gives_bool(item: Instruction) -> bool:
    return item.op in ("COMPARE", "EXC_MATCH") or (item.op == "UNARY" and item.arg == "not")


def to_bool(e: StreamWriter) -> None:
    if versions.BRANCH_WANTS_BOOL and not _gives_bool(e.neighbour(-1)):
        e.raw("TO_BOOL")


def _copy(e: StreamWriter, depth: int) -> None:
    if _HAS("COPY"):
        e.raw("COPY", depth)
    elif depth == 1:
        e.raw("DUP_TOP")
    elif depth == 2 and _copies_before(e) % 2:
        pass  # the first of the pair copied both
    elif depth == 2 and _copies_two(e.neighbour(1)):
        e.raw("DUP_TOP_TWO")
    else:
        for _ in range(depth - 1):
            _rotate(e, depth)
        e.raw("DUP_TOP")
        _rotate(e, depth + 1)


def _copies_two(item: Instruction) -> bool:
    return item.op == "COPY" and item.arg == 2


def _copies_before(e: StreamWriter) -> int:
    return next(count for count in range(e.at + 1) if not _copies_two(e.neighbour(-1 - count)))


def _swap(e: StreamWriter, depth: int) -> None:
    if _HAS("SWAP"):
        e.raw("SWAP", depth)
        return
    _rotate(e, depth)
    for _ in range(depth - 2):
        _rotate(e, depth - 1)


def _rotate(e: StreamWriter, depth: int) -> None:
    if _HAS("SWAP"):
        for distance in range(depth, 1, -1):
            e.raw("SWAP", distance)
    elif depth > 1:
        short = {2: "ROT_TWO", 3: "ROT_THREE", 4: "ROT_FOUR"}.get(depth)
        e.raw(*(short,) if short else ("ROT_N", depth))


def _jump(e: StreamWriter, label: Label) -> None:
    if _HAS("YIELD_FROM") and _waits_inside(e.neighbour(-1)):
        return  # it jumps back itself
    if _HAS("JUMP_ABSOLUTE"):
        name = "JUMP_ABSOLUTE"
    elif e.forward(label):
        name = "JUMP_FORWARD"
    else:  # nothing may interrupt between a SEND and the next
        target = e.items[e.place[label] + 1]
        sends = isinstance(target, Instruction) and target.op == "SEND"
        name = "JUMP_BACKWARD_NO_INTERRUPT" if sends else "JUMP_BACKWARD"
    e.raw(name, e.labels[label])


def _exc_match(e: StreamWriter, _: None) -> None:
    if not _HAS("JUMP_IF_NOT_EXC_MATCH"):  # which the branch after it becomes
        e.row("EXC_MATCH")


def _branch(e: StreamWriter, arg: tuple[str, Label]) -> None:
    cond, label = arg
    if e.neighbour(-1).op == "EXC_MATCH" and _HAS("JUMP_IF_NOT_EXC_MATCH"):
        e.raw("JUMP_IF_NOT_EXC_MATCH", e.labels[label])
        return
    if cond in ("true", "false"):
        to_bool(e)
    elif not (_HAS("POP_JUMP_IF_NONE") or _HAS("POP_JUMP_FORWARD_IF_NONE")):
        e.const(None)
        e.raw("IS_OP", 0)
        cond = "true" if cond == "none" else "false"
    forward = e.forward(label)
    if forward or _HAS("JUMP_ABSOLUTE") or _HAS("POP_JUMP_BACKWARD_IF_TRUE"):
        e.raw(_branch_name(cond, forward), e.labels[label])
    else:
        over = package.Label()
        e.raw(_branch_name(_OPPOSITE[cond], True), over)
        e.raw("JUMP_BACKWARD", e.labels[label])
        e.stream.append(over)


def _branch_name(cond: str, forward: bool) -> str:
    ending = "IF_" + cond.upper().replace(" ", "_")
    directed = f"POP_JUMP_{'FORWARD' if forward else 'BACKWARD'}_{ending}"
    return directed if _HAS(directed) else f"POP_JUMP_{ending}"


def _branch_keep(e: StreamWriter, arg: tuple[str, Label]) -> None:
    cond, label = arg
    name = f"JUMP_IF_{cond.upper()}_OR_POP"
    if _HAS(name) and (e.forward(label) or _HAS("JUMP_ABSOLUTE")):
        e.raw(name, e.labels[label])
    else:
        _copy(e, 1)
        _branch(e, arg)
        e.raw("POP_TOP")


def _waits_inside(item: Instruction) -> bool:
    return item.op == "YIELD" and item.arg is not None


def _to_end(op: str) -> Writer:
    def write(e: StreamWriter, label: Label) -> None:
        e.raw(op, e.ends[label].target if label in e.ends else e.labels[label])

    return write


def _send(e: StreamWriter, label: Label) -> None:
    if _HAS("YIELD_FROM"):
        e.raw("YIELD_FROM")
    else:
        _to_end("SEND")(e, label)


def _yield(e: StreamWriter, kind: str | None) -> None:
    if kind is not None and _HAS("YIELD_FROM"):
        return  # its SEND has become one
    number = rows.YIELD_NUMBERS[kind]
    alone = number == 1 and e.in_outermost_region()
    start = e.cleanup_start() if number > 1 and versions.SEND_END else None
    if versions.YIELD_ARG == "none":
        e.raw("YIELD_VALUE")
    elif versions.YIELD_ARG == "depth":  # only "it is 1" means anything: closing needs to throw nothing
        e.raw("YIELD_VALUE", 1 if alone else 2)
    else:
        e.raw("YIELD_VALUE", int(number > 1))
        number += 4 * alone
    if start is not None:
        e.region_end(RegionEnd(start))
    if _HAS("RESUME"):
        e.raw("RESUME", number)


MOVES: dict[str, Writer] = {
    "COPY": _copy,
    "SWAP": _swap,
    "ROTATE": _rotate,
    "EXC_MATCH": _exc_match,
    "JUMP": _jump,
    "BRANCH": _branch,
    "BRANCH_KEEP": _branch_keep,
    "FOR_ITER": _to_end("FOR_ITER"),
    "SEND": _send,
    "YIELD": _yield,
}
