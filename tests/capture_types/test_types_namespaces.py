"""What a frame does to the names of an object, a module, a class, a function, a tensor or a thread-local object.

A row of OWNERS is something that has names; a row of PROGRAMS what is done to them. Each pair runs in a world of its
own, eagerly and compiled, in several calls; after each call the names, and their order, are compared too.
"""

from __future__ import annotations

import re
import sys
import textwrap
import types
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.errors import Unsupported

HEAD = """
import sys, threading, types
import torch, torchdynamo

class Box: pass
class Slots:
    __slots__ = ("a", "b", "c", "d", "__weakref__")
class Local(threading.local):
    kept = 3.0
class Watched:
    def __setattr__(self, name, value): object.__setattr__(self, name, value)
    def __delattr__(self, name): object.__delattr__(self, name)
class WatchedLocal(threading.local):
    def __setattr__(self, name, value): super().__setattr__(name, value)
    def __delattr__(self, name): super().__delattr__(name)
def plain(): pass
def module(name):
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]
SEEN = []
@torchdynamo.disable
def note(): SEEN.append(names())
"""
OWNERS = {
    "object": "K = Box()",
    "object that says how": "K = Watched()",
    "slots": "K = Slots()",
    "layer": "K = torch.nn.Identity()",
    "thread-local": "K = threading.local()",
    "thread-local of a subclass": "K = Local()",
    "thread-local that says how": "K = WatchedLocal()",
    "tensor": "K = torch.ones(2)",
    "module": "K = module('named')",
    "function": "K = plain",
    "class": "class K: pass",
    "globals": "",
}
WHOSE = {"globals": "globals()", "slots": "{name: getattr(K, name) for name in K.__slots__ if hasattr(K, name)}"}
PROGRAMS = {
    "written, then read": "K.a = K.b + 1; x = x * K.a",
    "a tensor": "K.a = x + 1; x = x * K.a",
    "written twice": "K.c = 4.0; K.d = 5.0; K.c = 6.0; x = x * K.c",
    "changed in place": "K.c = [1.0]; K.c.append(2.0); x = x * len(K.c)",
    "swapped": "K.a, K.b = K.b, K.a; x = x * K.a",
    "asked for": "before = has('c'); K.c = 1.0; x = x + before + 2 * has('c')",
    "missing": """
        try: K.nothing
        except (AttributeError, NameError) as error: x = x + len(str(error))""",
    "written back": "old = K.a; K.a = 5.0; x = x * K.a; K.a = old",
    "deleted": "if has('a'): del K.a\nx = x + has('a')",
    "deleted and set again": "del K.a; K.a = 7.0; x = x * K.a",
    "deleted and written back": "old = K.a; del K.a; K.a = old",
    "set, deleted, set again": "K.c = 1.0; K.d = 2.0; del K.c; K.c = 3.0; x = x * K.c",
    "deleted where nothing was": "K.c = 1.0; del K.c; x = x + has('c')",
    "deleted twice": """
        K.c = 1.0
        del K.c
        try: del K.c
        except (AttributeError, NameError) as error: x = x + len(str(error))""",
    "written in a call before a break": "put(9.0); x = x * K.a; note(); x = x * K.b",
    "deleted before a break": "K.c = 1.0; del K.c; x = x + 1; note(); K.c = 2.0",
    "read by another name": "x = x * vars(K)['a'] + K.a",
    "written, read by another name": "K.a = 3.0; x = x * vars(K)['a']",
    "a name that is Python's": "K.__doc__ = 'said'; x = x + 1",
}  # fmt: skip
# What ends the graph everywhere, and by owner: what cannot be held back, or is read by a name that is not followed.
BREAKS = {program for program in PROGRAMS if "note()" in PROGRAMS[program]}
DELETES = {program for program in PROGRAMS if "del K" in PROGRAMS[program]}
BY_VARS = {"read by another name", "written, read by another name"}
DUNDERS = {"a name that is Python's"}
REFUSED: dict[str, set[str]] = {
    "thread-local": DUNDERS,
    "thread-local of a subclass": DUNDERS,
    "thread-local that says how": DUNDERS,
    "tensor": DUNDERS | BY_VARS,
    "module": DELETES | DUNDERS | {"written, read by another name"},
    "function": DELETES | DUNDERS | {"written, read by another name"},
    "class": DELETES | DUNDERS | {"written, read by another name"},
    "globals": DELETES | BY_VARS | {"asked for"},
}
PAIRS = [
    (owner, program) for owner in OWNERS for program in PROGRAMS if owner != "slots" or program not in BY_VARS | DUNDERS
]


def world(owner: str, program: str) -> dict[str, Any]:
    """The names of a program, whose `f` does it; `turn` puts a name there before a call, or takes it away."""
    module = sys.modules["namespaces"] = types.ModuleType("namespaces")
    space = vars(module)
    is_global = owner == "globals"
    says = "global a, b, c, d, __doc__" if is_global else "pass"
    whose = WHOSE.get(owner, "vars(K)")
    text = (
        f"{HEAD}\n{OWNERS[owner]}\nK.a = 1.0; K.b = 2.0\n"
        f"def put(value):\n    {says}\n    K.a = value\n"
        f"def has(name): return {'name in globals()' if is_global else 'hasattr(K, name)'}\n"
        f"def turn(on):\n    {says}\n    if on: K.c = 8.0\n    elif has('c'): del K.c\n"
        f"def names(): return [(name, str({whose}[name])) for name in {whose} if name in NAMES]\n"
        f"def f(x):\n    {says}\n{textwrap.indent(textwrap.dedent(PROGRAMS[program]).strip(), '    ')}\n    return x\n"
    )
    if is_global:
        text = re.sub(r"\bK\.", "", text.replace("vars(K)", "globals()"))
    space["NAMES"] = {"a", "b", "c", "d", "__doc__"}
    exec(text, space)
    return space


def outcome(space: dict[str, Any], run: Any, there: bool) -> list[Any]:
    """What each of four calls gives or raises, and the names after it. `c` is there before every other call."""
    seen: list[Any] = []
    for call in range(4):
        space["turn"](call % 2 == there)
        try:
            result = run(torch.ones(2)).tolist()
        except (AttributeError, NameError) as error:
            result = repr(error)
        seen.append((result, space["names"](), list(space["SEEN"])))
    return seen


@pytest.mark.parametrize(("owner", "program"), PAIRS)
def test_as_eager(owner: str, program: str) -> None:
    for there in (False, True):
        space = world(owner, program)
        expected = outcome(space, space["f"], there)
        torchdynamo.reset()
        space = world(owner, program)
        assert outcome(space, torchdynamo.compile(space["f"], backend="eager"), there) == expected


@pytest.mark.parametrize(("owner", "program"), PAIRS)
def test_in_one_graph(owner: str, program: str) -> None:
    space = world(owner, program)
    before = space["names"]()
    compiled = torchdynamo.compile(space["f"], backend="eager", fullgraph=True)
    if program in BREAKS | REFUSED.get(owner, set()):
        with pytest.raises(Unsupported):
            compiled(torch.ones(2))
        assert space["names"]() == before
    else:
        compiled(torch.ones(2))


class Making(types.ModuleType):
    """A module that makes its names when they are asked for."""

    def __getattr__(self, name: str) -> int:
        return MADE[name]


MADE = {"scale": 2}
making = Making("making")


def scaled_by_module(x: torch.Tensor) -> torch.Tensor:
    return x * making.scale


def test_names_that_a_class_of_modules_makes_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torchdynamo.compile(scaled_by_module, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 2)
    monkeypatch.setitem(MADE, "scale", 3)
    assert torch.equal(compiled(x), x * 3)
    monkeypatch.setattr(Making, "__getattr__", lambda self, name: 7)
    assert torch.equal(compiled(x), x * 7)
