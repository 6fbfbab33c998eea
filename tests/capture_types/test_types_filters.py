"""`warnings.catch_warnings` in a captured frame: shown, recorded and raised is what eager does."""

# Warnings without a stacklevel are some of what is tested.
# ruff: noqa: B028

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)


def ignores(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("unheard")
        y = x + 1
    warnings.warn("heard")
    return y


def picks(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="a.*", category=UserWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.warn("abc")
        warnings.warn("bc")
        warnings.warn("old", DeprecationWarning)
        warnings.warn("cd", RuntimeWarning)
    return x * 2


def records(x):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn("one")
        warnings.warn("two", DeprecationWarning)
    return x + len(log), [(str(each.message), each.category, each.lineno) for each in log]


def records_once_in_a_place(x):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("one")
        warnings.warn("one")
        first = len(log)
        warnings.simplefilter("always")
        warnings.warn("one")
    return x + 1, first, len(log)


def makes_errors(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("bad")
        except UserWarning as error:
            text = str(error)
    return x + 1, text


def nested(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            warnings.warn("inside")
        warnings.warn("between")
    warnings.warn("after")
    return x - 1, len(log)


def shows_itself(x):
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *rest: said.append((str(message), category))
        warnings.warn("mine")
    return x + 1, said


def operators_while_recording(x):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        y = x + 1
        warnings.warn("one")
    return y, [str(each.message) for each in log]


def breaks_inside(x):
    y = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("unheard")
        torchdynamo.graph_break()
        warnings.warn("nor this")
        z = y * 2
    warnings.warn("heard")
    return z


WHOLE = [ignores, picks, records, records_once_in_a_place, makes_errors, nested, shows_itself]


def seen(fn: Any) -> Any:
    """What a call gives and prints, in a module's namespace where nothing has been said yet."""
    globals().pop("__warningregistry__", None)
    text = io.StringIO()
    before = list(warnings.filters), warnings.showwarning, warnings._showwarnmsg_impl
    with contextlib.redirect_stderr(text):
        result = fn(X)
    assert (list(warnings.filters), warnings.showwarning, warnings._showwarnmsg_impl) == before
    return result[0].tolist() if isinstance(result, tuple) else result.tolist(), result[1:], text.getvalue()


def shown(fn: Any, fullgraph: bool) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=fullgraph)
    for _ in range(2):
        wanted, got = seen(fn), seen(compiled)
        assert str(wanted) == str(got)


def show_as_python_does(message: Any) -> None:
    sys.stderr.write(warnings._formatwarnmsg(message))


@pytest.fixture(autouse=True)
def as_python_starts() -> Any:
    """pytest records warnings; here they are printed."""
    torchdynamo.compile(torch.nn.Identity(), backend="eager")(X)  # what is imported for the first capture adds filters
    hooks = {"showwarning": warnings._showwarning_orig, "_showwarnmsg_impl": show_as_python_does}
    with warnings.catch_warnings():
        for name, hook in hooks.items():
            setattr(warnings, name, hook)
        warnings.simplefilter("default")
        torchdynamo.reset()
        yield


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_in_one_graph(fn: Any) -> None:
    shown(fn, True)
    assert len(_native.cache_entries(fn.__code__)) == 1


@pytest.mark.parametrize("fn", [operators_while_recording, breaks_inside], ids=lambda fn: fn.__name__)
def test_with_a_break(fn: Any) -> None:
    """What operators say has to be said inside of the block that records it."""
    shown(fn, False)
