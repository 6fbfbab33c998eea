"""NumPy between torch's operators: each program as eager, to the bit, with its aliases, writes, errors and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy_programs import PROGRAMS, NumpyProgram

import torchdynamo
from torchdynamo.errors import Unsupported


def facts(value: Any) -> Any:
    """Return what a result is, to the bit: types, layout in memory, contents."""
    if isinstance(value, dict):
        return {key: facts(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [facts(each) for each in value]
    if isinstance(value, torch.Tensor):
        held = value.detach().contiguous().numpy().tobytes()
        return value.dtype, tuple(value.shape), value.stride(), value.requires_grad, held
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.strides, value.flags.writeable, value.tobytes()
    return type(value), repr(value)


def memories(value: Any) -> list[Any]:
    """Return the arrays and tensors in a value, as arrays."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [each for one in value for each in memories(one)]
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy()]
    return [value] if isinstance(value, np.ndarray) else []


def seen(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call it; return all that can be seen of that."""
    np.random.seed(5)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = fn(*args)
        except Unsupported:
            raise
        except Exception as error:
            result = type(error), str(error)
    arrays = memories(result) + memories(args)
    shared = [bool(np.shares_memory(one, other)) for at, one in enumerate(arrays) for other in arrays[:at]]
    texts = {(str(each.message), each.filename, each.lineno) for each in warned}
    return facts(result), facts(args), shared, texts


def arguments(program: NumpyProgram, seed: int) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    return program.args()


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    program = PROGRAMS[name]
    torchdynamo.reset()
    compiled = torchdynamo.compile(program.fn, backend="eager")
    for seed in range(3):
        assert seen(compiled, arguments(program, seed)) == seen(program.fn, arguments(program, seed))


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph(name: str) -> None:
    program = PROGRAMS[name]
    torchdynamo.reset()
    compiled = torchdynamo.compile(program.fn, backend="aot_eager", fullgraph=True)
    if not program.whole:
        with pytest.raises(Unsupported):
            seen(compiled, arguments(program, 0))
        return
    for seed in range(2):
        assert seen(compiled, arguments(program, seed)) == seen(program.fn, arguments(program, seed))


def test_torchs_pieces_are_compiled() -> None:
    """NumPy's nodes run as they are, and a backend gets what lies between, with its gradients."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ w) + 1
        order = np.sort(y.detach().numpy(), axis=1)
        return (y * torch.from_numpy(order).sin()).sum()

    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    pieces = []
    compiled = torchdynamo.compile(program, backend=lambda gm, _: pieces.append(gm) or gm.forward)
    for _ in range(2):
        mine, theirs = compiled(x, w), program(x, w)
        assert torch.equal(mine, theirs)
        assert torch.equal(*(torch.autograd.grad(each, w)[0] for each in (mine, theirs)))
    assert len(pieces) == 2
    explained = torchdynamo.explain(program, backend="eager")(x, w)
    assert explained.graph_count == 1
    assert explained.numpy == [f"graph 0: run by NumPy: numpy.sort, {__file__}:{program.__code__.co_firstlineno + 2}"]


def test_errors_leave_at_their_line() -> None:
    """An error of NumPy's has the traceback that it has in eager, and happens once."""
    log = []

    def program(x: torch.Tensor) -> torch.Tensor:
        log.append(x.shape)
        y = x * 2
        inverse = np.linalg.inv(y.numpy())
        return torch.from_numpy(inverse)

    def lines(fn: Any) -> list[Any]:
        with pytest.raises(np.linalg.LinAlgError) as raised:
            fn(torch.zeros(2, 2))
        return [(each.name, each.lineno) for each in raised.traceback][1:]

    compiled = torchdynamo.compile(program, backend="aot_eager")
    assert torch.equal(compiled(torch.eye(2)), program(torch.eye(2)))
    assert lines(compiled) == lines(program)
    assert len(log) == 4


def test_errors_that_the_frame_catches() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.from_numpy(np.linalg.inv(x.numpy()))
        except np.linalg.LinAlgError:
            return x + 1

    compiled = torchdynamo.compile(program, backend="eager")
    for x in (torch.eye(2), torch.zeros(2, 2), torch.eye(2) * 2):
        assert torch.equal(compiled(x), program(x))


def test_warnings_come_in_their_order() -> None:
    """Warnings of Python's wait until the graph has run, and NumPy's do not."""

    def program(x: torch.Tensor) -> Any:
        warnings.warn("first", stacklevel=1)
        y = x.numpy() / 0
        warnings.warn("second", stacklevel=1)
        return y

    compiled, found = torchdynamo.compile(program, backend="eager"), []
    for fn in (program, compiled, compiled):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            fn(torch.ones(1))
        found.append([str(each.message) for each in warned])
    assert found[0] == found[1] == found[2] == ["first", "divide by zero encountered in divide", "second"]


def test_errors_show_the_one_that_was_handled() -> None:
    def program(x: torch.Tensor) -> Any:
        return np.linalg.inv(x.numpy())

    for fn in (program, torchdynamo.compile(program, backend="eager")):
        with pytest.raises(np.linalg.LinAlgError) as raised:
            try:
                raise KeyError("outer")
            except KeyError:
                fn(torch.zeros(2, 2))
        assert not raised.value.__suppress_context__
        assert isinstance(raised.value.__context__, KeyError)
