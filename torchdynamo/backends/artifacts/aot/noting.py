"""Note what AOTAutograd is about to run, as a graph is compiled or found in a cache on disk.

Of each compiled graph AOTAutograd makes one runtime wrapper, whether Inductor has compiled it or a cache had it. So the
function that makes wrappers is watched, in the thread that compiles. Wrappers that do nothing, as older versions of
torch make them around compiled code, are left out. The notes refer to what the compiled graph refers
to itself, and live as long.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils import _pytree as pytree

from torchdynamo.backends.artifacts.artifact import CannotStore
from torchdynamo.backends.ddp_buckets import ByBuckets
from torchdynamo.backends.double_backward import DoubleBackward, GradientFacts
from torchdynamo.backends.handoff import Handoff
from torchdynamo.graph import patches

WRAPPERS = "torch._functorch._aot_autograd.runtime_wrappers"
WRAP = f"{WRAPPERS}._create_runtime_wrapper"
# By the function that wraps compiled code: whether what it does for a call is needed.
NEEDED: dict[str, Callable[[Any], bool]] = {
    f"{WRAPPERS}.EffectTokensWrapper.post_compile": lambda metadata: bool(metadata.tokens),
    f"{WRAPPERS}.FunctionalizedRngRuntimeWrapper.post_compile": lambda metadata: metadata.is_rng_op_functionalized,
}
NOTES = "_torchdynamo_notes"  # attribute of what the backend returns
# Attribute of a function that torch's own front end is not to trace, as a backward is wrapped in: the function inside.
NOT_TRACED = "_torchdynamo_orig_callable"
_thread = threading.local()


class Wrapped(NamedTuple):
    """Parts of AOTAutograd's runtime wrapper."""

    run: Any  # compiled kernels, or `apply` of an autograd function
    metadata: Any  # ViewAndMutationMeta
    detached: list[int]  # inputs that are detached
    trains: bool
    writes_inputs: bool  # kernels write to inputs
    no_autocast: bool


class Notes(NamedTuple):
    """Notes taken while a graph was compiled."""

    kind: str  # of artifact
    wrapped: tuple[Wrapped, ...]
    inputs: int
    owns_tensors: bool  # parameters or buffers, which AOTAutograd passes to kernels itself
    structure: pytree.TreeSpec | None  # of results; None: a flat tuple
    gradients: GradientFacts | None
    trained: weakref.ref[DoubleBackward] | None  # runs the graph, if gradients may be asked for


@contextlib.contextmanager
def noting() -> Iterator[list[Wrapped]]:
    """Collect what AOTAutograd makes in this thread inside of the block."""
    make = patches.held(*patches.place(WRAP))
    found: list[Wrapped] = []

    def noted(run: Any, **about: Any) -> Any:
        if getattr(_thread, "found", None) is found:
            found.append(
                Wrapped(
                    run,
                    about["runtime_metadata"],
                    about["indices_of_inps_to_detach"],
                    about["trace_joint"],
                    about["keep_input_mutations"],
                    about["disable_amp"],
                )
            )
        return make(run, **about)

    before, _thread.found = getattr(_thread, "found", None), found
    wraps = {target: where_needed(patches.held(*patches.place(target)), each) for target, each in NEEDED.items()}
    try:
        with patches.replaced({WRAP: noted, **wraps}):
            yield found
    finally:
        _thread.found = before


def where_needed(wrap: Callable[..., Any], needed: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return a function that wraps compiled code as `wrap` does, and leaves it as it is where that does nothing."""

    def wrapped(wrapper: Any, compiled: Callable[..., Any], about: Any, *, runtime_metadata: Any) -> Any:
        if not needed(runtime_metadata):
            return compiled
        return wrap(wrapper, compiled, about, runtime_metadata=runtime_metadata)

    return wrapped


def keep_notes(kind: str, compiled: Callable[..., Any], ready: Handoff, found: list[Wrapped]) -> Callable[..., Any]:
    """Attach the notes to what the backend returns for a graph, and return that.

    kind: of artifact, by which the code is written that AOTAutograd calls.
    """
    owns = any(True for _ in ready.module.parameters()) or any(True for _ in ready.module.buffers())
    trained = ready.trained
    facts, reference = (None, None) if trained is None else (trained.facts, weakref.ref(trained))
    setattr(compiled, NOTES, Notes(kind, tuple(found), len(ready.inputs), owns, ready.spec, facts, reference))
    return compiled


def notes_of(compiled: Any) -> Notes | None:
    """Return the notes on a compiled graph; None for what another backend made, and for a graph of several variants."""
    notes = None if isinstance(compiled, ByBuckets) else getattr(compiled, NOTES, None)
    return notes if isinstance(notes, Notes) else None


def unwrapped(run: Any, kind: type, what: str, serializable: Any = ()) -> Any:
    """Return the object of a type inside of what AOTAutograd calls. Raises CannotStore if there is none.

    what: names it in the reason. serializable: AOTAutograd's type of wrappers for its cache, which hold what they call.
    """
    while not isinstance(run, kind):
        inner = run.compiled_fn if isinstance(run, serializable) else getattr(run, NOT_TRACED, None)
        if inner is None:
            raise CannotStore(f"AOTAutograd calls {what} by a {type(run).__name__}")
        run = inner
    return run
