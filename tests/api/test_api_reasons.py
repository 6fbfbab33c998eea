"""The table of reasons, and the text of an Unsupported."""

from __future__ import annotations

import ast
import pickle
import string
from pathlib import Path

import pytest

import torchdynamo
from torchdynamo import exc
from torchdynamo.core.reasons import REASONS, SKIPS, Reason, hint, message, title, unsupported_text

PACKAGE = Path(torchdynamo.__file__).parent
FIELDS = {"name", "type", "what"}
NAMERS = ("Break", "Why", "Rule")  # what takes the id of a reason as its first argument


def ids_in_use() -> set[str]:
    """The ids that the package's code names."""
    calls = [
        node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMERS and node.args
    ]
    return {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}


def test_whoever_breaks_names_a_row_of_the_table() -> None:
    assert ids_in_use() - REASONS.keys() == set()


@pytest.mark.parametrize("row", REASONS.values(), ids=lambda row: row.id)
def test_rows_are_complete_sentences_with_known_fields(row: Reason) -> None:
    assert row.text.endswith(".")
    assert row.hint.endswith(".")
    for template in row[1:]:
        assert {name for _, name, _, _ in string.Formatter().parse(template) if name} <= FIELDS


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
    assert text.endswith("Reason: data-dependent branch")


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
