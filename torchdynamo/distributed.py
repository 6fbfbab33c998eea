"""Let the ranks of a distributed program agree on what they compile.

Compiling needs no communication, so ranks may compile different things at different times, as eager allows. What is
offered here is for programs that want more: `warm_up` lets no rank go on before all have compiled, `agree` shares which
sizes vary, and `compare_graphs` makes an error of what would be a hang: ranks that communicate by different graphs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from torchdynamo import _native
from torchdynamo.backends import graph_agreement
from torchdynamo.core import learned
from torchdynamo.core.source import Source
from torchdynamo.errors import RanksDisagree

__all__ = ["agree", "compare_graphs", "warm_up"]

T = TypeVar("T")
LONG = timedelta(hours=1)
_sides: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def warm_up(fn: Callable[..., T], *args: Any, timeout: timedelta = LONG, **kwargs: Any) -> T:
    """Call a function on all ranks and wait until all have returned; return its result.

    A rank that compiles for long, because its cache is cold, makes others wait here, where that is no fault, rather
    than in a collective, where a watchdog ends the job. `fn` itself should not communicate.

    timeout: how long ranks wait for the others.

    Raises what `fn` raises on this rank; RanksDisagree if it raised on another one only; RuntimeError if ranks do not
    come in time, or if `torch.distributed` is not initialized.
    """
    group = side_group(timeout)
    failure: BaseException | None = None
    result: Any = None
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        failure = error
    found = exchanged(group, None if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    others = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text is not None]
    if others:
        raise RanksDisagree("warming up failed elsewhere: " + "; ".join(others))
    return result


def agree(timeout: timedelta = LONG) -> int:
    """Share which sizes and numbers vary: what has varied on one rank becomes a symbol on all, at the next compile.

    Call it on all ranks, between steps. Functions that were compiled for constants are compiled anew when they are next
    called. Returns how many functions that concerns on this rank.

    timeout: how long ranks wait for the others.

    Raises RuntimeError if ranks do not come in time, or if `torch.distributed` is not initialized.
    """
    here = {learned.key_of(code): (code, known) for code, known in learned.known_codes()}
    mine = {
        key: {step for owned in known.varied.values() for source in owned if (step := steps_of(source)) is not None}
        for key, (_, known) in here.items()
    }
    concerned = 0
    shared: dict[learned.CodeKey, set[Source]] = {}
    for theirs in exchanged(side_group(timeout), {key: steps for key, steps in mine.items() if steps}):
        for key, steps in theirs.items():
            shared.setdefault(key, set()).update(source_of(each) for each in steps - mine.get(key, set()))
    for key, sources in shared.items():
        news = sources - learned.agreed.get(key, frozenset())
        learned.agreed[key] = learned.agreed.get(key, frozenset()) | news
        if news and key in here:
            code = here[key][0]
            concerned += 1
            for entry in _native.cache_entries(code):
                _native.drop_entry(code, entry)
    return concerned


def compare_graphs(timeout: timedelta | None = timedelta(seconds=20)) -> None:
    """Let ranks compare, before each graph that communicates runs, that they are about to run the same collectives.

    Call it on all ranks. A round trip for each such call: it is for finding faults. Operators, sizes, dtypes and groups
    are compared, as hashes.

    timeout: how long a rank waits for the others, which should be less than their groups' own; None compares no more.

    Ranks that differ raise RanksDisagree, which names the functions of both, in place of waiting for each
    other; so does one whose partner does not come, because it runs eagerly or has ended.
    """
    graph_agreement.compare(timeout)


def side_group(timeout: timedelta) -> Any:
    """Return a group of all ranks by gloo that waits so long. Raises RuntimeError if nothing is initialized."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError("torch.distributed is not initialized: call init_process_group first")
    groups = _sides.setdefault(dist.group.WORLD, {})
    if timeout not in groups:
        groups[timeout] = dist.new_group(backend="gloo", timeout=timeout)
    return groups[timeout]


def exchanged(group: Any, value: Any) -> list[Any]:
    """Return what each rank gives."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def steps_of(source: Source) -> tuple[tuple[str, Any], ...] | None:
    """Return a path as plain data; None if it passes an object that only this process has."""
    steps: list[tuple[str, Any]] = []
    at: Source | None = source
    while at is not None:
        if not isinstance(at.arg, (str, int, type(None))):
            return None
        steps.append((at.how, at.arg))
        at = at.base
    return tuple(reversed(steps))


def source_of(steps: tuple[tuple[str, Any], ...]) -> Source:
    """Return the path that `steps_of` has taken apart."""
    found: Source | None = None
    for how, arg in steps:
        found = Source(how, found, arg)
    assert found is not None
    return found
