"""Search the options that Inductor compiles a graph with: halve the contenders, then hold the best against the default.

Contenders run by turns. After each round the slower half is out and the rest is measured for twice as long. What is
left has to be 3% faster than the default in three rounds of three; otherwise the graph stays with the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.api import compile
from torchdynamo.backends.builtin.inductor import inductor
from torchdynamo.backends.ensemble import measure
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.measure import Timing
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.option_sets import CHOSEN, DEFAULT, keep_choice, key_of, on_top, options_of, sets_for
from torchdynamo.backends.preserve import mutated_positions
from torchdynamo.backends.verify import copied
from torchdynamo.tuning.contest import alone_on_the_machine

GAIN = 1.03  # how many times faster than the default the best must be, in each round
ROUNDS = 3
SHORTEST = 0.02  # seconds for each contender in the first round
WARM_UP = 0.5  # seconds
BUILDING = 0.7  # of the time is for compiling at most
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 1e-2}
Run = Callable[[], list[torch.Tensor]]


class TunedGraph(NamedTuple):
    """Result of a search for one graph. gain: how many times faster than the default, at least."""

    choice: str
    gain: float
    rows: tuple[Row, ...]
    stored: bool

    def __str__(self) -> str:
        rows = [f"  {row.member}: {row.state}{_time(row.timing)} {row.reason}".rstrip() for row in self.rows]
        kept = "" if self.stored else ", not stored: the graph has no name that another process would know"
        return "\n".join([f"{self.choice}, {self.gain:.2f} times the default's speed{kept}", *rows])


def _time(timing: Timing | None) -> str:
    return "" if timing is None else f" {timing.median * 1e3:.3f} ms"


class Tuning(NamedTuple):
    """The result of `torchdynamo.tune`, to be printed: one entry for each graph, in the order of capture."""

    graphs: tuple[TunedGraph, ...]

    def __str__(self) -> str:
        return "\n".join(f"graph {at}: {each}" for at, each in enumerate(self.graphs))


def tune(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    seconds: float = 60.0,
    constants: bool = False,
) -> Tuning:
    """Search Inductor's options for each graph of a function, and store what is chosen for programs to use.

    fn: function or nn.Module, which is called once, for real, to capture its graphs.
    args, kwargs: arguments of that call.
    seconds: time for everything, compiling included; a graph gets its share of it.
    constants: parameters may become constants, as with `options={"freezing": True}`, which finds what was chosen then.

    `compile(fn, options={"tuned": True})` and `mode="max-autotune"` use the choice, in other processes too, for the
    same graph on such a machine with the same versions. Forward and backward are tuned together, at the sizes of the
    call. Graphs that draw random numbers, or communicate with other ranks, keep the default.

    Raises what the call raises, and ValueError if `seconds` is not positive.
    """
    if not seconds > 0:
        raise ValueError(f"seconds is a positive number, not {seconds!r}")
    captured: list[tuple[torch.fx.GraphModule, list[Any], bool]] = []

    def collect(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        captured.append((gm, list(example_inputs), torch.is_grad_enabled()))
        return gm.forward

    compile(fn, backend=collect, dynamic=False)(*args, **(kwargs or {}))
    end = time.monotonic() + seconds
    found = []
    for at, (gm, inputs, differentiates) in enumerate(captured):
        share = (end - time.monotonic()) / (len(captured) - at)
        with torch.set_grad_enabled(differentiates):
            found.append(tune_graph(gm, inputs, share, constants=constants))
    return Tuning(tuple(found))


def tune_graph(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], seconds: float, *, constants: bool = False
) -> TunedGraph:
    """Search the options of one graph for about so many seconds, and store the choice."""
    subgraph = Subgraph(gm, inputs, constants=constants)
    end = time.monotonic() + seconds
    on_gpu = any(each.is_cuda for each in subgraph.tensors)
    trial = TrialInputs(inputs, mutated_positions(gm))
    rows: dict[str, Row] = {}
    runs: dict[str, Run] = {}
    if not (subgraph.effects.random or subgraph.effects.communicates):
        building = time.monotonic() + BUILDING * seconds
        bases, others = sets_for("cuda" if on_gpu else "cpu", bool(subgraph.static))
        runs = built(subgraph, bases, trial, rows, building)
        if DEFAULT in runs and others:
            base = fastest(runs, on_gpu)
            runs |= built(subgraph, [on_top(base, each) for each in others], trial, rows, building)
    timings: dict[str, Timing] = {}
    choice, gain = DEFAULT, 1.0
    if DEFAULT in runs and len(runs) > 1:
        with alone_on_the_machine():
            warm_up(runs[DEFAULT], on_gpu)
            best = halved(runs, end, on_gpu, timings)
            gain = confirmed(runs, best, on_gpu)
        choice = best if gain >= GAIN else DEFAULT
    for name in runs:
        rows[name] = rows[name]._replace(timing=timings.get(name))
    rows.setdefault(DEFAULT, Row(DEFAULT, "built"))
    rows[choice] = rows[choice]._replace(state=CHOSEN)
    key = key_of(subgraph)
    if key is not None:
        keep_choice(key, [*rows.values()])
    return TunedGraph(choice, gain if choice != DEFAULT else 1.0, tuple(rows.values()), key is not None)


def fastest(runs: Mapping[str, Run], on_gpu: bool) -> str:
    """Return which of the bases the other sets are tried on: the default, if no other is faster."""
    if len(runs) == 1:
        return DEFAULT
    with alone_on_the_machine():
        warm_up(runs[DEFAULT], on_gpu)
        found = measure.in_turn(runs, SHORTEST * len(runs), on_gpu)
    best = min(found, key=lambda name: found[name].median)
    return best if DEFAULT in found and found[DEFAULT].median >= GAIN * found[best].median else DEFAULT


def warm_up(run: Run, on_gpu: bool) -> None:
    """Keep a GPU busy until its clock is as it is under load: compiling has left it idle."""
    end = time.monotonic() + (WARM_UP if on_gpu else 0.0)
    while time.monotonic() < end:
        run()


def built(
    subgraph: Subgraph, sets: Sequence[str], trial: TrialInputs, rows: dict[str, Row], end: float
) -> dict[str, Run]:
    """Compile the graph with each set until time is up; return the runs whose results are the captured graph's.

    rows: a row is added for each set.
    """
    runs: dict[str, Run] = {}
    want = None
    for name in sets:
        if time.monotonic() > end and name != DEFAULT:
            rows[name] = Row(name, "not tried", "time was up")
            continue
        started = time.monotonic()
        try:
            made = inductor(subgraph.gm, subgraph.example_inputs, options=options_of(name) or None)
            if made is None:
                rows[name] = Row(name, "declined", "Inductor leaves graphs of this kind to eager")
                return {}
            if want is None:
                want = trial.results(subgraph.gm.forward)
            for _ in range(4):  # compiles the backward, and records CUDA graphs
                got = trial.results(made)
        except Exception as error:
            rows[name] = Row(name, "failed", f"{type(error).__name__}: {error}".splitlines()[0][:200])
            continue
        seconds = time.monotonic() - started
        if not is_close(got, want):
            rows[name] = Row(name, "rejected", "results differ beyond rounding", seconds)
            continue
        rows[name] = Row(name, "built", build_seconds=seconds)
        runs[name] = trained(made, trial.given)
    return runs


class TrialInputs:
    """The inputs that a graph is tried with: the call's, but for copies of those that it writes to.

    inputs: the call's. written: positions of inputs that the graph writes to.
    """

    def __init__(self, inputs: Sequence[Any], written: Collection[int]) -> None:
        self.contents = {at: copied(inputs[at]) for at in written if isinstance(inputs[at], torch.Tensor)}
        self.given = [copied(each) if at in self.contents else each for at, each in enumerate(inputs)]

    def results(self, run: Callable[..., Any]) -> list[torch.Tensor]:
        """Return what a graph computes and leaves in the inputs that it writes to, which begin as in the call."""
        with torch.no_grad():
            for at, value in self.contents.items():
                self.given[at].copy_(value)
        found = trained(run, self.given)()
        return [*(each.clone() for each in found), *(self.given[at].detach().clone() for at in self.contents)]


def trained(run: Callable[..., Any], given: Sequence[Any]) -> Run:
    """Return a call of a graph, with the backward of its results where they have one."""
    needing = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]

    def call() -> list[torch.Tensor]:
        results = [each for each in pytree.tree_leaves(run(*given)) if isinstance(each, torch.Tensor)]
        tracked = [each for each in results if each.requires_grad]
        if not tracked or not needing:
            return [each.detach() for each in results]
        ones = [torch.ones_like(each) for each in tracked]
        gradients = torch.autograd.grad(tracked, needing, ones, allow_unused=True)
        return [*(each.detach() for each in results), *(each for each in gradients if each is not None)]

    return call


def is_close(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> bool:
    """Return whether results are those of eager, within rounding at the scale of each tensor."""
    for mine, theirs in zip(got, want, strict=True):
        if not theirs.is_floating_point():
            if not torch.equal(mine, theirs):
                return False
            continue
        scale = theirs.abs().max().item() if theirs.numel() else 0.0
        tolerance = TOLERANCES.get(theirs.dtype, 1e-2)
        if not torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return False
    return True


def halved(runs: Mapping[str, Run], end: float, on_gpu: bool, timings: dict[str, Timing]) -> str:
    """Return the fastest contender besides the default, by rounds in which the slower half drops out."""
    left, seconds = dict(runs), SHORTEST
    while True:
        found = measure.in_turn(left, seconds * len(left), on_gpu)
        timings.update(found)
        others = sorted((name for name in found if name != DEFAULT), key=lambda name: found[name].median)
        seconds *= 2
        if len(others) < 2 or time.monotonic() + seconds * len(others) > end:
            return others[0] if others else DEFAULT
        left = {name: left[name] for name in (DEFAULT, *others[: (len(others) + 1) // 2])}


def confirmed(runs: Mapping[str, Run], best: str, on_gpu: bool) -> float:
    """Return how many times faster than the default a contender was, in the worst of three rounds by turns."""
    pair = {name: runs[name] for name in (DEFAULT, best)}
    gains = []
    for _ in range(ROUNDS):
        found = measure.in_turn(pair, 4 * SHORTEST, on_gpu)
        gains.append(found[DEFAULT].median / found[best].median if best in found and DEFAULT in found else 0.0)
    return min(gains)
