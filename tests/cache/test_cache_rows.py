"""Guards as rows: what comes back says what was said, of other objects too."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchdynamo
from torchdynamo.cache.store import coverage
from torchdynamo.cache.store.facts import describe, made_again
from torchdynamo.cache.store.frames import agree
from torchdynamo.cache.store.hashes import hash_of
from torchdynamo.cache.store.rows import RowReader, RowWriter, Tables, Unresolved
from torchdynamo.cache.store.values import NotStorable, decode, encode
from torchdynamo.capture.functions.builtins_classes import REGISTRATIONS
from torchdynamo.core.source import Guard, Roots
from torchdynamo.eval_frame import cache_entries
from torchdynamo.guards.constants import same_constant
from torchdynamo.guards.explain import first_failure
from torchdynamo.guards.program import complete, lower

sys.path.append(str(Path(__file__).parents[1] / "mutations"))

import mutations_classes  # noqa: F401 - fills the table
import mutations_enums  # noqa: F401
import mutations_found  # noqa: F401
import mutations_functions  # noqa: F401
import mutations_modules  # noqa: F401
import mutations_python  # noqa: F401
import mutations_torch  # noqa: F401
from mutating import ROWS, Mutation

# What is patched in `builtins` or a metaclass is in the way of whoever asks here.
ASKED = [row for row in ROWS if row.__module__ not in ("mutations_patched", "mutations_metaclasses")]


def function_of(case: Mutation) -> Any:
    return case.fn.forward if isinstance(case.fn, torch.nn.Module) else case.fn


def roots_of(case: Mutation) -> Roots | None:
    """The frame of the row's call; None if that is not a plain function's."""
    fn, args = function_of(case), case.args()
    if hasattr(fn, "__self__"):
        fn, args = fn.__func__, (fn.__self__, *args)
    code = getattr(fn, "__code__", None)
    if code is None or len(args) != code.co_argcount:
        return None
    cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
    return Roots(dict(zip(code.co_varnames, args, strict=False)), fn.__globals__, __builtins__, cells)  # type: ignore[arg-type]


def dumped(guards: Sequence[Guard]) -> tuple[Tables, bytes]:
    writer = RowWriter()
    rows = writer.guards([guard for guard in guards if guard.source is not REGISTRATIONS])
    return writer.tables(), rows


def read(stored: tuple[Tables, bytes], roots: Roots) -> list[Guard]:
    tables, rows = stored
    return complete(RowReader(tables, roots).guards(rows), roots)


def says(guards: Sequence[Guard], roots: Roots) -> bool:
    return first_failure([guard for guard in guards if guard.source is not REGISTRATIONS], roots) is None


COUNTS = {"rows": 0, "stored": 0}
UNKNOWN: list[str] = []


@pytest.mark.parametrize("row", ASKED[::3], ids=lambda row: row.__name__)
def test_what_comes_back_says_the_same(row: Any) -> None:
    """Of every third row of the table of mutations, before the change and after it."""
    case = row()
    compiled = torchdynamo.compile(case.fn, backend="eager")
    with ExitStack() as stack:
        try:
            compiled(*case.args())
        except Exception:
            return
        entries, roots = cache_entries(function_of(case)), roots_of(case)
        if roots is None or not entries:
            return
        guards = list(entries[0].guards)
        if not says(guards, roots):
            return  # this call has changed what it rests on
        COUNTS["rows"] += 1
        try:
            stored = dumped(guards)
            back = read(stored, roots)
        except (NotStorable, Unresolved) as error:
            UNKNOWN.append(f"{row.__name__}: {error}")
            return
        COUNTS["stored"] += 1
        assert agree(back, guards)
        program = lower(back, [], getattr(function_of(case), "__func__", function_of(case)).__code__)
        assert program.check(roots.locals, roots.globals, roots.builtins, roots.closure)
        case.change(stack)
        roots = roots_of(case)
        assert roots is not None
        assert says(back, roots) == says(guards, roots)
        try:
            assert says(read(stored, roots), roots) == says(guards, roots)
        except Unresolved:
            assert not says(guards, roots)


def test_most_of_the_table_can_be_stored() -> None:
    assert COUNTS["stored"] > 0.85 * COUNTS["rows"], UNKNOWN


def test_values_come_back_as_they_were() -> None:
    values = [
        *(
            None,
            True,
            False,
            ...,
            NotImplemented,
            0,
            -1,
            2**63,
            -(2**100),
            1.5,
            -0.0,
            float("inf"),
            1 + 2j,
            "",
            "ä\ud800",
        ),
        *(
            b"a\0",
            torch.float16,
            torch.strided,
            torch.channels_last,
            torch.device("cpu"),
            (1, (2.0, "3")),
            slice(1, None),
        ),
        *(range(3, 9, 2), frozenset({1, 2.5, "a"}), torch.Size([2, 3]), ()),
    ]
    for value in values:
        data = encode(value, lambda obj: (_ for _ in ()).throw(AssertionError(obj)))
        found, end = decode(data, 0, lambda tag, number: None)
        assert end == len(data)
        assert same_constant(found, value), value
    nan = struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0]
    found, _ = decode(encode(nan, lambda obj: (b"", 0)), 0, lambda tag, number: None)
    assert struct.pack("<d", found) == struct.pack("<d", nan)
    assert encode(1, lambda obj: (b"", 0)) != encode(True, lambda obj: (b"", 0)) != encode(1.0, lambda obj: (b"", 0))


def made(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(text, space)
    return space["f"].__code__


def test_code_is_told_by_what_it_does_and_where_it_is() -> None:
    same = hash_of(made("def f(x):\n    return x in {1, 2, 'a'}"))
    assert hash_of(made("def f(x):\n    return x in {1, 'a', 2}")) == same
    assert hash_of(made("\ndef f(x):\n    return x in {1, 2, 'a'}")) != same
    for other in ("return x in {1, 2, 'b'}", "return x in {1.0, 2, 'a'}", "return x not in {1, 2, 'a'}"):
        assert hash_of(made(f"def f(x):\n    {other}")) != same
    assert hash_of(made("def f(x):\n    return lambda: 1")) != hash_of(made("def f(x):\n    return lambda: 2"))


@pytest.mark.parametrize(
    ("name", "known"),
    [("copy.py", True), ("collections/abc.py", True), ("copybook.py", False), ("site-packages/mine/copy.py", False)],
)
def test_only_python_itself_is_of_the_environment(name: str, known: bool) -> None:
    assert coverage.is_file_of_environment(coverage.LIBRARY + name) is known


def test_functions_that_are_not_numpys_own_are_not_stored() -> None:
    """They may have the name of one that is."""
    made: Any = np.frompyfunc(abs, 1, 1)
    with pytest.raises(NotStorable, match="not NumPy's own"):
        describe(made)
    assert describe(np.sqrt).kind == "ufunc"
    assert describe(np.sum).parts[0] is np.sum._implementation  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [np.float32(0.1), np.int8(-3), np.bool_(True), np.complex64(1j), np.float64(-0.0)])
def test_scalars_of_numpy_are_made_again_to_the_bit(value: Any) -> None:
    found = describe(value)
    made = made_again(found.kind, found.values, found.parts)
    assert type(made) is type(value) and made.tobytes() == value.tobytes()


def test_which_nan_a_scalar_of_numpy_is_is_not_stored() -> None:
    with pytest.raises(NotStorable, match="NaN"):
        describe(np.float32("nan"))
