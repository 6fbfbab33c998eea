"""A second process: its first call, with what an earlier process has left in the caches of its compiler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from contest import CONTENDERS, Contender, Outcome, close


def first_calls(program: str, caches: Path, rounds: int, threads: int, done: Callable[[], None]) -> Outcome:
    """Time the first result of a program in new processes, whose caches the same contenders have filled before.

    done: called after each round.
    """
    outcome = Outcome(
        title=f"A second process: the first result of {program}, from what an earlier one left on disk",
        about="What a service waits for when it starts again, without the import of torch.",
        unit="process",
    )
    for turn in range(rounds):
        results = {}
        with ExitStack() as stack:
            contenders = [stack.enter_context(closing(Contender(name, caches / name, threads))) for name in CONTENDERS]
            for contender in contenders:  # all have imported torch before the first is timed
                contender.ask("graphs")
            first = turn % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                outcome.rounds[contender.name].append(contender.ask("prepare", program))
                results[contender.name] = contender.ask("round")[1]
                outcome.graphs[contender.name] = contender.ask("graphs")
        outcome.equal &= all(close(result, results["eager"]) for result in results.values())
        done()
    return outcome
