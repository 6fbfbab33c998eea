"""A code object, read into canonical instructions.

One pass over the bytes. What is a plain row in `rows` is looked up; the rest has a function below, named in SPECIAL
by the raw opcode it reads.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType
from typing import Any

from torchdynamo.bytecode import rows, versions
from torchdynamo.bytecode.instruction import Code, Instruction, Label, Region
from torchdynamo.bytecode.percode import PerCode
from torchdynamo.bytecode.qualnames import remember_qualname
from torchdynamo.bytecode.regions import block_entries, table_entries

_decoded: PerCode[Code] = PerCode()


def decode(code: CodeType) -> Code:
    """The canonical form of `code`, remembered as long as `code` lives."""
    known = _decoded.get(code)
    if known is None:
        known = Decoder(code).run()
        _decoded.set(code, known)
    return known


class Decoder:
    """The state of one pass: what is decoded so far, and which raw instruction is being read."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.instructions: list[Instruction] = []
        self.index_at: list[int] = []  # per code unit: the instruction that is there, or the next one kept
        self.jumps: list[tuple[Instruction, str | None, int]] = []  # their labels wait for what `target` will be
        self.fast, self.free = versions.slot_names(code)
        self.positions = versions.positions(code)
        self.cells = frozenset(code.co_cellvars)
        self.offset = 0
        self.position: versions.Positions | None = None
        self.kwnames: tuple[str, ...] = ()  # KW_NAMES, waiting for its CALL
        self.in_prologue = True
        self.raw_targets: frozenset[int] | None = None  # asked for seldom
        self.skip_pop = False  # the next POP_TOP belongs to what came before it

    def emit(self, op: str, arg: Any = None) -> None:
        self.instructions.append(Instruction(op, arg, self.position, self.offset))

    def jump(self, op: str, key: str | None, target: int) -> None:
        self.emit(op)
        self.jumps.append((self.instructions[-1], key, target))

    def drop_last(self) -> Any:
        """Take back the last instruction, which the present one absorbs, and give its argument."""
        self.index_at[-1] -= 1
        return self.instructions.pop().arg

    def jumped_to_here(self) -> bool:
        if self.raw_targets is None:
            self.raw_targets = frozenset(dis.findlabels(self.code.co_code))  # type: ignore[arg-type]
        return self.offset in self.raw_targets

    def run(self) -> Code:
        raw = self.code.co_code
        positions = self.positions
        last: tuple[int | None, ...] | None = None
        extended = 0
        for offset in range(0, len(raw), 2):
            self.index_at.append(len(self.instructions))
            opcode = raw[offset]
            arg = extended | raw[offset + 1]
            if opcode == _EXTENDED_ARG:
                extended = arg << 8
                continue
            extended = 0
            action = _ACTIONS[opcode]
            if action is None:
                continue
            if positions[offset >> 1] is not last:
                last = positions[offset >> 1]
                self.position = versions.Positions(*last)
            self.offset = offset
            action(self, arg)
        self.index_at.append(len(self.instructions))
        return Code(self.instructions, self.resolve_jumps(), self.regions(), self.code)

    def resolve_jumps(self) -> dict[Label, int]:
        labels: dict[int, Label] = {}
        for instruction, key, target in self.jumps:
            label = labels.setdefault(self.index_at[target >> 1], Label())
            instruction.arg = label if key is None else (key, label)
        return {label: index for index, label in labels.items()}

    def regions(self) -> list[Region]:
        entries = table_entries if versions.EXCEPTION_TABLE else block_entries
        found = []
        for entry in entries(self.code):
            start, end, handler = (self.index_at[unit] for unit in entry[:3])
            if start < end:  # else it held nothing but what is dropped
                found.append(Region(start, end, handler, entry.depth, entry.lasti))
        return found


Action = Callable[[Decoder, int], None]


def _global(d: Decoder, arg: int) -> None:
    if not versions.GLOBAL_HAS_FLAG:
        return d.emit("LOAD_GLOBAL", d.code.co_names[arg])
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


def _binary(d: Decoder, arg: int) -> None:
    d.emit("BINARY", versions.BINARY_SYMBOLS[arg])


def _compare(d: Decoder, arg: int) -> None:
    d.emit("COMPARE", dis.cmp_op[arg >> versions.COMPARE_SHIFT])
    if arg & versions.COMPARE_TO_BOOL:
        _to_bool(d, arg)


def _to_bool(d: Decoder, arg: int) -> None:
    """What tests a value does this by itself; alone, it is what is left of a `not not`."""
    raw = d.code.co_code
    following = d.offset + 2 + 2 * versions.CACHES[raw[d.offset]]
    while raw[following] == _EXTENDED_ARG:
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
            d.emit("CALL_KW", arg)  # the names are computed: nothing Python's compiler writes

    return read


def _call_function(d: Decoder, arg: int) -> None:
    d.emit("CALL_FUNCTION", (arg, ()))


def _call_ex(d: Decoder, arg: int) -> None:
    d.emit("CALL_EX", bool(arg & 1))


def _make_function(d: Decoder, arg: int) -> None:
    if versions.FUNCTION_TAKES_QUALNAME:
        qualname = d.drop_last()
        remember_qualname(d.instructions[-1].arg, qualname)
    elif "SET_FUNCTION_ATTRIBUTE" in versions.OPCODES:
        arg = 0
    d.emit("MAKE_FUNCTION", tuple(part for bit, part in enumerate(rows.FUNCTION_PARTS) if arg >> bit & 1))


def _set_function(d: Decoder, arg: int) -> None:
    """Written behind MAKE_FUNCTION, last part first; older versions have it in MAKE_FUNCTION's argument."""
    d.instructions[-1].arg = (rows.FUNCTION_PARTS[arg.bit_length() - 1], *d.instructions[-1].arg)


def _format(d: Decoder, arg: int) -> None:
    d.emit("FORMAT", (rows.CONVERSIONS[arg & 3], bool(arg & 4)))


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
        d.emit(*renamed.get(names[arg], ("INTRINSIC", names[arg])))

    return read


def _end_for(d: Decoder, arg: int) -> None:
    """Nothing but FOR_ITER names this place, and it goes on behind it."""
    d.skip_pop = "POP_TOP" in versions.FOR_END


def _yield(d: Decoder, arg: int) -> None:
    d.emit("YIELD")


def _resume(d: Decoder, arg: int) -> None:
    d.in_prologue = False
    if arg & 3:
        d.instructions[-1].arg = rows.YIELD_KINDS[arg & 3]


def _return_generator(d: Decoder, arg: int) -> None:
    d.skip_pop = True


def _pop(d: Decoder, arg: int) -> None:
    if not d.skip_pop:
        d.emit("POP")
    d.skip_pop = False


def _nop(d: Decoder, arg: int) -> None:
    """It matters if it is all there is of a line: that of a `pass` or a `try`, which tracers want to see."""
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
    "BINARY_OP": _binary,
    "COMPARE_OP": _compare,
    "TO_BOOL": _to_bool,
    "IS_OP": _is,
    "CONTAINS_OP": _contains,
    "KW_NAMES": _kw_names,
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
    "RESUME": _resume,
    "RETURN_GENERATOR": _return_generator,
    "POP_TOP": _pop,
    "MAKE_CELL": _make_cell,
}


def _category(name: str, opcode: int) -> Action:
    """The reader of an opcode that is a plain row: what its argument is, is known from `dis`."""
    op, key = rows.FAMILIES.get(name, (rows.RENAMED.get(name, name), None))
    resolve: Callable[[Decoder, int], Any]
    if opcode in versions.RELATIVE or opcode in versions.ABSOLUTE:
        return lambda d, arg: d.jump(op, key, _target(d, opcode, arg))
    if opcode in dis.hasconst:
        resolve = lambda d, arg: d.code.co_consts[arg]
    elif opcode in dis.hasname:
        resolve = lambda d, arg: d.code.co_names[arg]
    elif opcode in dis.haslocal:
        resolve = lambda d, arg: d.fast[arg]
    elif opcode in dis.hasfree:
        resolve = lambda d, arg: d.free[arg]
    elif opcode in versions.HAS_ARG:
        resolve = lambda d, arg: arg
    else:
        return lambda d, arg: d.emit(op, key)
    if key is None:
        return lambda d, arg: d.emit(op, resolve(d, arg))
    return lambda d, arg: d.emit(op, (key, resolve(d, arg)))


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
_EXTENDED_ARG = versions.OPCODES["EXTENDED_ARG"]
_ACTIONS: list[Action | None] = [None] * 256
for _name, _opcode in versions.OPCODES.items():
    _ACTIONS[_opcode] = _action(_name, _opcode)
