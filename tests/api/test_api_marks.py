"""What a user can say about single functions, and where capture finds it."""

from __future__ import annotations

import gc

import pytest
import torch

import torchdynamo
from torchdynamo.core import marks


class Equal:
    """Equal to everything, and not hashable."""

    def __eq__(self, other: object) -> bool:
        return True

    def __call__(self) -> None: ...


def test_marks_go_by_identity() -> None:
    one, other = Equal(), Equal()
    assert torchdynamo.allow_in_graph(one) is one
    assert one in marks.ALLOWED
    assert other not in marks.ALLOWED


def test_the_last_word_on_graphs_counts() -> None:
    def fn() -> None: ...

    torchdynamo.allow_in_graph(fn)
    torchdynamo.disallow_in_graph(fn)
    assert fn in marks.DISALLOWED
    assert fn not in marks.ALLOWED


def test_marks_do_not_keep_functions_alive() -> None:
    def fn() -> None: ...

    before = len(marks.CONSTANT)
    torchdynamo.assume_constant_result(fn)
    assert list(marks.CONSTANT)[-1] is fn
    del fn
    gc.collect()
    assert len(marks.CONSTANT) == before


def test_c_functions_and_method_descriptors_can_be_marked() -> None:
    functions = [torch.sin, torch.Tensor.add_]
    try:
        assert torchdynamo.disallow_in_graph(functions) is functions
        assert all(fn in marks.DISALLOWED for fn in functions)
    finally:
        for fn in functions:
            marks.DISALLOWED.discard(fn)
    assert torch.Tensor.add_ not in marks.DISALLOWED


def test_what_cannot_be_marked() -> None:
    with pytest.raises(TypeError, match="expected a function, got 3"):
        torchdynamo.allow_in_graph(3)
    with pytest.raises(TypeError, match="made anew by every look-up"):
        torchdynamo.allow_in_graph(torch.nn.Linear(1, 1).forward)
    with pytest.raises(TypeError, match="skip takes a Python function"):
        torchdynamo.skip(len)


def test_skip_marks_the_code() -> None:
    @torchdynamo.skip
    def fn(x: int) -> int:
        return x

    @torchdynamo.disable(recursive=False)
    def other(x: int) -> int:
        return x

    assert fn.__code__ in marks.SKIPPED
    assert other.__code__ in marks.SKIPPED
    assert (fn(1), other(2)) == (1, 2)


def test_outside_of_a_capture_nothing_is_compiling() -> None:
    assert torchdynamo.is_compiling() is False
    assert torchdynamo.graph_break() is None
