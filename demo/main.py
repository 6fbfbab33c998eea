"""What torchdynamo wins: four programs and a second process, beside eager PyTorch and torch.compile.

python demo/main.py [--rounds N] [--processes N] [--only PROGRAM ...] [--threads N] [--page FILE]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import torch
from chart import chart
from contest import CONTENDERS, Contender, Outcome, take_turns
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from second_process import first_calls

PROGRAMS = ("decoding", "versions", "logged", "embedding")
SECOND = "second_process"
AGAIN = "decoding"  # what the second process runs
EMBEDDING_ROUNDS = 7  # at most: a round of these takes a tenth of a second


def measure(options: argparse.Namespace, progress: Progress) -> list[Outcome]:
    """Run what was asked for, and write torchdynamo's report as a page."""
    outcomes = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        contenders = [
            stack.enter_context(closing(Contender(name, folder / name, options.threads))) for name in CONTENDERS
        ]
        for program in options.only:
            if program == SECOND:
                task = progress.add_task(SECOND, total=options.processes)
                done = lambda task=task: progress.advance(task)  # noqa: E731
                for contender in contenders if AGAIN not in options.only else ():
                    contender.ask("prepare", AGAIN)  # fills the caches
                outcomes.append(first_calls(AGAIN, folder, options.processes, options.threads, done))
            else:
                rounds = min(options.rounds, EMBEDDING_ROUNDS) if program == "embedding" else options.rounds
                task = progress.add_task(program, total=rounds + 1)
                done = lambda task=task: progress.advance(task)  # noqa: E731
                outcomes.append(take_turns(program, contenders, rounds, done))
        options.page.parent.mkdir(parents=True, exist_ok=True)
        contenders[CONTENDERS.index("torchdynamo")].ask("report", str(options.page))
    return outcomes


def several(text: str) -> int:
    """Parse a number of rounds. The spread of one alone is unknown."""
    if int(text) < 2:
        raise argparse.ArgumentTypeError("at least 2, to know their spread")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=several, default=15)
    parser.add_argument("--processes", type=several, default=3, help="rounds of new processes")
    parser.add_argument("--only", nargs="+", choices=(*PROGRAMS, SECOND), default=[*PROGRAMS, SECOND])
    parser.add_argument("--threads", type=int, default=1, help="one is steadiest where other programs run as well")
    parser.add_argument("--page", type=Path, default=Path("build/demo.html"), help="where the report goes")
    options = parser.parse_args()
    console = Console()
    begin = time.perf_counter()
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console) as progress:
        outcomes = measure(options, progress)
    console.print(chart(outcomes))
    equal = "yes" if all(outcome.equal for outcome in outcomes) else "NO"
    console.print(
        f"\nResults equal to eager's in every round: {equal}.",
        f"torch {torch.__version__}, Inductor, threads: {options.threads}; bars are medians of rounds taken in turn,",
        "and there is no gain where the middle halves of the rounds overlap.",
        f"What torchdynamo did: {options.page.resolve()}",
        f"{time.perf_counter() - begin:.0f} s in all",
        sep="\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    if equal == "NO":
        raise SystemExit(1)


if __name__ == "__main__":
    main()
