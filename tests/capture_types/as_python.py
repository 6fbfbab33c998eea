"""Functions without tensors, held against Python: what they give, or which error with what text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torchdynamo
from torchdynamo import config
from torchdynamo.errors import FallbackWarning


def attempt(fn: Callable[..., Any], *args: Any) -> Any:
    """The result, or which error with what text."""
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def assert_as_python(fn: Callable[[], Any]) -> None:
    """The function is compiled and called, twice, and never given up."""
    wanted = repr(fn())
    compiled = torchdynamo.compile(fn, backend="eager")
    with config.patch(capture_everything=True), warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert [repr(compiled()) for _ in range(2)] == [wanted, wanted]
