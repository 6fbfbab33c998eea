"""Sentence embeddings with a real model, three ways in one run: eager, torchdynamo, torch.compile.

python demo/sentences.py [--query TEXT] [--rounds N] [--threads N]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from encoder import BATCH, Batch, SentenceEncoder, read_sentences
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import torchdynamo
from torchdynamo.optimizations import BACKENDS

Encoder = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Contender:
    """One way of running the encoder, and what was measured of it."""

    name: str
    compile: Callable[..., Encoder] | None  # (encoder, backend) -> encoder; None is eager
    explain: Callable[..., tuple[int, int, int]] | None  # (encoder, batch) -> graphs, breaks, guards
    run: Encoder = field(init=False)
    compiles: int = 0
    first: float = 0.0
    rounds: list[float] = field(default_factory=list)
    vectors: torch.Tensor = field(init=False)
    found: tuple[int, int, int] | None = None
    overhead: float | None = None


def ours(encoder: SentenceEncoder, backend: Any) -> Encoder:
    return torchdynamo.compile(encoder, backend=backend)


def theirs(encoder: SentenceEncoder, backend: Any) -> Encoder:
    compiled: Encoder = torch.compile(encoder, backend=backend)
    return compiled


def explain_ours(encoder: SentenceEncoder, batch: Batch) -> tuple[int, int, int]:
    report = torchdynamo.explain(encoder)(batch.ids, batch.mask)
    return report.graph_count, report.graph_break_count, len(report.guards)


def explain_theirs(encoder: SentenceEncoder, batch: Batch) -> tuple[int, int, int]:
    report = torch._dynamo.explain(encoder)(batch.ids, batch.mask)
    torch._dynamo.reset()
    return report.graph_count, report.graph_break_count, len(report.out_guards or ())


def contenders() -> list[Contender]:
    return [
        Contender("eager", None, None),
        Contender("torchdynamo", ours, explain_ours),
        Contender("torch.compile", theirs, explain_theirs),
    ]


def no_work(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend whose result is there already: what is left of a call is the front end's own time."""
    result = gm.forward(*example_inputs)
    return lambda *args: result


def counting(contender: Contender) -> Callable[..., Any]:
    """Inductor, counting what it is given."""
    inductor = torch._dynamo.lookup_backend("inductor") if contender.name == "torch.compile" else BACKENDS["inductor"]

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        contender.compiles += 1
        return inductor(gm, example_inputs)

    return backend


def overhead(contender: Contender, encoder: SentenceEncoder, batch: Batch) -> float:
    """Microseconds a call costs beyond that of an empty function."""
    assert contender.compile is not None
    compiled = contender.compile(encoder, no_work)
    compiled(batch.ids, batch.mask)
    return 1e6 * (fastest(compiled, batch) - fastest(lambda ids, mask: ids, batch))


def fastest(call: Encoder, batch: Batch, calls: int = 300) -> float:
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(calls):
            call(batch.ids, batch.mask)
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def embed(run: Encoder, batches: list[Batch], count: int) -> torch.Tensor:
    vectors = torch.empty(count, 384)
    for batch in batches:
        vectors[batch.rows] = run(batch.ids, batch.mask)[: len(batch.rows)]
    return vectors


def warm_up_inductor() -> None:
    """Loading Inductor and precompiling its C++ header is paid once per process: by neither of the two."""
    torch.compile(lambda x: x.sin() + 1)(torch.ones(64))
    torch._dynamo.reset()


def first_calls(contender: Contender, encoder: SentenceEncoder, batches: list[Batch]) -> None:
    """Every batch once, with no compiled kernels lying about from another run or the other contender."""
    from torch._inductor.utils import fresh_cache

    with fresh_cache():
        begin = time.perf_counter()
        contender.run = encoder if contender.compile is None else contender.compile(encoder, counting(contender))
        for batch in batches:
            contender.run(batch.ids, batch.mask)
        contender.first = time.perf_counter() - begin


def measure(encoder: SentenceEncoder, sentences: list[str], rounds: int, progress: Progress) -> list[Contender]:
    batches = encoder.batches(sentences)
    entered = contenders()
    compiled = [contender for contender in entered if contender.compile is not None]

    task = progress.add_task("loading Inductor", total=1)
    warm_up_inductor()
    progress.update(task, completed=1)

    task = progress.add_task("looking at the captures", total=2 * len(compiled))
    for contender in compiled:
        assert contender.explain is not None
        contender.found = contender.explain(encoder, batches[0])
        progress.advance(task)
        contender.overhead = overhead(contender, encoder, batches[0])
        torchdynamo.reset()
        torch._dynamo.reset()
        progress.advance(task)

    task = progress.add_task("first calls", total=len(entered))
    for contender in entered:
        progress.update(task, description=f"first calls: {contender.name}")
        first_calls(contender, encoder, batches)
        progress.advance(task)

    task = progress.add_task("embedding", total=rounds * len(entered) * len(batches))
    for _ in range(rounds):
        for contender in entered:  # in turn, so that whatever else the machine does hits all alike
            progress.update(task, description=f"embedding: {contender.name}")
            begin = time.perf_counter()
            contender.vectors = embed(contender.run, batches, len(sentences))
            contender.rounds.append(time.perf_counter() - begin)
            progress.advance(task, len(batches))
    return entered


def table(entered: list[Contender], count: int, shapes: int) -> Table:
    eager = entered[0]
    made = Table(title=f"all-MiniLM-L6-v2, {count} sentences, batches of {BATCH}, threads: {torch.get_num_threads()}")
    made.add_column("")
    for contender in entered:
        made.add_column(contender.name, justify="right")

    def row(label: str, cell: Callable[[Contender], str]) -> None:
        made.add_row(label, *(cell(contender) for contender in entered))

    row("sentences per second", lambda c: f"{count / statistics.median(c.rounds):.0f}")
    row("against eager", lambda c: f"{statistics.median(eager.rounds) / statistics.median(c.rounds):.2f}x")
    row(f"first calls, {shapes} shapes (s)", lambda c: f"{c.first:.1f}")
    row("compiles", lambda c: "-" if c.compile is None else str(c.compiles))
    for index, label in enumerate(("graphs", "breaks", "guards")):
        row(label, lambda c, index=index: "-" if c.found is None else str(c.found[index]))
    row("host overhead per call (µs)", lambda c: "-" if c.overhead is None else f"{c.overhead:.1f}")
    row("largest difference from eager", lambda c: f"{(c.vectors - eager.vectors).abs().max():.1e}")
    return made


def nearest(entered: list[Contender], encoder: SentenceEncoder, sentences: list[str], query: str) -> list[str]:
    """The three sentences most like the query, by torchdynamo's embeddings of both."""
    mine = next(contender for contender in entered if contender.name == "torchdynamo")
    (vector,) = embed(mine.run, encoder.batches([query]), 1)
    scores = mine.vectors @ vector
    return [f"{scores[row]:.2f}  {sentences[row]}" for row in scores.topk(3).indices.tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--query", default="An animal that never forgets a face")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="one is steadiest where other programs run as well")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch")
    torch.set_num_threads(options.threads)
    console = Console()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    begin = time.perf_counter()
    sentences = read_sentences()
    with Progress(*columns, console=console) as progress, torch.inference_mode():
        task = progress.add_task("loading the model", total=1)
        encoder = SentenceEncoder()
        progress.update(task, completed=1)
        entered = measure(encoder, sentences, options.rounds, progress)
        found = nearest(entered, encoder, sentences, options.query)
    shapes = len({batch.ids.shape for batch in encoder.batches(sentences)})
    console.print(table(entered, len(sentences), shapes))
    console.print(f"\nNearest to “{options.query}”:", *found, sep="\n  ", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\n{time.perf_counter() - begin:.0f} s in all", highlight=False)


if __name__ == "__main__":
    main()
