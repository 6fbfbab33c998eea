"""What `assemble` promises beyond a round trip: names, constants, generated code, and refusing what would crash."""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names, assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.depth import DepthError
from torchdynamo.bytecode.instruction import Instruction as I
from torchdynamo.bytecode.instruction import Item, Label, RegionEnd, RegionStart, find


def model(a: Any, b: Any = 2, /, c: Any = 3, *rest: Any, d: Any = 4, **more: Any) -> Any:
    """The docstring."""
    total = a + b
    return total, c, rest, d, more


def call_slots(function: Item) -> list[Item]:
    """A callable and its NULL, in this version's order."""
    if not versions.CALL_HAS_NULL:
        return [function]
    return [I("NULL"), function] if versions.NULL_FIRST else [function, I("NULL")]


CALL = "CALL" if versions.CALL_HAS_NULL else "CALL_FUNCTION"


def run(items: list[Item], *args: Any, **overrides: Any) -> Any:
    def empty() -> None: ...

    code = assemble(items, empty.__code__, **overrides)
    return FunctionType(code, {})(*args)


def test_what_is_not_said_is_like_the_original() -> None:
    code = assemble([I("LOAD_CONST", 5), I("RETURN")], model.__code__)
    assert FunctionType(code, {})(1, 2, 3, d=4) == 5
    assert FunctionType(code, {}).__doc__ == "The docstring."
    assert (code.co_name, code.co_filename, code.co_firstlineno) == ("model", __file__, model.__code__.co_firstlineno)
    assert code.co_varnames == model.__code__.co_varnames
    assert argument_names(code) == ("a", "b", "c", "d", "rest", "more")


def test_overrides() -> None:
    items: list[Item] = [I("LOAD_FAST", "x"), I("LOAD_FAST", "extra"), I("BUILD", ("tuple", 2)), I("RETURN")]
    code = assemble(
        [I("LOAD_CONST", 7), I("STORE_FAST", "extra"), *items],
        model.__code__,
        name="other",
        argnames=["x", "y", "args"],
        kwonlyargcount=1,
        posonlyargcount=0,
        flags=model.__code__.co_flags & ~8,
        varnames=["__bound"],
    )
    assert code.co_varnames == ("x", "y", "args", "__bound", "extra")
    assert (code.co_argcount, code.co_kwonlyargcount, code.co_name) == (1, 1, "other")
    if hasattr(code, "co_qualname"):
        assert code.co_qualname == "other"
    assert FunctionType(code, {})(1, 2, 3, y=4) == (1, 7)


def test_constants_are_compared_by_identity() -> None:
    first, second, inner = [1], [1], compile("1", "x", "eval")
    values = [first, second, len, inner, 0.0, -0.0, 1, True, 1.0, (0.0,), (-0.0,), (1,), (True,), "a", b"a", {1: 2}, 1]
    items: list[Item] = [*(I("LOAD_CONST", value) for value in values), I("BUILD", ("list", len(values))), I("RETURN")]
    got = run(items)
    assert repr(got) == repr(values)
    assert all(
        one is other for one, other in zip(got, values, strict=True) if isinstance(other, (list, dict, CodeType))
    )


def test_the_first_constant_is_no_docstring_by_accident() -> None:
    code = assemble([I("LOAD_CONST", "text"), I("RETURN")], (lambda: None).__code__)
    assert FunctionType(code, {}).__doc__ is None


def test_many_constants_and_names() -> None:
    values = [object() for _ in range(700)]
    items: list[Item] = [*(I("LOAD_CONST", value) for value in values), I("BUILD", ("tuple", 700)), I("RETURN")]
    assert run(items) == tuple(values)
    stores: list[Item] = [item for n in range(400) for item in (I("LOAD_CONST", n), I("STORE_FAST", f"v{n}"))]
    assert run([*stores, I("LOAD_FAST", "v399"), I("RETURN")]) == 399


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("op", ["COPY", "SWAP", "ROTATE"])
def test_stack_moves(op: str, depth: int) -> None:
    expected = list(range(5))
    if op == "COPY":
        expected.append(expected[-depth])
    elif op == "SWAP":
        expected[-1], expected[-depth] = expected[-depth], expected[-1]
    else:
        expected.insert(5 - depth, expected.pop())
    loads: list[Item] = [I("LOAD_CONST", n) for n in range(5)]
    assert run([*loads, I(op, depth), I("BUILD", ("list", len(expected))), I("RETURN")]) == expected


@pytest.mark.parametrize(("cond", "value", "taken"), [
    ("true", 1, True), ("true", [], False), ("false", 0, True), ("false", "x", False),
    ("none", None, True), ("none", 0, False), ("not none", 0, True), ("not none", None, False),
])  # fmt: skip
@pytest.mark.parametrize("backward", [False, True])
def test_branches(cond: str, value: Any, taken: bool, backward: bool) -> None:
    there, begin = Label(), Label()
    found: list[Item] = [there, I("LOAD_CONST", "taken"), I("RETURN")]
    test: list[Item] = [begin, I("LOAD_CONST", value), I("BRANCH", (cond, there)), I("LOAD_CONST", "on"), I("RETURN")]
    items = [I("JUMP", begin), *found, *test] if backward else [*test, *found]
    assert run(items) == ("taken" if taken else "on")


@pytest.mark.parametrize(("cond", "value", "taken"), [("true", 3, True), ("true", 0, False), ("false", 0, True)])
def test_branch_keep(cond: str, value: Any, taken: bool) -> None:
    there = Label()
    items: list[Item] = [
        I("LOAD_CONST", value),
        I("BRANCH_KEEP", (cond, there)),
        I("LOAD_CONST", "on"),
        there,
        I("RETURN"),
    ]
    assert run(items) == (value if taken else "on")


def test_formatting() -> None:
    spec: list[Item] = [I("LOAD_CONST", ">5"), I("FORMAT", ("r", True))]
    items: list[Item] = [I("LOAD_CONST", "a"), *spec, I("LOAD_CONST", "b"), I("FORMAT", ("s", False))]
    items += [I("LOAD_CONST", 3), I("FORMAT", ("", False)), I("BUILD", ("string", 3)), I("RETURN")]
    assert run(items) == "  'a'b3"


def test_functions_with_every_part() -> None:
    def outer(cell: int) -> Callable[..., Any]:
        return lambda a, b=1, *, c=2: (a, b, c, cell)

    inner = outer(0).__code__
    items: list[Item] = [
        I("LOAD_CONST", (10,)), I("LOAD_CONST", "c"), I("LOAD_CONST", 20), I("BUILD", ("map", 1)), I("LOAD_CONST", ()),
        I("LOAD_CELL", "cell"), I("BUILD", ("tuple", 1)), I("LOAD_CONST", inner),
        I("MAKE_FUNCTION", ("defaults", "kwdefaults", "annotations", "closure")), I("RETURN"),
    ]  # fmt: skip
    made = FunctionType(assemble(items, outer.__code__), {})(30)
    assert made(1) == (1, 10, 20, 30)
    assert made.__qualname__.endswith("outer.<locals>.<lambda>" if versions.V311 else "")
    (read,) = [row for row in decode(outer.__code__).instructions if row.op == "MAKE_FUNCTION"]
    assert read.arg == ("defaults", "kwdefaults", "annotations", "closure")[:2] + read.arg[2:]


def test_calls_with_a_null() -> None:
    """Also where plain calls have none: the NULL of a method's slot does as well."""
    slots = [I("NULL"), I("LOAD_CONST", len)] if versions.NULL_FIRST else [I("LOAD_CONST", len), I("NULL")]
    assert run([*slots, I("LOAD_CONST", (1, 2)), I("CALL", (1, ())), I("RETURN")]) == 2


def test_calls_with_keywords() -> None:
    items = [*call_slots(I("LOAD_CONST", dict)), I("LOAD_CONST", 1), I("LOAD_CONST", 2), I(CALL, (2, ("x", "y")))]
    assert run([*items, I("RETURN")]) == {"x": 1, "y": 2}


def divide(extra: list[Item], ends: list[Item]) -> list[Item]:
    return [I("LOAD_CONST", 1), I("LOAD_FAST", "n"), *extra, I("BINARY", "//"), *ends]


needs_table = pytest.mark.skipif(not versions.EXCEPTION_TABLE, reason="handlers find six values here")


@needs_table
@pytest.mark.parametrize("depth", [None, 1])
def test_regions(depth: int | None) -> None:
    handler = Label()
    start = RegionStart(handler, depth=depth)
    items: list[Item] = [I("LOAD_CONST", "kept"), start, *divide([], []), RegionEnd(start), I("BUILD", ("tuple", 2))]
    items += [I("RETURN"), handler, I("BUILD", ("list", 2)), I("RETURN")]
    assert run(items, 2, argnames=["n"]) == ("kept", 0)
    kept, error = run(items, 0, argnames=["n"])
    assert kept == "kept"
    assert type(error) is ZeroDivisionError


@needs_table
def test_regions_nest() -> None:
    outer, inner = RegionStart(Label()), RegionStart(Label())
    items: list[Item] = [outer, *divide([], [I("POP")]), inner, *divide([], [I("POP")]), RegionEnd(inner)]
    items += [I("LOAD_FAST", "n"), I("LOAD_CONST", "x"), I("BINARY", "+"), RegionEnd(outer), I("RETURN")]
    items += [outer.handler, I("POP"), I("LOAD_CONST", "outer"), I("RETURN")]
    items += [inner.handler, I("POP"), I("LOAD_CONST", "inner"), I("RETURN")]
    assert run(items, 1, argnames=["n"]) == "outer"  # of the addition, behind the inner region
    assert run(items, 0, argnames=["n"]) == "outer"
    code = assemble(
        items, run.__code__, argnames=["n"], kwonlyargcount=0, flags=3, varnames=[], cellvars=[], freevars=[]
    )
    handlers = [decode(code).lookup(index) for index in range(len(decode(code).instructions))]
    assert [region and region.handler for region in handlers] == [12] * 4 + [15] * 4 + [12] * 3 + [None] * 7
    with pytest.raises(ValueError, match="does not end"):
        run([outer, I("NOP"), inner, I("NOP"), RegionEnd(outer), outer.handler, inner.handler, I("RETURN")])


@needs_table
def test_a_region_around_nothing_is_nothing() -> None:
    start = RegionStart(Label())
    code = assemble(
        [start, RegionEnd(start), I("LOAD_CONST", 1), I("RETURN"), start.handler, I("RETURN")], run.__code__
    )
    assert decode(code).regions == []


def test_a_loop_may_be_left_by_any_way() -> None:
    """What FOR_ITER jumps to is stepped over by those who fall or jump to the same label."""
    again, end = Label(), Label()
    items: list[Item] = [I("LOAD_CONST", "below"), I("LOAD_FAST", "xs"), I("GET_ITER"), again, I("FOR_ITER", end)]
    items += [I("STORE_FAST", "x"), I("LOAD_FAST", "x"), I("BRANCH", ("true", again)), I("POP"), I("LOAD_CONST", 1)]
    items += [I("POP"), end, I("RETURN")]
    assert run(items, [1, 0, 2], argnames=["xs"]) == "below"
    assert run(items, [1, 2], argnames=["xs"]) == "below"
    assert run(items, [], argnames=["xs"]) == "below"


def test_a_local_that_may_be_unset_is_looked_at() -> None:
    skip = Label()
    items: list[Item] = [
        I("LOAD_FAST", "n"),
        I("BRANCH", ("false", skip)),
        I("LOAD_CONST", 1),
        I("STORE_FAST", "x"),
        skip,
    ]
    items += [I("LOAD_FAST", "x"), I("RETURN")]
    assert run(items, 1, argnames=["n"]) == 1
    with pytest.raises(UnboundLocalError):
        run(items, 0, argnames=["n"])


def test_synthetic_instructions_are_on_the_line_before() -> None:
    position = versions.Positions(50, 50, 1, 2)
    code = assemble([I("LOAD_CONST", 1, position), I("POP"), I("LOAD_CONST", 2), I("RETURN")], run.__code__)
    assert {line for _, line in dis.findlinestarts(code)} - {run.__code__.co_firstlineno} <= {50, None}


def test_code_that_would_crash_is_refused() -> None:
    here = Label()
    for items in ([I("POP"), I("RETURN")], [here, I("LOAD_CONST", 1), I("JUMP", here)]):
        if versions.EFFECTS_EXACT or items[0] is not here:
            with pytest.raises(DepthError):
                run(list(items))
    with pytest.raises(ValueError, match="cannot be said"):
        run([I("NO_SUCH_THING"), I("RETURN")])
    with pytest.raises(ValueError, match="cell and free"):
        run([I("LOAD_CONST", 1), I("RETURN")], cellvars=["x"], freevars=["x"])


def test_find() -> None:
    items = decode(model.__code__).items()
    offset = decode(model.__code__).instructions[3].offset
    found = items[find(items, offset)]
    assert isinstance(found, I)
    assert found.offset == offset
    with pytest.raises(ValueError, match="no instruction"):
        find(items, 10**6)


def test_resumed_in_the_middle() -> None:
    """A continuation: the same stream, entered by a jump, with the stack put back."""

    def work(n: int) -> list[Any]:
        out = []
        with contextlib.suppress(ValueError):
            for i in range(n):
                out.append(str(i))
        return out

    code = decode(work.__code__)
    items = code.items()
    at = next(index for index, row in enumerate(code.instructions) if row.op == "STORE_FAST" and row.arg == "i")
    if not versions.EXCEPTION_TABLE:
        return  # there, the block stack would have to be put back too
    entry = Label()
    items.insert(items.index(code.instructions[at]), entry)
    manager = contextlib.suppress(ValueError)
    prologue: list[Item] = [I("LOAD_FAST", name) for name in ("leave", "iterator", "value")]
    if versions.EXIT_SLOTS == 2:
        prologue.insert(1, I("NULL"))  # of a bound method
    made = assemble(
        [*prologue, I("JUMP", entry), *items], work.__code__, argnames=["leave", "iterator", "value", "out"]
    )
    resumed = FunctionType(made, globals())
    assert resumed(manager.__exit__, iter([8, 9]), 7, ["6"]) == ["6", "7", "8", "9"]

    class Bad:
        def __str__(self) -> str:
            raise ValueError

    assert resumed(manager.__exit__, iter([8]), Bad(), ["6"]) == ["6"]


def test_a_null_beside_a_callable_is_read_back_as_one() -> None:
    callee = [I("NULL"), I("LOAD_FAST", "f")] if versions.NULL_FIRST else [I("LOAD_FAST", "f"), I("NULL")]
    items: list[Item] = [*callee, I("LOAD_CONST", 3), I("CALL", (1, ())), I("RETURN")]
    code = assemble(items, model.__code__, argnames=["f"], argcount=1, posonlyargcount=0, kwonlyargcount=0, flags=3)
    read = [instruction.op for instruction in decode(code).instructions]
    assert read == [instruction.op for instruction in items if isinstance(instruction, I)]
    assert FunctionType(code, {})(lambda x: x + 1) == 4
