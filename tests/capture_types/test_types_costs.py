"""What needs no file of its own: methods of str, functions of math, classes that Python's library writes in Python."""

from __future__ import annotations

import collections
import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)
CAPTURE = Path(torchdynamo.__file__).parent / "capture"
TEXT = "Some text, äöü 12"
METHODS = [name for name, found in vars(str).items() if type(found) is types.MethodDescriptorType and name[0] != "_"]
ARGUMENTS: list[tuple[Any, ...]] = [(), ("t",), ("t", "u"), (30,), ({116: "d"},), (["a", "b"],)]
FUNCTIONS = [name for name, found in vars(math).items() if callable(found) and name[0] != "_"]
NUMBERS: list[tuple[Any, ...]] = [(0.5,), (3,), (3, 4), (3.0, 4), (7, 2, 0.5), ([1.0, 2.0],), ([1, 2], [3, 4])]


def call_all(x):
    """What it gives for each."""
    fn = getattr(OWNER, NAME)
    return x + 1, [fn(*given) for given in TAKEN]


def takes(fn: Any, given: tuple[Any, ...]) -> bool:
    try:
        fn(*given)
    except (TypeError, ValueError, LookupError):
        return False
    return True


def compare(owner: Any, name: str, choices: list[tuple[Any, ...]]) -> None:
    global OWNER, NAME, TAKEN
    OWNER, NAME, TAKEN = owner, name, [given for given in choices if takes(getattr(owner, name), given)]
    assert TAKEN
    torchdynamo.reset()
    check(call_all, (X,))


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_str(name: str) -> None:
    compare(TEXT, name, ARGUMENTS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_math(name: str) -> None:
    compare(math, name, NUMBERS)


def chain_map(x):
    below = {"a": 1, "b": 2}
    chain = collections.ChainMap({"b": x}, below)
    inner = chain.new_child({"c": 3})
    inner["d"], popped = 4, chain.pop("b")
    below["e"] = 5
    try:
        del inner["a"]
    except KeyError as error:
        text = str(error)
    found = inner.get("z", 7), "e" in inner, len(inner), inner.parents["a"], list(inner.items()), bool(inner)
    same = chain == {"a": 1, "b": 2, "e": 5}
    return popped * inner["a"], list(inner), dict(chain | {"q": 1}), text, found, inner.maps, same


def test_chain_map() -> None:
    check(chain_map, (X,))


def test_no_file_names_them() -> None:
    """Nothing in capture/ is about these three."""
    for path in CAPTURE.rglob("*.py"):
        text = path.read_text()
        assert not any(name in text for name in ("ChainMap", "hypot", "isidentifier")), path
