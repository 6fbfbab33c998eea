"""Cut the graph of a case as long as its backend fails in the same way: a program, `cutting CASE RESULT SECONDS`.

The minifier of torch prints a lot, and writes into the current folder in some versions, so a folder is made for it.
The result is written whenever there is a smaller graph, so it is there if this process is stopped.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch.fx
from torch._functorch.fx_minifier import minifier

from torchdynamo.backends.preserve import versions
from torchdynamo.backends.verify import copied
from torchdynamo.graph.mutation import Effects, note_effects
from torchdynamo.repro.case import Case
from torchdynamo.repro.failure import Failure
from torchdynamo.repro.script import count_of
from torchdynamo.repro.trials import CannotRun, Trials


class CutResult(NamedTuple):
    """Result of cutting a graph."""

    case: Case
    """The smallest that fails."""
    failure: Failure | None
    """How the whole graph fails; None if it does not."""
    error: str = ""
    """Why the graph could not be run at all, or not be cut as far as it goes."""

    def write(self, path: Path) -> None:
        """Write the result, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps([self.case._asdict(), self.failure, self.error]))
        os.replace(part, path)

    @classmethod
    def read(cls, path: Path) -> CutResult:
        """Read a result. Raises OSError if there is none."""
        case, failure, error = json.loads(path.read_text())
        return cls(Case(**case), failure and Failure(*failure), error)


class Cutter:
    """Asks of each graph that the minifier proposes whether the backend fails as it did on the whole."""

    def __init__(self, case: Case, wanted: Failure, trials: Trials, out: Path) -> None:
        self.case, self.wanted, self.trials, self.out = case, wanted, trials, out
        self.random = bool(case.meta["effects"]["random"])
        self.known: dict[str, bool] = {}
        self.best = case
        self.drawn: dict[int, dict[str, Any]] = {}  # by id of an input of the whole graph: how it is drawn

    def fails(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
        """Return whether a graph fails in the same way. One that eager does not run, or that is no data, does not."""
        try:
            proposed = self.proposed(gm, inputs)
        except Exception:  # the operators of a graph that has been cut may raise anything
            return False
        text = proposed.text()
        if text not in self.known:
            try:
                self.known[text] = self.wanted.is_like(self.trials.failure_of(proposed))
            except CannotRun:
                self.known[text] = False
        if self.known[text] and len(proposed.nodes) < len(self.best.nodes):
            self.best = proposed
            CutResult(proposed, self.wanted).write(self.out)
        return self.known[text]

    def proposed(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Case:
        """Return a graph as data, with what it writes to as eager shows that. Raises what eager does, RecordError."""
        given = [copied(each) for each in inputs]
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        tensors = [each for each in zip(names, inputs, given, strict=True) if isinstance(each[1], torch.Tensor)]
        before = versions([copy for _, _, copy in tensors])
        gm.forward(*given)
        after = versions([copy for _, _, copy in tensors])
        written = [
            name
            for (name, value, copy), old, new in zip(tensors, before, after, strict=True)
            if old != new or (old is None and not torch.equal(value, copy))  # inference tensors have no versions
        ]
        note_effects(gm, Effects(frozenset(written), self.random))
        made = self.case.with_graph(gm, inputs)
        for value, row in zip(inputs, made.meta["inputs"], strict=True):
            row.update(self.drawn.get(id(value), {}))
        return made

    def cut(self) -> CutResult:
        """Return the smallest graph that fails."""
        recorded = self.case.made()
        gm, inputs = recorded.subgraph.gm, recorded.subgraph.example_inputs
        rows = self.case.meta["inputs"]
        self.drawn = {id(value): {"random": row["random"]} for value, row in zip(inputs, rows) if "random" in row}
        error, progress, shown = "", sys.stderr, count_of(self.case)

        def show(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
            nonlocal shown
            if count_of(self.best) < shown:
                shown = count_of(self.best)
                print(f"  operators left: {shown}", file=progress, flush=True)

        quiet = io.StringIO()
        with recorded.as_captured(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            try:
                minifier(gm, inputs, self.fails, show)
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
        return CutResult(self.best, self.wanted, error)


def main(case_file: str, result_file: str, seconds: str) -> None:
    """Read a case, cut it and write the result. seconds: how long the backend may take for a graph."""
    case, out = Case.of_text(Path(case_file).read_text()), Path(result_file)
    with Trials(case, float(seconds)) as trials:
        try:
            failure = trials.failure_of(case)
        except CannotRun as error:
            CutResult(case, None, str(error)).write(out)
            return
        CutResult(case, failure).write(out)
        if failure is not None:
            Cutter(case, failure, trials, out).cut().write(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
