"""What may vary in an exported program, and what it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

import torchdynamo
from torchdynamo import exc

THIS = Path(__file__).name


def ranges(program: torch.export.ExportedProgram) -> list[tuple[str, str]]:
    return [(str(each.lower), str(each.upper)) for each in program.range_constraints.values()]


def double(x: torch.Tensor) -> torch.Tensor:
    return x * x.shape[0]


def test_without_a_word_all_sizes_are_constant() -> None:
    module = torchdynamo.export(double, torch.ones(5)).module()
    with pytest.raises(AssertionError, match=r"x\.size\(\)\[0\] == 5"):
        module(torch.ones(6))


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: Dim("n")}},
        {"x": {0: Dim.DYNAMIC}},
        {"x": {0: Dim.AUTO}},
        {"x": (Dim("n"),)},
        ({0: Dim("n")},),
    ],
)
def test_dimensions_vary_as_said(shapes: Any) -> None:
    module = torchdynamo.export(double, torch.ones(5), dynamic_shapes=shapes).module()
    for size in (0, 1, 2, 9):
        assert torch.equal(module(torch.ones(size)), double(torch.ones(size)))


def test_marks_count_where_nothing_is_said_and_are_left_as_they_were() -> None:
    x = torch.ones(5)
    torchdynamo.mark_dynamic(x, 0, min=3, max=8)
    before = dict(x.__dict__)
    program = torchdynamo.export(double, x)
    assert x.__dict__ == before
    assert ranges(program) == [("3", "8")]
    with pytest.raises(AssertionError, match=r"x\.size\(\)\[0\] <= 8"):
        program.module()(torch.ones(9))


def test_bounds_of_a_dim() -> None:
    program = torchdynamo.export(double, torch.ones(5), dynamic_shapes={"x": {0: Dim("n", min=4, max=16)}})
    assert ranges(program) == [("4", "16")]


def test_sizes_that_depend_on_each_other() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y[1:]

    n = Dim("n")
    program = torchdynamo.export(add, torch.ones(4), torch.ones(5), dynamic_shapes={"x": {0: n}, "y": {0: n + 1}})
    assert program.module()(torch.ones(7), torch.ones(8)).shape == (7,)
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(7), torch.ones(9))


def test_nested_and_variable_arguments() -> None:
    def fn(batch: dict[str, torch.Tensor], *rest: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return batch["a"].sum() + rest[1] + more["z"]

    shapes = {"batch": {"a": {0: Dim.DYNAMIC}}, "rest": (None, {0: Dim.DYNAMIC}), "more": {"z": {0: Dim.DYNAMIC}}}
    args = ({"a": torch.ones(2), "b": torch.ones(3)}, torch.ones(2), torch.ones(4))
    program = torchdynamo.export(fn, *args, kwargs={"z": torch.ones(4)}, dynamic_shapes=shapes)
    batch = {"a": torch.ones(8), "b": torch.ones(3)}
    given = (batch, torch.ones(2), torch.ones(6))
    assert torch.equal(program.module()(*given, z=torch.ones(6)), fn(*given, z=torch.ones(6)))


def test_collections_of_shapes() -> None:
    x = torch.ones(5)
    shapes = torch.export.ShapesCollection()
    shapes[x] = {0: Dim("n")}
    assert torchdynamo.export(double, x, dynamic_shapes=shapes).module()(torch.ones(3)).shape == (3,)


def test_integers_vary_as_said() -> None:
    def fn(x: torch.Tensor, n: int, more: dict[str, int]) -> torch.Tensor:
        return x * n + more["m"]

    shapes = {"n": Dim.DYNAMIC, "more": {"m": Dim.DYNAMIC}}
    program = torchdynamo.export(fn, torch.ones(2), 3, {"m": 4}, dynamic_shapes=shapes)
    assert torch.equal(program.module()(torch.ones(2), 7, {"m": 9}), torch.full((2,), 16.0))
    constant = torchdynamo.export(fn, torch.ones(2), 3, {"m": 4}).module()
    with pytest.raises(AssertionError, match="n == 3"):
        constant(torch.ones(2), 7, {"m": 4})


# -- what is violated --------------------------------------------------------------------------------------------------
def constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(5)


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 3:
        return x + 1
    return x


@pytest.mark.parametrize("said", [Dim("n"), Dim.DYNAMIC, Dim("n", min=1, max=9)])
def test_a_constant_names_what_was_said_and_the_line(said: Any) -> None:
    with pytest.raises(exc.ConstraintViolationError, match=r"x\.size\(0\).*makes a constant of it \(5\)") as caught:
        torchdynamo.export(constant, torch.ones(5), dynamic_shapes={"x": {0: said}})
    assert f"{THIS}:{constant.__code__.co_firstlineno + 1}" in str(caught.value)


def test_a_bound_names_the_line_that_made_it() -> None:
    for said in (Dim("n", min=2), Dim("n")):
        with pytest.raises(exc.ConstraintViolationError) as caught:
            torchdynamo.export(branches, torch.ones(5), dynamic_shapes={"x": {0: said}})
        assert "if x.shape[0] > 3:" in str(caught.value)
        assert f"{THIS}:{branches.__code__.co_firstlineno + 1}" in str(caught.value)
    assert ranges(torchdynamo.export(branches, torch.ones(5), dynamic_shapes={"x": {0: Dim("n", min=4)}})) == [
        ("4", "int_oo")
    ]


def test_what_torch_may_choose_is_chosen() -> None:
    module = torchdynamo.export(constant, torch.ones(5), dynamic_shapes={"x": {0: Dim.AUTO}}).module()
    assert torch.equal(module(torch.ones(5)), constant(torch.ones(5)))


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"y": {0: Dim("n")}}, "names y; the arguments are x"),
        ((None, None), "speaks of 2 arguments, and the call has 1"),
        ({"x": {1: Dim("n")}}, "dimension 1 of a tensor that has 1"),
    ],
)
def test_shapes_that_do_not_fit_the_call(shapes: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        torchdynamo.export(double, torch.ones(5), dynamic_shapes=shapes)


def test_sizes_0_and_1_are_checked_where_they_were_ruled_out() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0) if x.shape[0] > 1 else x

    for said, failed in (({0: Dim("n", min=2)}, ">= 2"), ({0: Dim.DYNAMIC}, "> 1")):
        module = torchdynamo.export(fn, torch.ones(5, 2), dynamic_shapes={"x": said}).module()
        assert torch.equal(module(torch.ones(3, 2)), torch.zeros(3, 2))
        with pytest.raises(AssertionError, match=rf"Guard failed: x\.size\S* {failed}"):
            module(torch.ones(1, 2))


def test_strides_are_free_where_the_program_does_not_ask() -> None:
    module = torchdynamo.export(lambda x: x.sin(), torch.ones(5, 2), dynamic_shapes={"x": {0: Dim.DYNAMIC}}).module()
    x = torch.rand(2, 7).t()
    assert torch.equal(module(x), x.sin())


# -- conditions --------------------------------------------------------------------------------------------------------
def test_conditions_are_readable_and_tell_their_lines() -> None:
    def fn(x: torch.Tensor, mode: str) -> torch.Tensor:
        if mode == "twice":
            x = x * 2
        return x + 1 if x.shape[0] > 3 else x

    x = torch.ones(5, 2)
    torchdynamo.mark_dynamic(x, 0)
    _, guards = torchdynamo.export(fn)(x, "twice")
    line = f"{__file__}:{fn.__code__.co_firstlineno + 3}"
    told = {each.text: each for each in guards}
    assert str(told["x.size(0) > 3"]) == f"x.size(0) > 3  ({line})"
    for text in ("x.dtype == torch.float32", "x.dim() == 2", "x.size(1) == 2", "mode == 'twice'"):
        assert told[text].checked
    assert not told["x.device == 'cpu'"].checked
    program = torchdynamo.export(fn, x, "twice")
    for given, failed in (
        ((torch.ones(5, 3), "twice"), r"x\.size\(\)\[1\] == 2"),
        ((torch.ones(5, 2), "once"), "mode == 'twice'"),
        ((torch.ones(5, 2, dtype=torch.float64), "twice"), r"str\(x\.dtype\) == 'torch\.float32'"),
        ((torch.ones(3, 2), "twice"), r"x\.size\(\)\[0\] >= 4"),
    ):
        with pytest.raises(AssertionError, match=f"Guard failed: {failed}"):
            program.module()(*given)
