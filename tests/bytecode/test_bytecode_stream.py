"""Decoding what was assembled from a decoded stream gives that stream: over the standard library's code objects."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Code, Label

MODULES = """
    argparse ast asyncio.base_events asyncio.tasks base64 bdb calendar collections concurrent.futures.process
    configparser contextlib dataclasses difflib doctest email._header_value_parser enum functools http.client inspect
    json.decoder locale logging mailbox pathlib pickle pickletools pydoc random shutil smtplib socket statistics
    subprocess tarfile threading tokenize traceback typing unittest.mock urllib.request weakref zipfile
    test.test_asyncgen test.test_coroutines test.test_exceptions test.test_except_star test.test_fstring
    test.test_generators test.test_grammar test.test_patma test.test_super test.test_unpack_ex test.test_with
""".split()
SAME = """
    co_name co_filename co_firstlineno co_flags co_argcount co_posonlyargcount co_kwonlyargcount co_varnames
    co_cellvars co_freevars
""".split()


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from inner_codes(value)


@cache
def codes_of(module: str) -> list[CodeType]:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:  # its package is not installed
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        pytest.skip(f"no source of {module}")
    return list(inner_codes(compile(Path(spec.origin).read_bytes(), spec.origin, "exec")))


def plain(code: Code) -> list[tuple[str, Any, int | None]]:
    """The stream with labels as the places they name."""
    rows: list[tuple[str, Any, int | None]] = []
    for index, instruction in enumerate(code.instructions):
        arg: Any = instruction.arg
        if isinstance(arg, Label):
            arg = code.targets[arg]
        elif isinstance(arg, tuple) and arg and isinstance(arg[-1], Label):
            arg = (*arg[:-1], code.targets[arg[-1]])
        line = code.line(index)
        if line is None and rows and not versions.LINE_CAN_BE_NONE:
            line = rows[-1][2]
        rows.append((instruction.op, arg, line))
    return rows


@pytest.mark.parametrize("module", MODULES)
def test_same_stream(module: str) -> None:
    for code in codes_of(module):
        if set(code.co_cellvars) & set(code.co_freevars):
            continue  # see test_bytecode_assemble
        first = decode(code)
        made = assemble(first.items(), code)
        second = decode(made)
        assert plain(second) == plain(first), code
        assert second.regions == first.regions, code
        assert {name: getattr(made, name) for name in SAME} == {name: getattr(code, name) for name in SAME}
        # Code that nothing reaches is not counted: CPython counts it.
        assert code.co_stacksize - 8 <= made.co_stacksize <= code.co_stacksize, code


def test_positions_are_kept() -> None:
    if not hasattr(CodeType, "co_positions"):
        pytest.skip("this Python has lines only")
    for code in codes_of("dataclasses"):
        first = decode(code)
        second = decode(assemble(first.items(), code))
        ours = [instruction.position for instruction in second.instructions]
        assert ours == [instruction.position for instruction in first.instructions]


def test_offsets_are_those_of_dis() -> None:
    import dis

    for code in codes_of("functools"):
        offsets = {instruction.offset for instruction in dis.get_instructions(code)}
        seen = [instruction.offset for instruction in decode(code).instructions]
        assert set(seen) <= offsets
        assert seen == sorted(seen)


def test_assembling_is_deterministic() -> None:
    for code in codes_of("ast"):
        stream = decode(code).items()
        once, twice = assemble(stream, code), assemble(stream, code)
        assert once == twice
        assert once.co_consts == twice.co_consts
        assert once.co_linetable == twice.co_linetable


def test_decoding_is_remembered_as_long_as_the_code_lives() -> None:
    code = compile("x = 1", "somewhere", "exec")
    other = compile("x = 1", "elsewhere", "exec")
    assert decode(code) is decode(code)
    assert decode(code) is not decode(other)
    assert decode(other).code is other
    kept = decode(code)
    del code
    with pytest.raises(ReferenceError):
        kept.code


# What a function means is said alike on every version, but for which way the compiler turns a test round.
LISTING = """
    LOAD_GLOBAL 'range' | LOAD_FAST 'n' | CALL (1, ()) | GET_ITER | FOR_ITER | STORE_FAST 'i'
    | LOAD_FAST 'total' | LOAD_FAST 'i' | BINARY '+=' | STORE_FAST 'total' | LOAD_GLOBAL 'print'
    | LOAD_CONST 'at' | LOAD_FAST 'i' | LOAD_CONST '' | CALL (3, ('end',)) | POP | JUMP | LOAD_FAST 'total' | RETURN
"""


def loud_sum(n: int, total: int) -> int:
    for i in range(n):
        total += i
        print("at", i, end="")
    return total


def test_a_listing() -> None:
    if not versions.CALL_HAS_NULL:
        pytest.skip("calls are different here")
    code = decode(loud_sum.__code__)
    shown = [row.op if isinstance(row.arg, Label) else repr(row) for row in code.instructions if row.op != "NULL"]
    assert shown == " ".join(LISTING.split()).split(" | ")
    nulls = [index for index, row in enumerate(code.instructions) if row.op == "NULL"]
    step = 1 if versions.NULL_FIRST else -1
    assert [code.instructions[index + step].arg for index in nulls] == ["range", "print"]
    (loop_end,) = [code.targets[row.arg] for row in code.instructions if row.op == "FOR_ITER"]
    assert shown[-2:] == [repr(row) for row in code.instructions[loop_end:]]
