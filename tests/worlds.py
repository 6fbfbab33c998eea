"""A program in two worlds, one eager and one compiled: everything a call can do is compared after each call."""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from pictures import Picture, difference

import torchdynamo
from torchdynamo.errors import CacheLimitWarning
from torchdynamo.report.explain import collecting
from torchdynamo.specialization import MOST_WHOLE_IF_ASKED

ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")  # of what a repr shows
_numbers = itertools.count()


class Happened(NamedTuple):
    """One call, as the caller sees it."""

    result: Any
    raised: str
    arguments: Any
    space: Any
    printed: str
    state: Any


class Program:
    """Source text that defines `f`, executed in a namespace of its own."""

    def __init__(self, source: str, **given: Any) -> None:
        self.source = source
        self.filename = f"<program {next(_numbers)}>"
        linecache.cache[self.filename] = (len(source), None, source.splitlines(keepends=True), self.filename)
        self.space: dict[str, Any] = {"__name__": "program", "torch": torch, **given}
        torch.manual_seed(0)
        exec(compile(source, self.filename, "exec", dont_inherit=True), self.space)
        self.f: Any = self.space["f"]

    def own_names(self) -> dict[str, Any]:
        """The globals that hold data."""
        skip = ("torch", "__name__", "__builtins__", "__warningregistry__", "f")
        return {key: value for key, value in self.space.items() if key not in skip and not callable(value)}

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Happened:
        printed = io.StringIO()
        torch.manual_seed(0)
        result, raised = None, ""
        with contextlib.redirect_stdout(printed):
            try:
                result = self.f(*args, **kwargs)
            except Exception as error:
                raised = f"{type(error).__name__}: {ADDRESS.sub('', str(error))}; {chain(error)}"
        see = Picture()
        state = (torch.is_grad_enabled(), torch.get_rng_state().sum().item(), torch.get_default_dtype())
        torch.set_grad_enabled(True)
        arguments = see.of([*args, kwargs])
        return Happened(see.of(result), raised, arguments, see.of(self.own_names()), printed.getvalue(), state)


def chain(error: BaseException) -> str:
    """What the exception says it came from."""
    names = []
    for name in ("__cause__", "__context__"):
        other = getattr(error, name)
        names.append(f"{name} {type(other).__name__ if other is not None else None}")
    return ", ".join(names)


class Verdict(NamedTuple):
    """How the program was compiled: its graphs, breaks, and what was made by each call.

    The breaks are those of the first versions: later ones end where numbers are asked for that keep changing.
    """

    graphs: int
    breaks: list[str]
    made: list[int]  # compilations during each call
    raised: bool  # some call ended in an exception, in both worlds

    @property
    def whole(self) -> bool:
        """All in one graph, or nothing in it to put in one."""
        return not self.breaks


Inputs = Callable[[dict[str, Any]], tuple[Sequence[Any], dict[str, Any]]]  # given the program's namespace


def compare(source: str, calls: Sequence[Inputs], *, backend: Any = "eager", **given: Any) -> Verdict:
    """Make the calls in both worlds, one after the other; each must look the same in both."""
    theirs, mine = Program(source, **given), Program(source, **given)
    mine.f = torchdynamo.compile(mine.space["f"], backend=backend)
    breaks: list[str] = []
    made: list[int] = []
    graphs, raised = 0, False
    for number, inputs in enumerate(calls):
        wanted = theirs.call(*inputs(theirs.space))
        with warnings.catch_warnings(), collecting() as events:
            warnings.simplefilter("error", torchdynamo.errors.FallbackWarning)
            warnings.simplefilter("ignore", CacheLimitWarning)
            got = mine.call(*inputs(mine.space))
        for field, a, b in zip(Happened._fields, wanted, got):
            assert a == b, f"call {number}: {field} {difference(a, b)}\n{source}"
        raised = raised or bool(wanted.raised)
        if sum(made) < MOST_WHOLE_IF_ASKED:
            breaks += [event.reason for event in events if event.reason is not None]
        made.append(len(events))
        graphs += sum(event.graph is not None for event in events)
    return Verdict(graphs, breaks, made, raised)
