"""Facts about numbers that vary: the native programs agree with what they mean in Python, and with sympy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from guarding import Guarded, X
from hypothesis import given, settings
from hypothesis import strategies as st

from torchdynamo.core.number_programs import FUNCTIONS, OPERATIONS
from torchdynamo.core.source import Guard, Source, local
from torchdynamo.graph.numbers import Numbers
from torchdynamo.guards.kinds.numbers import tell
from torchdynamo.guards.sizes import number_guards

Y = local("y")
EDGES = [0, 1, -1, 2, 3, 7, -5, 1 << 31, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63)]
numbers = st.sampled_from(EDGES) | st.integers(-20, 20)


@st.composite
def programs(draw: Any) -> tuple[tuple[str, Any], ...]:
    """A random program over two numbers."""
    made: list[tuple[str, Any]] = []
    depth = 0
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from([name for name, (count, _) in OPERATIONS.items() if count <= depth]))
        operand = {"load": st.integers(0, 1), "int": numbers, "float": st.floats(-1e6, 1e6)}.get(name)
        made.append((name, draw(operand) if operand is not None else None))
        depth += 1 - OPERATIONS[name][0]
    while depth > 1:
        made.append(("add", None))
        depth -= 1
    return tuple(made)


@settings(max_examples=400, deadline=None)
@given(programs(), numbers, numbers)
def test_both_readings_agree(program: tuple[tuple[str, Any], ...], x: int, y: int) -> None:
    if any(name == "pow" for name, _ in program):
        return  # natively only small exponents
    mixed = any(name in ("float", "to_float", "truediv", *FUNCTIONS) for name, _ in program)
    guarded = Guarded([Guard(Source("globals"), "NUMBERS", ((X, Y), (program,)))], settled=False, x=x, y=y)
    if mixed:
        assert guarded.python() or not guarded.native()  # of floats the native reading may know less
    else:
        assert guarded.python() is guarded.native()


FLOATS = [0.0, -0.0, 1.0, -1.5, 0.3, 7.25, 1e300, -1e-300, math.inf, -math.inf, math.nan]
CONTENTS = tuple(Source("method", place, "__float__") for place in (X, Y))


@settings(max_examples=400, deadline=None)
@given(programs(), st.sampled_from(FLOATS) | st.floats(), st.sampled_from(FLOATS) | st.floats(-20, 20))
def test_of_floats_what_holds_natively_holds_in_python(
    program: tuple[tuple[str, Any], ...], x: float, y: float
) -> None:
    guarded = Guarded([Guard(Source("globals"), "NUMBERS", (CONTENTS, (program,)))], settled=False, x=x, y=y)
    assert guarded.python() or not guarded.native()


@pytest.mark.parametrize("name", ["floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne", "truediv", "add", "mul"])
def test_arithmetic_of_floats_is_pythons(name: str) -> None:
    """Both ways: a condition that holds in Python is known natively."""
    for x, y in itertools.product([*FLOATS, 5.5, -5.5, 0.1, 1e16], repeat=2):
        try:
            answer = OPERATIONS[name][1](x, y)
        except ZeroDivisionError:
            continue
        if answer == answer:
            program = (("load", 0), ("load", 1), (name, None), ("float", float(answer)), ("eq", None))
            guard = Guard(Source("globals"), "NUMBERS", (CONTENTS, (program,)))
            assert Guarded([guard], settled=False, x=x, y=y).native(), (x, y)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_floats_are_pythons(name: str) -> None:
    for x in (0.0, 0.25, 1.0, -0.5, 3.0, 2e10, -7.0, math.inf, math.nan):
        try:
            answer = getattr(math, name)(x)
        except (ValueError, OverflowError):
            answer = 0.0
            known = False
        else:
            known = math.isfinite(answer)
        program = (("load", 0), (name, None), ("float", answer), ("eq", None))
        guard = Guard(Source("globals"), "NUMBERS", (CONTENTS[:1], (program,)))
        assert Guarded([guard], settled=False, x=x).native() is known


def test_what_is_no_such_number_does_not_hold() -> None:
    program = (("load", 0), ("load", 0), ("eq", None))
    size = Source("size", X, 0)
    for source, good, bad in (
        (X, [3, -1], [True, 3.0, 1 << 70, "3", torch.ones(2)]),
        (size, [torch.ones(2), torch.ones(0, 1)], [3, torch.tensor(1), torch.ones(2).to_sparse]),
    ):
        for obj in good:
            assert Guarded([Guard(Source("globals"), "NUMBERS", ((source,), (program,)))], settled=False, x=obj).holds()
        for obj in bad:
            guard = Guard(Source("globals"), "NUMBERS", ((source,), (program,)))
            assert not Guarded([guard], settled=False, x=obj).native()


CONDITIONS: list[Any] = [
    lambda s, t: s == t,
    lambda s, t: s * 2 == t,
    lambda s, t: s % 4 == 0,
    lambda s, t: s // 3 > t - 2,
    lambda s, t: torch.sym_max(s, t) < 9,
    lambda s, t: torch.sym_min(s, t) >= 2,
    lambda s, t: torch.sym_int(s / 2) == t,
    lambda s, t: s * s + t * t <= 50,
    lambda s, t: (s * 0.5) < t,
    lambda s, t: s**2 != t,
    lambda s, t: torch.sym_ite(s > t, s, t) == 6,
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=range(len(CONDITIONS)))
def test_what_torch_decides_is_guarded(condition: Any) -> None:
    """The guard holds at least wherever the decision would be the same, or the numbers are."""
    for a, b in ((4, 6), (6, 6), (3, 1), (8, 4)):
        known = Numbers(scalars=False, shapes=False)
        tensor = torch.empty(a, b)
        s, t = (known.at_entry(n, Source("size", X, dim), least=0) for dim, n in enumerate((a, b)))
        decided = known.decide(condition(s, t))
        guards = number_guards(known, {})
        for c, d in ((4, 6), (6, 6), (3, 1), (8, 4), (0, 0), (1, 1), (12, 24), (0, 5)):
            if guards and Guarded(guards, settled=False, x=torch.empty(c, d)).holds():
                assert bool(condition(c, d)) is decided, f"decided at {tensor.shape}, wrong at {(c, d)}"
            else:
                assert (c, d) != (a, b) or not guards


def test_conditions_are_told_as_python_says_them() -> None:
    program = (("load", 0), ("int", 4), ("mod", None), ("int", 0), ("eq", None))
    assert tell(program, (Source("size", X, 0),)) == "(x.size(0) % 4) == 0"
