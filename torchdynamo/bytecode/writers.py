"""The canonical operations whose raw spelling is more than a row: calls, branches, comparisons, and so on.

Each takes the emitter and the canonical argument. Where two canonical instructions are one raw one (NULL and
LOAD_GLOBAL), the one that comes second looks at its neighbour.
"""

from __future__ import annotations

import dis
from typing import Any

import bytecode as package
from bytecode.instr import FormatValue, Intrinsic1Op, Intrinsic2Op

from torchdynamo.bytecode import rows, versions
from torchdynamo.bytecode.emit import Emitter, Writer
from torchdynamo.bytecode.instruction import Instruction, Label
from torchdynamo.bytecode.qualnames import qualname_of

_HAS = versions.OPCODES.__contains__
_OPPOSITE = {"true": "false", "false": "true", "none": "not none", "not none": "none"}


def _load_const(e: Emitter, value: Any) -> None:
    if value is AssertionError:
        e.raw("LOAD_ASSERTION_ERROR")
    elif _is_return_const(e.neighbour(0), e.neighbour(1)):
        e.raw("RETURN_CONST", e.constants.number(value))
    else:
        e.const(value)


def _return(e: Emitter, _: None) -> None:
    if not _is_return_const(e.neighbour(-1), e.neighbour(0)):
        e.raw("RETURN_VALUE")


def _is_return_const(first: Instruction, second: Instruction) -> bool:
    return (
        _HAS("RETURN_CONST")
        and (first.op, second.op) == ("LOAD_CONST", "RETURN")
        and first.arg is not AssertionError
        and first.position == second.position
    )


def _load_fast(e: Emitter, name: str) -> None:
    e.raw("LOAD_FAST_CHECK" if e.at in e.unbound else "LOAD_FAST", e.slot(name))


def _load_cell(e: Emitter, name: str) -> None:
    e.raw("LOAD_FAST" if versions.CLOSURE_IS_FAST else "LOAD_CLOSURE", e.cells[name])


def _null(e: Emitter, _: None) -> None:
    other = e.neighbour(1 if versions.NULL_FIRST else -1)
    if other.op != "LOAD_GLOBAL":  # which says it itself
        e.raw("PUSH_NULL")


def _load_global(e: Emitter, name: str) -> None:
    other = e.neighbour(-1 if versions.NULL_FIRST else 1)
    e.raw("LOAD_GLOBAL", (other.op == "NULL", name) if versions.GLOBAL_HAS_FLAG else name)


def _load_attr(e: Emitter, name: str) -> None:
    e.raw("LOAD_ATTR", (False, name) if versions.ATTR_HAS_FLAG else name)


def _load_method(e: Emitter, name: str) -> None:
    if versions.ATTR_HAS_FLAG:
        e.raw("LOAD_ATTR", (True, name))
    else:
        e.raw("LOAD_METHOD", name)


def _load_super(e: Emitter, arg: tuple[str, bool, bool]) -> None:
    name, is_method, has_two_args = arg
    e.raw("LOAD_SUPER_ATTR", (is_method, has_two_args, name))


def _binary(e: Emitter, symbol: str) -> None:
    if versions.BINARY_SYMBOLS:
        e.raw("BINARY_OP", package.BinaryOp(versions.BINARY_SYMBOLS.index(symbol)))
    else:
        e.row("BINARY", symbol)


def _gives_bool(item: Instruction) -> bool:
    return item.op in ("COMPARE", "EXC_MATCH") or item.op == "UNARY" and item.arg == "not"


def _to_bool(e: Emitter) -> None:
    if versions.BRANCH_WANTS_BOOL and not _gives_bool(e.neighbour(-1)):
        e.raw("TO_BOOL")


def _wants_bool(item: Instruction) -> bool:
    return item.op == "UNARY" and item.arg == "not" or item.op == "BRANCH" and item.arg[0] in ("true", "false")


def _unary(e: Emitter, symbol: str) -> None:
    if symbol == "+" and not _HAS("UNARY_POSITIVE"):
        return _intrinsic(e, "UNARY_POSITIVE")
    if symbol == "not":
        _to_bool(e)
    e.row("UNARY", symbol)


def _compare(e: Emitter, symbol: str) -> None:
    if symbol in ("is", "is not"):
        e.raw("IS_OP", int(symbol != "is"))
    elif symbol in ("in", "not in"):
        e.raw("CONTAINS_OP", int(symbol != "in"))
    else:
        flag = versions.COMPARE_TO_BOOL if _wants_bool(e.neighbour(1)) else 0
        e.raw("COMPARE_OP", package.Compare(dis.cmp_op.index(symbol) + flag))


def _slice(e: Emitter, count: int) -> None:
    short = {"GETITEM": "BINARY_SLICE", "SETITEM": "STORE_SLICE"}.get(e.neighbour(1).op, "")
    if count == 2 and _HAS(short):
        e.raw(short)
    else:
        e.raw("BUILD_SLICE", count)


def _item(op: str, short: str) -> Writer:
    def write(e: Emitter, _: None) -> None:
        before = e.neighbour(-1)
        if not (_HAS(short) and before.op == "SLICE" and before.arg == 2):
            e.row(op)

    return write


def _list_to_tuple(e: Emitter, _: None) -> None:
    if _HAS("LIST_TO_TUPLE"):
        e.raw("LIST_TO_TUPLE")
    else:
        _intrinsic(e, "LIST_TO_TUPLE")


def _intrinsic(e: Emitter, name: str) -> None:
    if not _HAS("CALL_INTRINSIC_1"):
        return e.row("INTRINSIC", name)
    name = "INTRINSIC_" + name
    if name in Intrinsic1Op.__members__:
        e.raw("CALL_INTRINSIC_1", Intrinsic1Op[name])
    else:
        e.raw("CALL_INTRINSIC_2", Intrinsic2Op[name])


def _copy(e: Emitter, depth: int) -> None:
    if _HAS("COPY"):
        return e.raw("COPY", depth)
    if depth == 1:
        return e.raw("DUP_TOP")
    if depth == 2 and (_copies_before(e) % 2 or _copies_two(e.neighbour(1))):  # the second of a pair is silent
        return None if _copies_before(e) % 2 else e.raw("DUP_TOP_TWO")
    for _ in range(depth - 1):
        _rotate(e, depth)
    e.raw("DUP_TOP")
    _rotate(e, depth + 1)


def _copies_two(item: Instruction) -> bool:
    return item.op == "COPY" and item.arg == 2


def _copies_before(e: Emitter) -> int:
    return next(count for count in range(e.at + 1) if not _copies_two(e.neighbour(-1 - count)))


def _swap(e: Emitter, depth: int) -> None:
    if _HAS("SWAP"):
        return e.raw("SWAP", depth)
    _rotate(e, depth)
    for _ in range(depth - 2):
        _rotate(e, depth - 1)


def _rotate(e: Emitter, depth: int) -> None:
    if _HAS("SWAP"):
        for distance in range(depth, 1, -1):
            e.raw("SWAP", distance)
    elif depth > 1:
        short = {2: "ROT_TWO", 3: "ROT_THREE", 4: "ROT_FOUR"}.get(depth)
        e.raw(*(short,) if short else ("ROT_N", depth))


def _jump(e: Emitter, label: Label) -> None:
    if _HAS("JUMP_ABSOLUTE"):
        name = "JUMP_ABSOLUTE"
    elif e.forward(label):
        name = "JUMP_FORWARD"
    else:  # nothing may interrupt between a SEND and the next
        target = e.items[e.place[label] + 1]
        sends = isinstance(target, Instruction) and target.op == "SEND"
        name = "JUMP_BACKWARD_NO_INTERRUPT" if sends else "JUMP_BACKWARD"
    e.raw(name, e.labels[label])


def _branch(e: Emitter, arg: tuple[str, Label]) -> None:
    cond, label = arg
    if cond in ("true", "false"):
        _to_bool(e)
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


def _branch_keep(e: Emitter, arg: tuple[str, Label]) -> None:
    cond, label = arg
    name = f"JUMP_IF_{cond.upper()}_OR_POP"
    if _HAS(name) and (e.forward(label) or _HAS("JUMP_ABSOLUTE")):
        e.raw(name, e.labels[label])
    else:
        _copy(e, 1)
        _branch(e, arg)
        e.raw("POP_TOP")


def _for_iter(e: Emitter, label: Label) -> None:
    e.raw("FOR_ITER", e.loop_ends[label][0] if label in e.loop_ends else e.labels[label])


def _call(e: Emitter, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    if _HAS("CALL_METHOD"):
        if names:
            raise ValueError("a method call takes no keywords in this Python version")
        return e.raw("CALL_METHOD", count)
    if names and _HAS("CALL_KW"):
        e.const(names)
        return e.raw("CALL_KW", count)
    if names:
        e.raw("KW_NAMES", e.constants.number(names))
    if _HAS("PRECALL"):
        e.raw("PRECALL", count)
    e.raw("CALL", count)


def _call_function(e: Emitter, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    if names:
        e.const(names)
    e.raw("CALL_FUNCTION_KW" if names else "CALL_FUNCTION", count)


def _call_ex(e: Emitter, has_kwargs: bool) -> None:
    e.raw("CALL_FUNCTION_EX", int(has_kwargs))


def _make_function(e: Emitter, parts: tuple[str, ...]) -> None:
    flags = [1 << rows.FUNCTION_PARTS.index(part) for part in parts]
    if _HAS("SET_FUNCTION_ATTRIBUTE"):
        e.raw("MAKE_FUNCTION")
        for flag in reversed(flags):
            e.raw("SET_FUNCTION_ATTRIBUTE", flag)
    else:
        if versions.FUNCTION_TAKES_QUALNAME:
            e.const(qualname_of(e.neighbour(-1).arg))
        e.raw("MAKE_FUNCTION", sum(flags))


def _format(e: Emitter, arg: tuple[str, bool]) -> None:
    conversion, has_spec = arg
    if _HAS("FORMAT_VALUE"):
        return e.raw("FORMAT_VALUE", rows.CONVERSIONS.index(conversion) + 4 * has_spec)
    if conversion:
        moves = [2] if has_spec else []
        for _ in moves:
            e.raw("SWAP", 2)
        _convert(e, conversion)
        for _ in moves:
            e.raw("SWAP", 2)
    e.raw("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE")


def _convert(e: Emitter, conversion: str) -> None:
    e.raw("CONVERT_VALUE", FormatValue(rows.CONVERSIONS.index(conversion)))


def _unpack_ex(e: Emitter, arg: tuple[int, int]) -> None:
    e.raw("UNPACK_EX", arg[0] + (arg[1] << 8))


def _yield(e: Emitter, kind: str | None) -> None:
    number = rows.YIELD_NUMBERS[kind]
    alone = e.in_outermost_region()
    if versions.YIELD_ARG == "none":
        e.raw("YIELD_VALUE")
    elif versions.YIELD_ARG == "depth":  # only "it is 1" means anything: closing needs to throw nothing
        e.raw("YIELD_VALUE", 1 if alone else 2)
    else:
        e.raw("YIELD_VALUE", int(number > 1))
        number += 4 * alone
    if _HAS("RESUME"):
        e.raw("RESUME", number)


WRITERS: dict[str, Writer] = {
    "LOAD_CONST": _load_const,
    "LOAD_FAST": _load_fast,
    "LOAD_CELL": _load_cell,
    "NULL": _null,
    "LOAD_GLOBAL": _load_global,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_method,
    "LOAD_SUPER": _load_super,
    "BINARY": _binary,
    "UNARY": _unary,
    "COMPARE": _compare,
    "SLICE": _slice,
    "GETITEM": _item("GETITEM", "BINARY_SLICE"),
    "SETITEM": _item("SETITEM", "STORE_SLICE"),
    "LIST_TO_TUPLE": _list_to_tuple,
    "INTRINSIC": _intrinsic,
    "COPY": _copy,
    "SWAP": _swap,
    "ROTATE": _rotate,
    "JUMP": _jump,
    "BRANCH": _branch,
    "BRANCH_KEEP": _branch_keep,
    "FOR_ITER": _for_iter,
    "CALL": _call,
    "CALL_FUNCTION": _call_function,
    "CALL_EX": _call_ex,
    "MAKE_FUNCTION": _make_function,
    "FORMAT": _format,
    "CONVERT": _convert,
    "UNPACK_EX": _unpack_ex,
    "RETURN": _return,
    "YIELD": _yield,
}
