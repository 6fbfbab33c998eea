"""Members that lie are found out before a result of theirs is handed out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from backends.ensemble.competing import compiled, member, reasons, states

from torchdynamo.backends.ensemble.member import Run

Compete = Callable[..., None]
X = torch.linspace(-2, 2, 24).reshape(4, 6)


def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.relu(x) * 2, x.t().contiguous().t() + 1


def changing(change: Callable[[list[Any]], list[Any]]) -> Callable[[Run], Run]:
    """Change the results of a run, which are a list of tensors."""
    return lambda run: lambda *args: tuple(change(list(run(*args))))


def one_buffer(run: Run) -> Run:
    """Return results in buffers that the next call overwrites."""
    kept: list[torch.Tensor] = []

    def again(*args: Any) -> Any:
        results = run(*args)
        if not kept:
            kept.extend(torch.empty_strided(each.shape, each.stride()) for each in results)
        for buffer, result in zip(kept, results):
            buffer.copy_(result)
        return tuple(kept)

    return again


LIES: dict[str, tuple[Callable[[Run], Run], str]] = {
    "wrong numbers": (changing(lambda r: [r[0] + 1e-3, r[1]]), "error against float64"),
    "wrong in one place": (changing(lambda r: [r[0], r[1].index_fill(0, torch.tensor([3]), 0.0)]), "float64"),
    "another dtype": (changing(lambda r: [r[0].double(), r[1]]), "dtype torch.float64"),
    "another shape": (changing(lambda r: [r[0].flatten(), r[1]]), "shape"),
    "other strides": (changing(lambda r: [r[0], r[1].contiguous()]), r"strides \(6, 1\)"),
    "one result more": (changing(lambda r: [*r, r[0]]), "3 values, and eager 2"),
    "results that share memory": (changing(lambda r: [r[0], r[0]]), "share memory"),
    "no tensor": (changing(lambda r: [1.0, r[1]]), "a float where eager gives a Tensor"),
    "a gradient": (changing(lambda r: [r[0].requires_grad_(), r[1]]), "requires_grad"),
    "one buffer": (one_buffer, "used again"),
    "NaN made zero": (
        lambda run: lambda x: run(torch.nan_to_num(x, 0.0, float("inf"), float("-inf"))),
        "NaN elsewhere",
    ),
    "infinity made large": (lambda run: lambda x: run(x.clamp(-3e38, 3e38)), "infinities elsewhere"),
}


@pytest.mark.parametrize("lie", LIES)
def test_liar_is_rejected_with_the_reason(lie: str, compete: Compete) -> None:
    wrap, text = LIES[lie]
    compete(member("liar", wrap))
    fn = compiled(program, tune="now")
    for _ in range(3):
        for found, wanted in zip(fn(X), program(X)):
            assert torch.equal(found, wanted) and found.stride() == wanted.stride()
    assert states() == {"liar": "rejected"}
    assert re.search(text, reasons()["liar"]), reasons()


def test_input_returned_as_a_result_is_rejected(compete: Compete) -> None:
    compete(member("alias", lambda run: lambda x: (x,)))
    compiled(lambda x: x * 1, tune="now")(X)
    assert states() == {"alias": "rejected"} and "share memory" in reasons()["alias"]


def test_view_that_eager_returns_may_be_returned(compete: Compete) -> None:
    compete(member("same", lambda run: run), member("copy", lambda run: lambda x: tuple(r.clone() for r in run(x))))
    compiled(lambda x: x[1:], tune="now")(X)
    assert states() == {"same": "built", "copy": "rejected"}


def test_nan_may_be_given_up(compete: Compete) -> None:
    wrap, _ = LIES["NaN made zero"]
    compete(member("liar", wrap))
    compiled(program, tune="now", nan_exact=False)(X)
    assert states() == {"liar": "built"}


def clamping(run: Run) -> Run:
    """Answer indices out of range as some runtimes do: by another row."""
    return lambda x, i: run(x, i.clamp(0, x.shape[0] - 1))


def test_index_out_of_range_must_raise(compete: Compete) -> None:
    compete(member("clamping", clamping), member("same", lambda run: run))
    fn = compiled(lambda x, i: F.embedding(i, x), tune="now")
    fn(X, torch.tensor([0, 3]))
    assert states() == {"clamping": "rejected", "same": "built"}
    assert "eager raises IndexError" in reasons()["clamping"]


def test_integer_division_by_zero_must_raise(compete: Compete) -> None:
    compete(member("zero", lambda run: lambda x, i: run(x, i.clamp(min=1))))
    fn = compiled(lambda x, i: x // i, tune="now")
    fn(torch.tensor([7, 8]), torch.tensor([2, 4]))
    assert states() == {"zero": "rejected"}


def test_error_is_measured_against_float64(compete: Compete) -> None:
    compete(member("double", lambda run: lambda x, y: (torch.mm(x.double(), y.double()).float(),)))
    x = torch.randn(32, 512)
    compiled(lambda x, y: x @ y, tune="now")(x, x.t().contiguous())
    assert states() == {"double": "built"}


def test_half_precision_has_its_tolerance(compete: Compete) -> None:
    compete(member("float", lambda run: lambda x: (torch.softmax(x.float(), 1).bfloat16(),)))
    compiled(lambda x: torch.softmax(x, 1), tune="now")(X.bfloat16())
    assert states() == {"float": "built"}


def test_denormals_made_zero_are_no_error_of_note_but_a_result_of_them_is_right(compete: Compete) -> None:
    compete(member("flushing", lambda run: lambda x: run(torch.where(x.abs() < 1e-38, 0.0, x))))
    fn = compiled(lambda x: x * 2, tune="now")
    x = torch.full((4,), 1e-42)
    assert torch.equal(fn(x), x * 2)


def test_graph_that_eager_cannot_run_again_is_eagers(compete: Compete) -> None:
    compete(member("same", lambda run: run))
    fn = compiled(lambda x, i: x[i], tune="now")
    with pytest.raises(IndexError):
        fn(X, torch.tensor([77]))
