"""Contenders of the demo, each a process of its own, and the rounds in which they take turns at a program."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Run = Callable[[], torch.Tensor]

CONTENDERS = ("eager", "torch.compile", "torchdynamo")
WARM_UP = 3  # runs before the rounds; functions that vary are compiled once more in these


@dataclass(frozen=True)
class Program:
    """A program to measure. `prepare` gets a contender's `compile` and returns what is run and timed."""

    title: str
    about: str
    unit: str  # what the time is for: "call", "token"
    units: int  # so many of them in each run
    runs: int  # in each round
    prepare: Callable[[Compile], Run]


@dataclass
class Outcome:
    """What was measured of a program: seconds per unit in each round, and graphs, by contender."""

    title: str
    about: str
    unit: str
    rounds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CONTENDERS})
    graphs: dict[str, int] = field(default_factory=dict)
    equal: bool = True

    @property
    def gains(self) -> bool:
        """Whether torchdynamo is faster than both others beyond the spread of rounds."""
        return not any(self.verdict(other).startswith("no gain") for other in CONTENDERS[:2])

    def verdict(self, other: str) -> str:
        """Say how torchdynamo compares; where the middle halves of two contenders' rounds overlap there is no gain."""
        low, middle, high = statistics.quantiles(self.rounds["torchdynamo"], n=4)
        their_low, their_middle, their_high = statistics.quantiles(self.rounds[other], n=4)
        if high < their_low:
            return f"{their_middle / middle:.2f}x as fast as {other}"
        if low > their_high:
            return f"no gain: {middle / their_middle:.2f}x the time of {other}"
        return f"no gain over {other}"


class Contender:
    """A process that runs programs under one front end, with its own cache of Inductor. Closing it ends the process."""

    def __init__(self, name: str, cache: Path, threads: int) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, name, str(cache), threads), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, command: str, *arguments: Any) -> None:
        """Ask for something: `prepare` a program, run a `round` of it, count its `graphs`, write a `report`."""
        self._connection.send((command, arguments))

    def answer(self) -> Any:
        """Wait for what was asked and return it. Raises RuntimeError if the process has ended instead."""
        try:
            return self._connection.recv()
        except EOFError:
            raise RuntimeError(f"{self.name} has failed: its error is above") from None

    def ask(self, command: str, *arguments: Any) -> Any:
        """Ask for something and wait for it."""
        self.send(command, *arguments)
        return self.answer()

    def close(self) -> None:
        """End the process and wait for that."""
        self._connection.close()
        self._process.join()


def take_turns(program: str, contenders: Sequence[Contender], rounds: int, done: Callable[[], None]) -> Outcome:
    """Measure the program of a module. The contenders compile at the same time, and run one at a time, in turn.

    done: called after each step, one for the preparation and one for each round.
    """
    found: Program = importlib.import_module(program).PROGRAM
    outcome = Outcome(found.title, found.about, found.unit)
    for contender in contenders:
        contender.send("prepare", program)
    for contender in contenders:
        contender.answer()
    done()
    for turn in range(rounds):
        results = {}
        first = turn % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            seconds, results[contender.name] = contender.ask("round")
            outcome.rounds[contender.name].append(seconds)
        outcome.equal &= all(close(result, results["eager"]) for result in results.values())
        done()
    outcome.graphs = {contender.name: contender.ask("graphs") for contender in contenders}
    return outcome


def close(result: Any, expected: Any) -> bool:
    """Whether a result, as nested lists, is that of eager but for rounding."""
    return torch.allclose(torch.tensor(result), torch.tensor(expected), rtol=1e-4, atol=1e-5)


class _Server:
    """The contender's side: one method for each command."""

    def __init__(self, name: str) -> None:
        self.compile, self.count = _front_end(name)
        self.before = self.count()

    def prepare(self, program: str) -> float:
        """Return the seconds until the first result is there."""
        self.before = self.count()
        self.program: Program = importlib.import_module(program).PROGRAM
        begin = time.perf_counter()
        self.run = self.program.prepare(self.compile)
        self.run()
        seconds = time.perf_counter() - begin
        for _ in range(WARM_UP):
            self.run()
        return seconds

    def round(self) -> tuple[float, Any]:
        """Return the seconds per unit of a round, and its last result."""
        begin = time.perf_counter()
        for _ in range(self.program.runs):
            result = self.run()
        seconds = time.perf_counter() - begin
        return seconds / (self.program.runs * self.program.units), result.tolist()

    def graphs(self) -> int:
        """Return how many graphs the program was compiled to; none before there is one."""
        return self.count() - self.before

    def report(self, path: str) -> None:
        """Write torchdynamo's report of this process as a page."""
        import torchdynamo

        torchdynamo.report().to_html(path)


def _front_end(name: str) -> tuple[Compile, Callable[[], int]]:
    """Return a contender's `compile`, with Inductor behind it, and what counts the graphs so far."""
    if name == "eager":
        return lambda function: function, lambda: 0
    if name == "torch.compile":
        return torch.compile, lambda: torch._dynamo.utils.counters["stats"]["unique_graphs"]
    import torchdynamo  # here, so that the other processes run without its hook

    return torchdynamo.compile, lambda: sum(
        version["operators"] > 0 for each in torchdynamo.report()["functions"] for version in each["versions"]
    )


def _serve(connection: Connection, name: str, cache: str, threads: int) -> None:
    """Answer commands until the other side closes the connection."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    os.environ["TORCHDYNAMO_CACHE"] = "1"  # also where the environment, as the Makefile's, says otherwise
    os.environ["TORCHDYNAMO_CACHE_DIR"] = os.path.join(cache, "torchdynamo")
    warnings.filterwarnings("ignore", module="torch")
    torch.set_num_threads(threads)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    with torch.inference_mode():
        server = _Server(name)
        while True:
            try:
                command, arguments = connection.recv()
            except (EOFError, KeyboardInterrupt):
                return
            connection.send(getattr(server, command)(*arguments))
