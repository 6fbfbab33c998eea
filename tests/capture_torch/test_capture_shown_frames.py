"""After a break the rest of a function has a frame of its own; whoever looks at the stack finds one, as in eager."""

from __future__ import annotations

import sys
import traceback
import types
import warnings
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.bytecode import versions

pytestmark = pytest.mark.skipif(not versions.ONE_FRAME_SHOWN, reason="both are shown there")


def stack() -> list[tuple[str, int]]:
    """Names and lines of the calls between a test and the caller."""
    frame, found = sys._getframe(1), []
    while frame.f_code is not run.__code__:
        found.append((frame.f_code.co_name, frame.f_lineno))
        assert frame.f_back is not None
        frame = frame.f_back
    return found


def once(x: torch.Tensor) -> Any:
    y = x + 1
    before = stack()
    if y.sum() > 0:
        y = y * 2
    return before, stack()


def in_calls(x: torch.Tensor) -> Any:
    return once(x * 2), stack(), once(x * 3)


def raises(x: torch.Tensor) -> Any:
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    stack()
    return {}[float(y.sum())]


def raises_in_calls(x: torch.Tensor) -> Any:
    stack()
    return raises(x + 1) + 1


def raises_again(x: torch.Tensor) -> Any:
    try:
        raises(x * 2)
    except KeyError as error:
        if x.sum() > 0:
            raise ValueError from error
    finally:
        stack()
    return x


def leaves_a_block(x: torch.Tensor) -> Any:
    with torch.no_grad():
        if x.sum() > 0:
            1 / 0


def catches(x: torch.Tensor) -> Any:
    y = x + 1
    try:
        stack()
        raises(y)
    except KeyError as error:
        return shown(error)


def warns(x: torch.Tensor) -> Any:
    if x.sum() > 0:
        x = x + 1
    stack()
    warnings.warn("of the caller", stacklevel=2)
    return x.sum().item()


def warned(x: torch.Tensor) -> Any:
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        warns(x)
    return [(each.filename, each.lineno) for each in log]


def shown(error: BaseException | None) -> Any:
    """What can be seen of an exception: the lines it came by, and where the frames are now."""
    if error is None:
        return None
    steps = [(frame.f_code.co_name, line, frame.f_lineno) for frame, line in traceback.walk_tb(error.__traceback__)]
    # From 3.12 on a frame that a traceback had before a break stays on the line of the break.
    return type(error), [step[: 3 if sys.version_info < (3, 12) else 2] for step in steps], shown(error.__cause__)


def run(fn: Any, x: torch.Tensor) -> Any:
    try:
        return fn(x)
    except Exception as error:
        step = error.__traceback__
        assert step is not None
        return shown(error.with_traceback(step.tb_next))


FUNCTIONS = (once, in_calls, raises, raises_in_calls, raises_again, leaves_a_block, catches, warned)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_frames(fn: types.FunctionType) -> None:
    wanted = run(fn, torch.ones(3))
    compiled = torchdynamo.optimize("eager")(fn)
    for _ in range(2):
        assert run(compiled, torch.ones(3)) == wanted
