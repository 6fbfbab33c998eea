"""Call recorded inference graphs past AOTAutograd's wrappers, which cost more than the launch of a recording.

What the wrappers do around kernels is done as for graphs from a store (`artifacts/aot/runtime.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo import _native
from torchdynamo.backends.artifacts.aot.noting import Wrapped
from torchdynamo.backends.artifacts.aot.runtime import decode_runtime, encode_runtime
from torchdynamo.backends.artifacts.artifact import CannotStore
from torchdynamo.backends.artifacts.inductor.code import graph_of
from torchdynamo.backends.cuda_graphs.runner import Runner
from torchdynamo.backends.handoff import Handoff
from torchdynamo.hook.install import Compiled


def called_directly(compiled: Callable[..., Any], ready: Handoff, found: list[Wrapped]) -> Callable[..., Any]:
    """Return a function that calls a recorded graph directly; `compiled`, if AOTAutograd is needed for a call.

    found: what AOTAutograd has made for the graph.
    """
    owns = any(True for _ in ready.module.parameters()) or any(True for _ in ready.module.buffers())
    if len(found) != 1 or found[0].trains or owns or len(found[0].metadata.input_info) != len(ready.inputs):
        return compiled
    try:
        runner, around = runner_in(found[0].run), encode_runtime(found[0])
    except CannotStore:
        return compiled
    if runner is None or not isinstance(around, dict):
        return compiled
    otherwise = decode_runtime(around, runner.decide if is_simple(around) else runner)
    if not is_simple(around):
        return lambda *args: otherwise(list(args))
    results = [-1 if each is None else each[1] for each in around["results"]]
    return _native.DirectCall(runner.replays, otherwise, around["counted"], results)


def runner_in(run: Any) -> Runner | None:
    """Return what replays the recordings of what AOTAutograd calls, if anything does.

    Raises CannotStore for a graph of neither Inductor nor operators.
    """
    found = run.fn if isinstance(run, Compiled) else graph_of(run).current_callable
    return found if isinstance(found, Runner) else None


def is_simple(around: dict[str, Any]) -> bool:
    """Return whether nothing is done around the kernels but to count versions and to return inputs."""
    kinds = {each[0] for each in around["results"] if each is not None}
    return not around["written"] and around["grad_mode"] is None and kinds <= {"input"}
