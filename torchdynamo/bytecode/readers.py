"""Readers of raw opcodes: a row of `rows`, or a function below, listed in SPECIAL by its opcode."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

from torchdynamo.bytecode import rows, versions
from torchdynamo.bytecode.decoder import EXTENDED_ARG, Action, Decoder
from torchdynamo.bytecode.qualnames import remember_qualname


def _global(d: Decoder, arg: int) -> None:
    if not versions.GLOBAL_HAS_FLAG:
        d.emit("LOAD_GLOBAL", d.code.co_names[arg])
        return
    if arg & 1 and versions.NULL_FIRST:
        d.emit("NULL")
    d.emit("LOAD_GLOBAL", d.code.co_names[arg >> 1])
    if arg & 1 and not versions.NULL_FIRST:
        d.emit("NULL")


def _attr(d: Decoder, arg: int) -> None:
    if versions.ATTR_HAS_FLAG:
        d.emit("LOAD_METHOD" if arg & 1 else "LOAD_ATTR", d.code.co_names[arg >> 1])
    else:
        d.emit("LOAD_ATTR", d.code.co_names[arg])


def _super(d: Decoder, arg: int) -> None:
    d.emit("LOAD_SUPER", (d.code.co_names[arg >> 2], bool(arg & 1), bool(arg & 2)))


def _fast(d: Decoder, arg: int) -> None:
    name = d.fast[arg]
    closure = versions.CLOSURE_IS_FAST and (name in d.cells or arg >= d.code.co_nlocals)
    d.emit("LOAD_CELL" if closure else "LOAD_FAST", name)


def _pair(first: str, second: str) -> Action:
    actions: dict[str, Action] = {"LOAD_FAST": _fast, "STORE_FAST": lambda d, arg: d.emit("STORE_FAST", d.fast[arg])}

    def read(d: Decoder, arg: int) -> None:
        actions[first](d, arg >> 4)
        actions[second](d, arg & 15)

    return read


def _small_int(d: Decoder, arg: int) -> None:
    d.emit("LOAD_CONST", arg)


def _common_constant(d: Decoder, arg: int) -> None:
    d.emit("LOAD_CONST", versions.COMMON_CONSTANTS[arg])


def _special(d: Decoder, arg: int) -> None:
    d.emit("LOAD_SPECIAL", versions.SPECIAL_METHODS[arg])


def _binary(d: Decoder, arg: int) -> None:
    symbol = versions.BINARY_SYMBOLS[arg]
    d.emit(*("GETITEM", None) if symbol == "[]" else ("BINARY", symbol))


def _compare(d: Decoder, arg: int) -> None:
    d.emit("COMPARE", dis.cmp_op[arg >> versions.COMPARE_SHIFT])
    if arg & versions.COMPARE_TO_BOOL:
        _to_bool(d, arg)


def _to_bool(d: Decoder, arg: int) -> None:
    """Read TO_BOOL: tests do the conversion themselves, so one without a test is the rest of a `not not`."""
    raw = d.code.co_code
    following = d.offset + 2 + 2 * versions.CACHES[raw[d.offset]]
    while raw[following] == EXTENDED_ARG:
        following += 2
    if raw[following] not in _TESTS:
        d.emit("UNARY", "not")
        d.emit("UNARY", "not")


def _is(d: Decoder, arg: int) -> None:
    d.emit("COMPARE", "is not" if arg else "is")


def _contains(d: Decoder, arg: int) -> None:
    d.emit("COMPARE", "not in" if arg else "in")


def _kw_names(d: Decoder, arg: int) -> None:
    d.kwnames = d.code.co_consts[arg]


def _call(d: Decoder, arg: int) -> None:
    d.emit("CALL", (arg, d.kwnames))
    d.kwnames = ()


def _call_kw(op: str) -> Action:
    def read(d: Decoder, arg: int) -> None:
        if d.instructions[-1].op == "LOAD_CONST" and not d.jumped_to_here():
            d.emit(op, (arg, d.drop_last()))
        else:
            d.emit("CALL_KW", arg)  # computed names, which Python's compiler never emits

    return read


def _call_function(d: Decoder, arg: int) -> None:
    d.emit("CALL_FUNCTION", (arg, ()))


def _call_ex(d: Decoder, arg: int) -> None:
    has_kwargs = bool(arg & 1)
    if versions.EX_HAS_KEYWORDS:
        has_kwargs = d.instructions[-1].op != "NULL" or d.jumped_to_here()
        if not has_kwargs:
            d.drop_last()
    d.emit("CALL_EX", has_kwargs)


def _make_function(d: Decoder, arg: int) -> None:
    if versions.FUNCTION_TAKES_QUALNAME:
        qualname = d.drop_last()
        remember_qualname(d.instructions[-1].arg, qualname)
    elif "SET_FUNCTION_ATTRIBUTE" in versions.OPCODES:
        arg = 0
    d.emit("MAKE_FUNCTION", tuple(part for bit, part in enumerate(rows.FUNCTION_PARTS) if arg >> bit & 1))


def _set_function(d: Decoder, arg: int) -> None:
    """Read SET_FUNCTION_ATTRIBUTE, whose parts follow MAKE_FUNCTION, the last first.

    Older versions have them in MAKE_FUNCTION's argument.
    """
    d.instructions[-1].arg = (rows.FUNCTION_PARTS[arg.bit_length() - 1], *d.instructions[-1].arg)


def _format(d: Decoder, arg: int) -> None:
    d.emit("FORMAT", (rows.CONVERSIONS[arg & 3], bool(arg & 4)))


def _jump_if_no_match(d: Decoder, arg: int) -> None:
    d.emit("EXC_MATCH")
    d.jump("BRANCH", "false", 2 * arg)


def _convert(d: Decoder, arg: int) -> None:
    d.emit("CONVERT", rows.CONVERSIONS[arg])


def _return_const(d: Decoder, arg: int) -> None:
    d.emit("LOAD_CONST", d.code.co_consts[arg])
    d.emit("RETURN")


def _unpack_ex(d: Decoder, arg: int) -> None:
    d.emit("UNPACK_EX", (arg & 0xFF, arg >> 8))


def _intrinsic(table: str) -> Action:
    names = [name.removeprefix("INTRINSIC_") for name in getattr(dis, table, ())]
    renamed = {"UNARY_POSITIVE": ("UNARY", "+"), "LIST_TO_TUPLE": ("LIST_TO_TUPLE", None)}

    def read(d: Decoder, arg: int) -> None:
        if names[arg] == "STOPITERATION_ERROR":  # of the handler around a generator
            d.skip = "RERAISE"
        else:
            d.emit(*renamed.get(names[arg], ("INTRINSIC", names[arg])))

    return read


def _end_for(d: Decoder, arg: int) -> None:
    """Read END_FOR, a target of FOR_ITER only, whose loop continues after it."""
    d.skip = "POP" if len(versions.FOR_END) > 1 else ""


def _end_send(d: Decoder, arg: int) -> None:
    """Read END_SEND, a target of SEND only."""
    d.skip = ""


def _cleanup_throw(d: Decoder, arg: int) -> None:
    """Read CLEANUP_THROW, after which comes END_SEND, or a jump there."""
    d.cleanups.add(d.offset >> 1)
    d.skip = "JUMP"


def _yield_from(d: Decoder, arg: int) -> None:
    """Read YIELD_FROM, which is SEND, YIELD_VALUE and a jump back in one."""
    awaits = [inst.op for inst in d.instructions[-2:-1]] != ["GET_YIELD_FROM_ITER"]
    d.jump("SEND", None, d.offset + 2)
    d.emit("YIELD", "await" if awaits else "yield from")
    d.jump("JUMP", None, d.offset)


def _yield(d: Decoder, arg: int) -> None:
    d.emit("YIELD")


def _resume(d: Decoder, arg: int) -> None:
    d.in_prologue = False
    if arg & 3:
        d.instructions[-1].arg = rows.YIELD_KINDS[arg & 3]


def _pop_top(d: Decoder, arg: int) -> None:
    """Read POP_TOP, with which `push_null` of the writers ends: a lookup of a method whose result is not called."""
    if d.instructions and d.instructions[-1].op == "LOAD_METHOD" and not d.jumped_to_here():
        d.drop_last()
        d.drop_last()
        d.emit("NULL")
    else:
        d.emit("POP")


def _return_generator(d: Decoder, arg: int) -> None:
    d.skip = "POP"


def _nop(d: Decoder, arg: int) -> None:
    """Read NOP, which is kept if it is all that a line has (`pass`, `try`), because tracers see that line."""
    line = d.positions[d.offset >> 1][0]
    following = d.positions[(d.offset >> 1) + 1 : (d.offset >> 1) + 2]
    if line is not None and following and following[0][0] != line:
        d.emit("NOP")


def _make_cell(d: Decoder, arg: int) -> None:
    if not d.in_prologue:  # an inlined comprehension renews the cell
        d.emit("MAKE_CELL", d.free[arg])


def _target(d: Decoder, opcode: int, arg: int) -> int:
    if opcode in versions.ABSOLUTE:
        return 2 * arg
    sign = -2 if "BACKWARD" in dis.opname[opcode] else 2
    return d.offset + 2 + 2 * versions.CACHES[opcode] + sign * arg


SPECIAL: dict[str, Action] = {
    "LOAD_GLOBAL": _global,
    "LOAD_ATTR": _attr,
    "LOAD_SUPER_ATTR": _super,
    "LOAD_FAST": _fast,
    "LOAD_FAST_BORROW": _fast,
    "LOAD_SMALL_INT": _small_int,
    "LOAD_COMMON_CONSTANT": _common_constant,
    "LOAD_SPECIAL": _special,
    "BINARY_OP": _binary,
    "COMPARE_OP": _compare,
    "TO_BOOL": _to_bool,
    "IS_OP": _is,
    "CONTAINS_OP": _contains,
    "KW_NAMES": _kw_names,
    "JUMP_IF_NOT_EXC_MATCH": _jump_if_no_match,
    "CALL": _call,
    "CALL_METHOD": _call,
    "CALL_KW": _call_kw("CALL"),
    "CALL_FUNCTION": _call_function,
    "CALL_FUNCTION_KW": _call_kw("CALL_FUNCTION"),
    "CALL_FUNCTION_EX": _call_ex,
    "MAKE_FUNCTION": _make_function,
    "SET_FUNCTION_ATTRIBUTE": _set_function,
    "FORMAT_VALUE": _format,
    "FORMAT_SIMPLE": lambda d, arg: d.emit("FORMAT", ("", False)),
    "FORMAT_WITH_SPEC": lambda d, arg: d.emit("FORMAT", ("", True)),
    "CONVERT_VALUE": _convert,
    "RETURN_CONST": _return_const,
    "UNPACK_EX": _unpack_ex,
    "CALL_INTRINSIC_1": _intrinsic("_intrinsic_1_descs"),
    "CALL_INTRINSIC_2": _intrinsic("_intrinsic_2_descs"),
    "END_FOR": _end_for,
    "NOP": _nop,
    "YIELD_VALUE": _yield,
    "YIELD_FROM": _yield_from,
    "RESUME": _resume,
    "RETURN_GENERATOR": _return_generator,
    "POP_ITER": lambda d, arg: d.emit("POP"),
    "END_SEND": _end_send,
    "CLEANUP_THROW": _cleanup_throw,
    "END_ASYNC_FOR": lambda d, arg: d.emit("END_ASYNC_FOR"),
    "MAKE_CELL": _make_cell,
    **({} if "PUSH_NULL" in versions.OPCODES else {"POP_TOP": _pop_top}),
}


def _category(name: str, opcode: int) -> Action:
    """Return the reader of an opcode that is a plain row; `dis` knows the kind of its argument."""
    op, key = rows.FAMILIES.get(name, (rows.RENAMED.get(name, name), None))
    if opcode in versions.RELATIVE or opcode in versions.ABSOLUTE:
        return lambda d, arg: d.jump(op, key, _target(d, opcode, arg))
    if opcode not in versions.HAS_ARG:
        return lambda d, arg: d.emit(op, key)
    resolve = next((resolve for numbers, resolve in _RESOLVERS if opcode in numbers), _itself)
    if key is None:
        return lambda d, arg: d.emit(op, resolve(d, arg))
    return lambda d, arg: d.emit(op, (key, resolve(d, arg)))


def _itself(d: Decoder, arg: int) -> int:
    return arg


_RESOLVERS: list[tuple[list[int], Callable[[Decoder, int], Any]]] = [
    (dis.hasconst, lambda d, arg: d.code.co_consts[arg]),
    (dis.hasname, lambda d, arg: d.code.co_names[arg]),
    (dis.haslocal, lambda d, arg: d.fast[arg]),
    (dis.hasfree, lambda d, arg: d.free[arg]),
]


def _expand(name: str) -> Action:
    def read(d: Decoder, arg: int) -> None:
        for op, value in rows.EXPANDED[name]:
            d.emit(op, value)

    return read


def _action(name: str, opcode: int) -> Action | None:
    if name in rows.DROPPED:
        return None
    if name in rows.EXPANDED:
        return _expand(name)
    if name in rows.PAIRS:
        return _pair(*rows.PAIRS[name])
    return SPECIAL.get(name) or _category(name, opcode)


_TESTS = {versions.OPCODES.get(name) for name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT")}
ACTIONS: list[Action | None] = [None] * 256
for _name, _opcode in versions.OPCODES.items():
    ACTIONS[_opcode] = _action(_name, _opcode)
