"""Run a graph by eager and by a backend, and say how the backend fails."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from torchdynamo.backends.ensemble.float64 import in_float64
from torchdynamo.backends.ensemble.reference import gradients_of
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.ensemble.validation import Differs, close
from torchdynamo.backends.preserve import RandomState
from torchdynamo.backends.registry import Backend
from torchdynamo.backends.run import GraphFailure, compile_graph
from torchdynamo.backends.verify import copied
from torchdynamo.errors import BackendError
from torchdynamo.graph.modes import Modes
from torchdynamo.repro.case import Case, backend_at

SEED = 0
"""Seed of the default random number generators, set before each run."""


class Failure(NamedTuple):
    """How a backend fails on a graph."""

    kind: str
    """A verb: "does not compile", "raises", "gives wrong results", "ends the process", "does not end"."""
    what: str
    """The type of the exception, the signal or the exit status, where there is one."""
    text: str

    def is_like(self, other: Failure | None) -> bool:
        """Return whether another failure is of the same kind, with the same exception, signal or exit status."""
        return other is not None and self[:2] == other[:2]

    def __str__(self) -> str:
        return f"the backend {self.kind}{': ' if self.text else ''}{self.text}"


class RunValues(NamedTuple):
    """Detached tensors that a run gave."""

    results: list[Any]
    inputs: list[Any]
    """The inputs as the run leaves them."""
    gradients: list[Any]


def failure_of(case: Case) -> Failure | None:
    """Compile and run a graph by the backend; return how it fails, None where it does what eager does.

    Where eager raises, too, nothing fails. Raises RecordError for what is no graph, NoSuchBackend.
    """
    recorded = case.made()
    backend = backend_at(case.backend, case.settings)
    with recorded.as_captured():
        return failure_on(recorded.subgraph, backend, case.accuracy)


def failure_on(subgraph: Subgraph, backend: Backend, accuracy: bool) -> Failure | None:
    """Run a graph in eager and by a backend, in the modes that are set, and compare.

    Results, inputs that are written to, and gradients if the graph wants any, must be equal within the tolerances of
    `torch.testing.assert_close`. With `accuracy` they may be as far from those in float64 as eager's are: see
    `inaccuracy`.
    """
    gm, inputs = subgraph.gm, subgraph.example_inputs
    trains = subgraph.wants_gradients
    exact = in_float64(gm, [copied(each) for each in inputs]) if accuracy else None
    try:
        wanted = values_of(gm.forward, inputs, trains)
        if not all(isinstance(each, (torch.Tensor, int, float, type(None))) for each in wanted.results):
            return None
    except Exception:
        return None
    try:
        compiled = compile_graph(gm, [copied(each) for each in inputs], backend, "the recorded graph", fullgraph=True)
    except BackendError as error:
        return raised("does not compile", error.__cause__ or error)
    try:
        found = values_of(compiled, inputs, trains)
    except GraphFailure as error:
        return raised("raises", error.original)
    except Exception as error:
        return raised("raises", error)
    text = inaccuracy(wanted, found, exact) if accuracy else difference(wanted, found)
    return Failure("gives wrong results", "", text) if text else None


def raised(kind: str, error: BaseException) -> Failure:
    """Return the failure that an exception is. Its traceback is part of the text."""
    return Failure(kind, type(error).__name__, "".join(traceback.format_exception(error)).strip())


def ended_by(status: int) -> Failure:
    """Return the failure of a backend that ended its process. status: minus the signal that did so, or a status."""
    what = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return Failure("ends the process", what, what)


def values_of(run: Callable[..., Any], inputs: Sequence[Any], trains: bool) -> RunValues:
    """Run on copies of inputs. trains: compute gradients. Modes and random numbers are put back."""
    modes, random = Modes.now(), RandomState()
    given = [copied(each) for each in inputs]
    try:
        torch.manual_seed(SEED)
        results = pytree.tree_leaves(run(*given))
        gradients = gradients_of(results, given) if trains else []
    finally:
        modes.restore()
        random.restore()
    return RunValues(*([_plain(each) for each in values] for values in (results, given, gradients)))


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def difference(wanted: RunValues, found: RunValues) -> str:
    """Return in which way values differ from eager's by more than `torch.testing.assert_close` allows; "" if none."""
    for name, want, have in zip(RunValues._fields, wanted, found):
        if len(want) != len(have):
            return _other_count(name, want, have)
        for index, (one, other) in enumerate(zip(want, have)):
            try:
                torch.testing.assert_close(other, one, equal_nan=True, check_stride=False)
            except AssertionError as error:
                return f"{name} {index}: {error}"
    return ""


def _other_count(name: str, want: Sequence[Any], have: Sequence[Any]) -> str:
    return f"{len(have)} {name} for eager's {len(want)}"


def inaccuracy(wanted: RunValues, found: RunValues, exact: Sequence[Any] | None) -> str:
    """Return which value is further from the right one than eager's; "" if none is.

    The right results are those of the graph in float64. A result's error is its largest distance from that, divided by
    the largest value. It may be four times eager's, or the usual error of the dtype (1.3e-6 for float32, 1e-3 for
    float16, 1.6e-2 for bfloat16), if that is more. Where float64 is not to be had (for inputs that are written to, for
    gradients, for operators without float64), it may differ from eager by eight times the usual error. NaN, infinities
    and integers must be eager's. This is the rule by which the ensemble accepts a compiler: `close`, and its constants,
    in `backends/ensemble/validation.py`.
    """
    right = [exact or [], [], []]
    for name, want, have, exactly in zip(RunValues._fields, wanted, found, right):
        if len(want) != len(have):
            return _other_count(name, want, have)
        for index, (one, other) in enumerate(zip(want, have)):
            text = _inaccurate(one, other, exactly[index] if index < len(exactly) else None)
            if text:
                return f"{name} {index}: {text}"
    return ""


def _inaccurate(want: Any, have: Any, exact: Any) -> str:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        return "" if type(want) is type(have) and want == have else f"{have!r:.100} for eager's {want!r:.100}"
    for fact in ("shape", "dtype", "device"):
        if getattr(want, fact) != getattr(have, fact):
            return f"{fact} {getattr(have, fact)} for eager's {getattr(want, fact)}"
    try:
        close(want, have, exact)
    except Differs as differs:
        return str(differs)
    return ""
