"""Warnings and log records from a captured frame: the same, in the same order, from the same lines as in eager."""

# Warnings without a stacklevel are some of what is tested.
# ruff: noqa: B028

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)
LOG = logging.getLogger("torchdynamo.tests.messages")
LOG.propagate = False
RECORDS: list[Any] = []


class Kept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        RECORDS.append((record.getMessage(), record.levelname, record.lineno, record.funcName, record.filename))


LOG.addHandler(Kept())


def helper() -> None:
    warnings.warn("from the caller's line", stacklevel=2)
    warnings.warn("of the one above", DeprecationWarning, stacklevel=3)
    LOG.info("in helper %d", 3)


def warns(x: Any) -> Any:
    warnings.warn("one")
    y = x + 1
    warnings.warn(RuntimeWarning("two"))
    helper()
    warnings.warn("above", stacklevel=2)
    return y * 2


def logs(x: Any) -> Any:
    LOG.debug("no %s", 1)
    LOG.info("yes")
    LOG.warning("%s %s", 1, "a")
    logging.getLogger("torchdynamo.tests.messages").error("e")
    return x + 1


def breaks(x: Any) -> Any:
    y = x + 1
    warnings.warn("before")
    torchdynamo.graph_break()
    warnings.warn("after", stacklevel=2)
    LOG.info("the rest")
    return y


def catches(x: Any) -> Any:
    try:
        warnings.warn("bad")
    except UserWarning as error:
        return x + len(str(error))
    return x


def softmaxes(x: Any) -> Any:
    by_rows = functional.log_softmax(x.view(2, 2), dtype=torch.float64)
    return functional.softmax(x) + functional.softmin(x, None, 3) + by_rows.view(4) + functional.softmax(x, -1)


class Warns(torch.nn.Module):
    def __init__(self, level: int, inner: Any = None) -> None:
        super().__init__()
        self.level, self.inner = level, inner

    def forward(self, x: Any) -> Any:
        warnings.warn(f"{self.level} up", stacklevel=self.level)
        return x + 1 if self.inner is None else self.inner(x)


WARNING = [Warns(1), Warns(2, Warns(3)), Warns(4), Warns(3, Warns(5)), torch.nn.Softmax(), torch.nn.LogSoftmax()]


def calls_modules(x: Any) -> Any:
    for each in WARNING:
        x = each(x)
    return x


def seen(fn: Any, action: Any) -> Any:
    """What a call of `fn` gives and says."""
    globals().pop("__warningregistry__", None)
    RECORDS.clear()
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter(action)
        result = fn(X)
    given = [(str(each.message), each.category, each.filename, each.lineno) for each in got]
    return given, list(RECORDS), result.tolist()


@pytest.mark.parametrize("action", ["always", "ignore", "default", "error"])
@pytest.mark.parametrize("fn", [warns, logs, breaks, catches, softmaxes, calls_modules])
def test_messages(fn: Any, action: str) -> None:
    if action == "error" and fn in (warns, breaks, softmaxes, calls_modules):
        pytest.skip("raises")
    torchdynamo.reset()
    LOG.setLevel(logging.INFO)
    wanted = seen(fn, action)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=fn is not breaks)
    for _ in range(2):
        assert seen(compiled, action) == wanted
    assert len(_native.cache_entries(fn.__code__)) == 1


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_a_module_in_one_that_is_compiled(level: int) -> None:
    module = Warns(1, Warns(level))
    compiled = torchdynamo.compile(module, backend="eager", fullgraph=True)
    for _ in range(2):
        assert seen(lambda x: compiled(x), "always") == seen(lambda x: module(x), "always")


def test_filters_and_levels_that_change() -> None:
    compiled = torchdynamo.compile(catches, backend="eager", fullgraph=True)
    for action in ("always", "error", "ignore", "always"):
        assert seen(compiled, action) == seen(catches, action)
    compiled = torchdynamo.compile(logs, backend="eager", fullgraph=True)
    for level in (logging.INFO, logging.DEBUG, logging.ERROR, logging.CRITICAL):
        LOG.setLevel(level)
        assert seen(compiled, "always") == seen(logs, "always")


# What Python's `warn` takes since 3.12: files whose frames do not count as callers.
SKIPS = [{"skip_file_prefixes": each} for each in ((), ("/nowhere",), (__file__,))]
SKIPS = SKIPS if "skip_file_prefixes" in (warnings.warn.__text_signature__ or "") else [{}]


def skips(skip: dict[str, Any]) -> Any:
    def inside() -> None:
        warnings.warn("of whoever calls", **skip)
        warnings.warn("of the one above", stacklevel=3, **skip)

    def outer(x: Any) -> Any:
        def between() -> None:
            inside()

        between()
        return x + 1

    return outer


@pytest.mark.parametrize("skip", SKIPS, ids=str)
def test_files_that_are_skipped(skip: dict[str, Any]) -> None:
    outer = skips(skip)
    compiled = torchdynamo.compile(outer, backend="eager", fullgraph=__file__ not in skip.get("skip_file_prefixes", ()))
    for _ in range(2):
        assert seen(compiled, "always") == seen(outer, "always")
