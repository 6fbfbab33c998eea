"""Writers of canonical instructions that need more than a row: calls, branches, comparisons, and so on.

Each takes the stream writer and the canonical argument. Where two canonical instructions form one raw instruction (NULL
and LOAD_GLOBAL), the second one checks its neighbour.
"""

from __future__ import annotations

import dis
from typing import Any

import bytecode as package
from bytecode.instr import CommonConstant, FormatValue, Intrinsic1Op, Intrinsic2Op, SpecialMethod

from torchdynamo.bytecode import rows, versions
from torchdynamo.bytecode.emit import StreamWriter, Writer
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.bytecode.moves import MOVES, to_bool
from torchdynamo.bytecode.qualnames import qualname_of

_HAS = versions.OPCODES.__contains__
# Constants that have instructions of their own, by identity.
_COMMON: dict[int, tuple[Any, ...]] = {
    id(value): ("LOAD_COMMON_CONSTANT", CommonConstant(number))
    if _HAS("LOAD_COMMON_CONSTANT")
    else ("LOAD_ASSERTION_ERROR",)
    for number, value in enumerate(versions.COMMON_CONSTANTS)
}


def _load_const(e: StreamWriter, value: Any) -> None:
    common = _COMMON.get(id(value))
    if common is not None:
        e.raw(*common)
    elif _is_return_const(e.neighbour(0), e.neighbour(1)):
        e.raw("RETURN_CONST", e.constants.number(value))
    else:
        e.const(value)


def _return(e: StreamWriter, _: None) -> None:
    if not _is_return_const(e.neighbour(-1), e.neighbour(0)):
        e.raw("RETURN_VALUE")


def _is_return_const(first: Instruction, second: Instruction) -> bool:
    return (
        _HAS("RETURN_CONST")
        and (first.op, second.op) == ("LOAD_CONST", "RETURN")
        and id(first.arg) not in _COMMON
        and first.position == second.position
    )


def _load_fast(e: StreamWriter, name: str) -> None:
    e.raw("LOAD_FAST_CHECK" if e.at in e.unbound else "LOAD_FAST", e.slot(name))


def _load_cell(e: StreamWriter, name: str) -> None:
    e.raw("LOAD_FAST" if versions.CLOSURE_IS_FAST else "LOAD_CLOSURE", e.cells[name])


def _null(e: StreamWriter, _: None) -> None:
    other = e.neighbour(1 if versions.NULL_FIRST else -1)
    if other.op != "LOAD_GLOBAL" or not versions.GLOBAL_HAS_FLAG:  # which pushes it itself
        push_null(e)


def push_null(e: StreamWriter) -> None:
    if _HAS("PUSH_NULL"):
        e.raw("PUSH_NULL")
    else:  # LOAD_METHOD leaves it below an attribute that is no method
        e.const(None)
        e.raw("LOAD_METHOD", "__doc__")
        e.raw("POP_TOP")


def _load_global(e: StreamWriter, name: str) -> None:
    other = e.neighbour(-1 if versions.NULL_FIRST else 1)
    e.raw("LOAD_GLOBAL", (other.op == "NULL", name) if versions.GLOBAL_HAS_FLAG else name)


def _load_attr(e: StreamWriter, name: str) -> None:
    e.raw("LOAD_ATTR", (False, name) if versions.ATTR_HAS_FLAG else name)


def _load_method(e: StreamWriter, name: str) -> None:
    if versions.ATTR_HAS_FLAG:
        e.raw("LOAD_ATTR", (True, name))
    else:
        e.raw("LOAD_METHOD", name)


def _load_super(e: StreamWriter, arg: tuple[str, bool, bool]) -> None:
    name, is_method, has_two_args = arg
    e.raw("LOAD_SUPER_ATTR", (is_method, has_two_args, name))


def _binary(e: StreamWriter, symbol: str) -> None:
    if versions.BINARY_SYMBOLS:
        e.raw("BINARY_OP", package.BinaryOp(versions.BINARY_SYMBOLS.index(symbol)))
    else:
        e.row("BINARY", symbol)


def _wants_bool(item: Instruction) -> bool:
    return (item.op == "UNARY" and item.arg == "not") or (item.op == "BRANCH" and item.arg[0] in ("true", "false"))


def _unary(e: StreamWriter, symbol: str) -> None:
    if symbol == "+" and not _HAS("UNARY_POSITIVE"):
        _intrinsic(e, "UNARY_POSITIVE")
        return
    if symbol == "not":
        to_bool(e)
    e.row("UNARY", symbol)


def _compare(e: StreamWriter, symbol: str) -> None:
    if symbol in ("is", "is not"):
        e.raw("IS_OP", int(symbol != "is"))
    elif symbol in ("in", "not in"):
        e.raw("CONTAINS_OP", int(symbol != "in"))
    else:
        flag = versions.COMPARE_TO_BOOL if _wants_bool(e.neighbour(1)) else 0
        e.raw("COMPARE_OP", package.Compare(dis.cmp_op.index(symbol) + flag))


def _slice(e: StreamWriter, count: int) -> None:
    short = {"GETITEM": "BINARY_SLICE", "SETITEM": "STORE_SLICE"}.get(e.neighbour(1).op, "")
    if count == 2 and _HAS(short):
        e.raw(short)
    else:
        e.raw("BUILD_SLICE", count)


def _item(op: str, short: str) -> Writer:
    def write(e: StreamWriter, _: None) -> None:
        before = e.neighbour(-1)
        if not (_HAS(short) and before.op == "SLICE" and before.arg == 2):
            if op == "GETITEM" and not _HAS("BINARY_SUBSCR"):
                _binary(e, "[]")
            else:
                e.row(op)

    return write


def _list_to_tuple(e: StreamWriter, _: None) -> None:
    if _HAS("LIST_TO_TUPLE"):
        e.raw("LIST_TO_TUPLE")
    else:
        _intrinsic(e, "LIST_TO_TUPLE")


def _intrinsic(e: StreamWriter, name: str) -> None:
    full = "INTRINSIC_" + name
    if not _HAS("CALL_INTRINSIC_1"):
        e.row("INTRINSIC", name)
    elif full in Intrinsic1Op.__members__:
        e.raw("CALL_INTRINSIC_1", Intrinsic1Op[full])
    else:
        e.raw("CALL_INTRINSIC_2", Intrinsic2Op[full])


def _call(e: StreamWriter, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    if names and _HAS("CALL_METHOD"):
        raise ValueError("a method call takes no keywords in this Python version")
    if names and _HAS("KW_NAMES"):
        e.raw("KW_NAMES", e.constants.number(names))
    elif names:
        e.const(names)
    if _HAS("PRECALL"):
        e.raw("PRECALL", count)
    e.raw("CALL_METHOD" if _HAS("CALL_METHOD") else "CALL_KW" if names and _HAS("CALL_KW") else "CALL", count)


def _call_function(e: StreamWriter, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    if names:
        e.const(names)
    e.raw("CALL_FUNCTION_KW" if names else "CALL_FUNCTION", count)


def _call_ex(e: StreamWriter, has_kwargs: bool) -> None:
    if not versions.EX_HAS_KEYWORDS:
        e.raw("CALL_FUNCTION_EX", int(has_kwargs))
        return
    if not has_kwargs:
        e.raw("PUSH_NULL")
    e.raw("CALL_FUNCTION_EX")


def _load_special(e: StreamWriter, name: str) -> None:
    e.raw("LOAD_SPECIAL", SpecialMethod(versions.SPECIAL_METHODS.index(name)))


def _end_async_for(e: StreamWriter, _: None) -> None:
    if versions.JUMPS_FOR_MONITORS:
        here = package.Label()
        e.stream.append(here)
        e.raw("END_ASYNC_FOR", here)
    else:
        e.row("END_ASYNC_FOR")


def _make_function(e: StreamWriter, parts: tuple[str, ...]) -> None:
    flags = [1 << rows.FUNCTION_PARTS.index(part) for part in parts]
    if _HAS("SET_FUNCTION_ATTRIBUTE"):
        e.raw("MAKE_FUNCTION")
        for flag in reversed(flags):
            e.raw("SET_FUNCTION_ATTRIBUTE", flag)
    else:
        if versions.FUNCTION_TAKES_QUALNAME:
            e.const(qualname_of(e.neighbour(-1).arg))
        e.raw("MAKE_FUNCTION", sum(flags))


def _format(e: StreamWriter, arg: tuple[str, bool]) -> None:
    conversion, has_spec = arg
    if _HAS("FORMAT_VALUE"):
        e.raw("FORMAT_VALUE", rows.CONVERSIONS.index(conversion) + 4 * has_spec)
        return
    if conversion:
        moves = [2] if has_spec else []
        for _ in moves:
            e.raw("SWAP", 2)
        _convert(e, conversion)
        for _ in moves:
            e.raw("SWAP", 2)
    e.raw("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE")


def _convert(e: StreamWriter, conversion: str) -> None:
    e.raw("CONVERT_VALUE", FormatValue(rows.CONVERSIONS.index(conversion)))


def _unpack_ex(e: StreamWriter, arg: tuple[int, int]) -> None:
    e.raw("UNPACK_EX", arg[0] + (arg[1] << 8))


WRITERS: dict[str, Writer] = {
    **MOVES,
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
    "CALL": _call,
    "CALL_FUNCTION": _call_function,
    "CALL_EX": _call_ex,
    "LOAD_SPECIAL": _load_special,
    "END_ASYNC_FOR": _end_async_for,
    "MAKE_FUNCTION": _make_function,
    "FORMAT": _format,
    "CONVERT": _convert,
    "UNPACK_EX": _unpack_ex,
    "RETURN": _return,
}
