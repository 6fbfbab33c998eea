"""Tables of raw opcodes and their canonical instructions; a name without a row is its own canonical name.

Instructions that need more than a row (calls, comparisons, exception regions) are in `readers` and `writers`.
"""

from __future__ import annotations

from torchdynamo.bytecode import versions

# raw name -> canonical name; the argument is resolved by its category (constant, name, local, jump, ...)
RENAMED = {
    "POP_TOP": "POP",
    "PUSH_NULL": "NULL",
    "BINARY_SUBSCR": "GETITEM",
    "STORE_SUBSCR": "SETITEM",
    "DELETE_SUBSCR": "DELITEM",
    "BUILD_SLICE": "SLICE",
    "RETURN_VALUE": "RETURN",
    "LOAD_CLOSURE": "LOAD_CELL",
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "UNPACK_SEQUENCE": "UNPACK",
    "RAISE_VARARGS": "RAISE",
    "CHECK_EXC_MATCH": "EXC_MATCH",
    "CHECK_EG_MATCH": "EG_MATCH",
    "BEFORE_WITH": "WITH_ENTER",
    "SETUP_WITH": "WITH_ENTER",
    "BEFORE_ASYNC_WITH": "ASYNC_WITH_ENTER",
    "WITH_EXCEPT_START": "WITH_EXIT",
    "JUMP_FORWARD": "JUMP",
    "JUMP_ABSOLUTE": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    "ROT_N": "ROTATE",
}

# Raw names with another meaning in older versions: these also push whether they matched.
if versions.MATCH_PUSHES_BOOL:
    RENAMED |= {"MATCH_CLASS": "MATCH_CLASS_BOOL", "MATCH_KEYS": "MATCH_KEYS_BOOL"}

_BINARY = {"ADD": "+", "AND": "&", "FLOOR_DIVIDE": "//", "LSHIFT": "<<", "MATRIX_MULTIPLY": "@", "MULTIPLY": "*",
           "MODULO": "%", "OR": "|", "POWER": "**", "RSHIFT": ">>", "SUBTRACT": "-", "TRUE_DIVIDE": "/",
           "XOR": "^"}  # fmt: skip

# raw name -> (canonical name, key); the canonical argument is the key, or (key, argument) if the raw one has any
FAMILIES: dict[str, tuple[str, str]] = {
    "UNARY_NEGATIVE": ("UNARY", "-"),
    "UNARY_NOT": ("UNARY", "not"),
    "UNARY_INVERT": ("UNARY", "~"),
    "UNARY_POSITIVE": ("UNARY", "+"),
    "BUILD_TUPLE": ("BUILD", "tuple"),
    "BUILD_LIST": ("BUILD", "list"),
    "BUILD_SET": ("BUILD", "set"),
    "BUILD_MAP": ("BUILD", "map"),
    "BUILD_STRING": ("BUILD", "string"),
    "BUILD_CONST_KEY_MAP": ("BUILD", "const_key_map"),
    "LIST_APPEND": ("APPEND", "list"),
    "SET_ADD": ("APPEND", "set"),
    "MAP_ADD": ("APPEND", "map"),
    "LIST_EXTEND": ("EXTEND", "list"),
    "SET_UPDATE": ("EXTEND", "set"),
    "DICT_UPDATE": ("EXTEND", "dict_update"),
    "DICT_MERGE": ("EXTEND", "dict_merge"),
    "JUMP_IF_TRUE_OR_POP": ("BRANCH_KEEP", "true"),
    "JUMP_IF_FALSE_OR_POP": ("BRANCH_KEEP", "false"),
    "ASYNC_GEN_WRAP": ("INTRINSIC", "ASYNC_GEN_WRAP"),
    "PREP_RERAISE_STAR": ("INTRINSIC", "PREP_RERAISE_STAR"),
    **{f"BINARY_{name}": ("BINARY", symbol) for name, symbol in _BINARY.items()},
    **{f"INPLACE_{name}": ("BINARY", symbol + "=") for name, symbol in _BINARY.items()},
    **{
        f"POP_JUMP_{direction}IF_{cond}": ("BRANCH", cond.lower().replace("_", " "))
        for direction in ("", "FORWARD_", "BACKWARD_")
        for cond in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}

# raw name -> the canonical instructions it is short for
EXPANDED: dict[str, tuple[tuple[str, object], ...]] = {
    "BINARY_SLICE": (("SLICE", 2), ("GETITEM", None)),
    "STORE_SLICE": (("SLICE", 2), ("SETITEM", None)),
    "LOAD_ASSERTION_ERROR": (("LOAD_CONST", AssertionError),),
    "DUP_TOP": (("COPY", 1),),
    "DUP_TOP_TWO": (("COPY", 2), ("COPY", 2)),
    "ROT_TWO": (("SWAP", 2),),
    "ROT_THREE": (("ROTATE", 3),),
    "ROT_FOUR": (("ROTATE", 4),),
}

# Superinstructions: each half is a canonical instruction on a local variable.
PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}

# Raw names without a canonical form: caches, hints, and instructions that `assemble` adds by itself.
DROPPED = ("CACHE", "PRECALL", "EXTENDED_ARG", "COPY_FREE_VARS", "GEN_START", "NOT_TAKEN")

CONVERSIONS = ("", "s", "r", "a")
FUNCTION_PARTS = ("defaults", "kwdefaults", "annotations", "closure", "annotate")  # bit n of MAKE_FUNCTION's argument
YIELD_KINDS = {1: None, 2: "yield from", 3: "await"}  # RESUME's argument after a YIELD_VALUE
YIELD_NUMBERS = {kind: number for number, kind in YIELD_KINDS.items()}
