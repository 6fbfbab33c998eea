"""Differences between CPython 3.10, 3.11, 3.12, 3.13 and 3.14, as data. No other Python file names a version."""

from __future__ import annotations

import dis
import opcode
import sys
from types import CodeType
from typing import Any, NamedTuple

V310, V311, V312, V313, V314 = (sys.version_info >= (3, minor) for minor in (10, 11, 12, 13, 14))
SUPPORTED = (3, 10) <= sys.version_info[:2] <= (3, 14)

if V311:
    Positions = dis.Positions
else:

    class Positions(NamedTuple):  # type: ignore[no-redef]
        lineno: int | None = None
        end_lineno: int | None = None
        col_offset: int | None = None
        end_col_offset: int | None = None


# Opcodes that can stand in a code object; `dis` also lists the compiler's own pseudo-opcodes from 256 on.
OPCODES = {name: number for name, number in dis.opmap.items() if number < 256}

# The two slots a call leaves below its arguments are [NULL, callable]; from 3.13 [callable, NULL].
NULL_FIRST = not V313
# A call of a plain callable has the NULL slot at all (3.10 has it for methods only).
CALL_HAS_NULL = V311

# Instructions at the target of a FOR_ITER, which it skips when the iterator is exhausted.
FOR_END: tuple[str, ...] = (
    ("END_FOR", "POP_ITER") if V314 else ("END_FOR", "POP_TOP") if V313 else ("END_FOR",) if V312 else ()
)
# Instructions at the target of a SEND, where the iterator has returned: they drop it. What is thrown in at the
# YIELD_VALUE between the two goes to a handler (CLEANUP_THROW), which jumps there if the iterator has returned.
SEND_END: tuple[str, ...] = ("END_SEND",) if V312 else ()
# Jumps to ends that nothing else reaches -> these ends.
ENDS = {op: names for op, names in {"FOR_ITER": FOR_END, "SEND": SEND_END}.items() if names}

# How the handler begins that is around the code of a generator or coroutine, and turns StopIteration into RuntimeError.
STOP_HANDLER = (
    bytes((OPCODES["CALL_INTRINSIC_1"], dis._intrinsic_1_descs.index("INTRINSIC_STOPITERATION_ERROR")))  # type: ignore[attr-defined]
    if V312
    else b""
)

# RESUME and its companions stand at the top of every code object.
HAS_PROLOGUE = V311
# LOAD_FAST does not check whether the local is set; LOAD_FAST_CHECK does.
LOAD_FAST_TRUSTS = V312

# A table says where exceptions go; before 3.11, instructions put handlers on a block stack, and take them off.
EXCEPTION_TABLE = V311
# What an exception is on the stack: from 3.11 one object; before, its traceback, itself, and above these its class. A
# handler finds the one handled before in as many slots, and pops its class together with what it compares it with.
EXCEPTION_SLOTS = 1 if V311 else 3
EXCEPTION_AT = 1 if V311 else 2  # place of the exception itself, from the top

# A continuation replaces the frame that calls it; if it cannot, its name shows what it is.
ONE_FRAME_SHOWN = V311

# What `with` keeps on the stack: a bound `__exit__`; from 3.14 the two slots of a call, which LOAD_SPECIAL pushes.
EXIT_SLOTS = 2 if V314 else 1
# How deep it is where `__exit__` is called with an exception: from 3.11 the raising instruction is on the stack, too.
EXIT_DEPTH = 2 * EXCEPTION_SLOTS + EXCEPTION_TABLE + EXIT_SLOTS
SPECIAL_METHODS: list[str] = list(getattr(opcode, "_special_method_names", ()))
# Constants that have instructions of their own.
COMMON_CONSTANTS: list[Any] = list(getattr(opcode, "_common_constants", (AssertionError,)))
# Where a handler finds the raising instruction on the stack, it is no object: only RERAISE can read it, and nothing can
# be called with it or keep it in a variable.
PLACES_ARE_TAGGED = V314
# CALL_FUNCTION_EX has a slot for keywords also where there are none, and NULL in it then.
EX_HAS_KEYWORDS = V314

# Instructions with a jump that only tools of sys.monitoring are told.
JUMPS_FOR_MONITORS = ("END_ASYNC_FOR",) if V314 else ()

# Parts of a function can be functions of their own: loops with a break, what is between the `yield`s of a generator.
OUTLINES = V311

# MATCH_CLASS and MATCH_KEYS push their answer and whether there is one.
MATCH_PUSHES_BOOL = not V311
# MAKE_FUNCTION finds the qualified name on the stack; later code objects hold it.
FUNCTION_TAKES_QUALNAME = not V311
# Stack effects of `dis` are exact, not upper bounds (SETUP_WITH's handler).
EFFECTS_EXACT = V311

# The package handles instructions without a line (see `lines.fill_gaps`).
LINE_CAN_BE_NONE = V311

# COMPARE_OP keeps the operator above its cache mask, and from 3.13 above a "make it a bool" flag.
COMPARE_SHIFT = 5 if V313 else 4 if V312 else 0
COMPARE_TO_BOOL = 16 if V313 else 0

# The jump counts from after the inline cache; the table is keyed by name from 3.13.
_entries = getattr(dis, "_inline_cache_entries", ())
CACHES: list[int] = (
    [_entries.get(name, 0) for name in dis.opname] if isinstance(_entries, dict) else list(_entries) or [0] * 256
)

# A call of a generator or coroutine runs its frame up to RETURN_GENERATOR; before, nothing of it.
CALL_BEGINS_GENERATOR = V311
# OrderedDict.pop and popitem ask a subclass for the item, and to delete it.
ORDERED_POP_ASKS = not V311
# What is said of a variable that is not set: of the function's own, and of one of a function around it.
UNBOUND = (
    "cannot access local variable {!r} where it is not associated with a value"
    if V311
    else "local variable {!r} referenced before assignment"
)
UNBOUND_FREE = (
    "cannot access free variable {!r} where it is not associated with a value in enclosing scope"
    if V311
    else "free variable {!r} referenced before assignment in enclosing scope"
)
# The value a fresh generator is resumed with lies on the stack; from 3.13 RETURN_GENERATOR itself pushes it.
GENERATOR_DEPTH = 0 if V313 else 1

# LOAD_CLOSURE is LOAD_FAST of a cell's slot from 3.13.
CLOSURE_IS_FAST = "LOAD_CLOSURE" not in OPCODES
# POP_JUMP_IF_TRUE and UNARY_NOT want a bool.
BRANCH_WANTS_BOOL = "TO_BOOL" in OPCODES
# LOAD_ATTR and LOAD_GLOBAL: the lowest bit of the argument asks for a second slot.
ATTR_HAS_FLAG = V312
GLOBAL_HAS_FLAG = V311
# YIELD_VALUE's argument: nothing; the depth of try blocks; whether it serves a `yield from`.
YIELD_ARG = "delegates" if V313 else "depth" if V312 else "none"
# Jumps count from the jump; before 3.11 some count from the start of the code.
RELATIVE = frozenset(dis.hasjrel)
ABSOLUTE = frozenset(dis.hasjabs)
HAS_ARG: frozenset[int] = (
    frozenset(dis.hasarg) if V312 else frozenset(range(dis.HAVE_ARGUMENT, 256))  # type: ignore[attr-defined]
)
BINARY_SYMBOLS: list[str] = [symbol for _, symbol in dis._nb_ops] if V311 else []  # type: ignore[attr-defined]


# A flag says whether the first constant is a docstring; before, it is one if it is a string.
DOCSTRING_FLAG = 0x4000000 if V314 else 0


def docstring(code: CodeType) -> str | None:
    """Return the docstring of a function's code."""
    first = code.co_consts[0] if code.co_consts else None
    said = not DOCSTRING_FLAG or code.co_flags & DOCSTRING_FLAG
    return first if said and isinstance(first, str) else None


def slot_names(code: CodeType) -> tuple[list[str], list[str]]:
    """Return the names of fast slots, and the names that DEREF instructions index."""
    if not V311:
        return list(code.co_varnames), [*code.co_cellvars, *code.co_freevars]
    local = set(code.co_varnames)
    slots = [*code.co_varnames, *(name for name in code.co_cellvars if name not in local), *code.co_freevars]
    return slots, slots


def positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    """Return the source position of each code unit: (line, end line, column, end column)."""
    if V311:
        return list(code.co_positions())  # type: ignore[attr-defined, unused-ignore]
    found: list[tuple[int | None, int | None, int | None, int | None]] = []
    for start, end, line in code.co_lines():
        found += [(line, None, None, None)] * ((end - start) // 2)
    return found
