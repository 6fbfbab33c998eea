"""The table of reasons, and the text of an Unsupported."""

from __future__ import annotations

import ast
import pickle
import re
import string
from pathlib import Path

import pytest

import torchdynamo
from torchdynamo import exc
from torchdynamo.core.reasons import LINK, REASONS, SKIPS, Reason, find, hint, message, pointer, title
from torchdynamo.core.unsupported_text import unsupported_text

PACKAGE = Path(torchdynamo.__file__).parent
FIELDS = {"name", "type", "what", "said"}
NAMERS = ("Break", "Why", "Rule")  # what takes the id of a reason as its first argument
ENDINGS = ("explained", "pointer")  # functions of a text that take the id as their last argument


def ids_in_use() -> set[str]:
    """The ids that the package's code names."""
    calls = [
        node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args
    ]
    named = [call.args[0] for call in calls if call.func.id in NAMERS]
    named += [call.args[-1] for call in calls if call.func.id in ENDINGS]
    return {node.value for node in named if isinstance(node, ast.Constant)}


def test_whoever_breaks_names_a_row_of_the_table() -> None:
    assert ids_in_use() - REASONS.keys() == set()


@pytest.mark.parametrize("row", REASONS.values(), ids=lambda row: row.id)
def test_rows_are_complete_sentences_with_known_fields(row: Reason) -> None:
    assert row.text.endswith(".")
    assert row.hint.endswith(".")
    for template in (row.title, row.text, row.hint):
        assert {name for _, name, _, _ in string.Formatter().parse(template) if name} <= FIELDS


# Numbers and slugs are in users' logs, filters and links: rows are added at the end, never changed or removed.
FROZEN = """\
TD101 data-dependent-branch
TD102 data-dependent-value
TD103 error-that-is-caught
TD104 unknown-fact
TD105 dynamic-output-shape
TD106 unknown-call
TD107 builtin-with-effects
TD108 unsupported-argument
TD109 unsupported-operator
TD110 unsupported-instruction
TD111 unsupported-type
TD112 changing-value
TD113 unsupported-method
TD114 unsupported-key
TD115 unsupported-attribute
TD116 unsupported-attribute-write
TD117 uncaught-exception
TD118 user-graph-break
TD119 disabled-function
TD120 autograd-function
TD121 activation-checkpoint
TD122 skipped-function
TD123 learning-rate-schedule
TD124 disallowed-function
TD125 loop-with-a-break
TD126 unknown-context-manager
TD127 import-in-frame
TD128 unknown-iterator
TD129 side-effect-not-replayable
TD130 inlining-too-deep
TD131 too-long-to-follow
TD132 unrolled-loop
TD133 frame-inspects-itself
TD134 foreign-function
TD135 no-fake-kernel
TD136 closed-subclass
TD201 generator
TD202 coroutine
TD203 class-body
TD204 module-body
TD205 strange-globals
TD206 stdlib
TD207 torch-internals
TD208 torchdynamo
TD209 no-tensors
TD210 foreign-mode
TD301 internal-error
TD302 cache-limit
TD303 backend-failed
TD304 graph-failed
TD305 seldom-used
TD306 backend-needs-constants
TD307 bucket-not-possible
TD308 wrong-result
"""


def test_numbers_and_slugs_keep_their_meaning() -> None:
    rows = [f"{row.number} {row.slug}" for row in REASONS.values()]
    assert rows == FROZEN.splitlines()
    assert len({row.number for row in REASONS.values()}) == len({row.slug for row in REASONS.values()}) == len(rows)
    assert all(re.fullmatch("TD[1-9][0-9][0-9] [a-z-]+", row) for row in rows)


def test_numbers_tell_breaks_from_skips_and_fallbacks() -> None:
    assert {row.id for row in REASONS.values() if row.number[2] != "1"} == SKIPS


@pytest.mark.parametrize("row", REASONS.values(), ids=lambda row: row.id)
def test_reasons_are_found_by_number_slug_and_id(row: Reason) -> None:
    assert find(row.number) is find(row.number.lower()) is find(row.slug) is find(row.id) is row
    assert pointer(row.id) == f"{row.number} {row.slug}: {LINK.format(number=row.number, slug=row.slug)}"
    assert find(f"{row.slug}s") is None


def test_a_field_nobody_filled_does_not_spoil_the_message() -> None:
    assert message("unknown call", name="spam").startswith("spam is not Python code")
    assert title("unknown call") == "call of it"
    assert hint("import in frame", name="numpy") == "Import numpy at the top of the file."


def test_skips_are_part_of_the_table() -> None:
    assert {"no tensors", "generator", "cache limit"} <= SKIPS < REASONS.keys()


DOCUMENTED = """\
generic_jump TensorVariable()
Processing original code:
  File "example.py", line 7, in toy_example
    if b.sum() < 0:
       ^^^^^^^^^^^

Why: """


def test_the_documented_text() -> None:
    text = unsupported_text(
        "data-dependent branch", {}, "example.py", 7, "toy_example", "    if b.sum() < 0:\n", column=7, end_column=18
    )
    assert text.startswith(DOCUMENTED)
    assert "torch.where(" in text
    assert text.endswith("Reason: TD101 data-dependent-branch: python -m torchdynamo reason TD101")


@pytest.mark.parametrize(
    ("line", "columns", "marks"),
    [
        ("\tx = f(y)\n", (5, 9), "        ^^^^"),  # tabs that indent go with the line
        ("x = f(y)\n", (None, None), "    ^^^^^^^^"),  # nothing known: all of it
        ("    x = f(y,\n", (8, None), "        ^^^^"),  # goes on in the next line
        ("größe = f(日本)\n", (len("größe = ".encode()), len("größe = f(日本)".encode())), "            ^^^^^^^"),
    ],
)
def test_carets_stand_under_what_is_meant(line: str, columns: tuple[int | None, int | None], marks: str) -> None:
    text = unsupported_text("unknown call", {"name": "f"}, "a.py", 1, "g", line, *columns)
    assert text.splitlines()[3:5] == [f"    {line.strip()}", marks]


def test_a_line_that_cannot_be_read_is_left_out() -> None:
    text = unsupported_text("unknown call", {"name": "f"}, "<string>", None, "g", "", None, None)
    assert text.splitlines()[2:4] == ['  File "<string>", line ?, in g', ""]


@pytest.mark.parametrize(
    "error",
    [exc.Unsupported("unknown call", "the text", ("a.py", 3)), exc.BackendError("no good", "ts", "__compiled_fn_0")],
)
def test_errors_survive_a_pickle(error: exc.TorchDynamoError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.__dict__) == (str(error), error.__dict__)
    assert str(copy) in ("the text", "no good")


def test_one_root_for_errors_and_one_for_warnings() -> None:
    classes = [getattr(exc, name) for name in exc.__all__]
    assert all(issubclass(cls, (exc.TorchDynamoError, exc.TorchDynamoWarning)) for cls in classes)
    assert issubclass(exc.TorchDynamoError, RuntimeError)
