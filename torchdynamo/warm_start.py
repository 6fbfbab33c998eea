"""Begin with what another process has captured and compiled: look for an entry in the store, and keep new ones there.

See cache/store for the format and the rules, and docs/warm_start.md.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any
from weakref import ref

import torch

from torchdynamo import _native, config, events, suspending
from torchdynamo.backends.artifacts import BlobFile
from torchdynamo.backends.ensemble import record
from torchdynamo.backends.run import Careful, on_error
from torchdynamo.cache import budget
from torchdynamo.cache.entries import CompiledEntry
from torchdynamo.cache.store import compiled, files, frames, graphs, keys, notes, places
from torchdynamo.cache.store.calls_again import CallRaised
from torchdynamo.cache.store.rows import Unresolved
from torchdynamo.cache.store.values import NotStorable
from torchdynamo.cache.weak_invalidation import Ties
from torchdynamo.capture.torch import dynamic_marks
from torchdynamo.codegen import resume
from torchdynamo.codegen.codegen import Written
from torchdynamo.codegen.deopt import Bailout
from torchdynamo.core import learned
from torchdynamo.core.call_sites import CallSite
from torchdynamo.core.signals import NotYet
from torchdynamo.core.source import Roots
from torchdynamo.errors import RecordError, TorchDynamoWarning
from torchdynamo.first_run import FIRST_RUN, FirstCall, FirstRun, is_endless_setup
from torchdynamo.graph.modes import Modes
from torchdynamo.graph_compilation import callable_graph, next_graph_name
from torchdynamo.guards.explain import Guards
from torchdynamo.hook import interrupts
from torchdynamo.hook.user_warnings import warn_user
from torchdynamo.report import explain
from torchdynamo.report.compiles import (
    GraphId,
    beginning,
    next_graph_id,
    recompile_text,
    tell_again,
    tell_compiled,
    what_failed,
)
from torchdynamo.specialization import CompilerSettings

MODES = {"0": "off", "off": "off", "read": "read", "1": "on", "on": "on"}


def mode() -> str:
    """Return whether the store is used: "off", "read" or "on", which it is where nobody said and there is a place."""
    return MODES.get(asked_for() or "on", "off") if places.is_somewhere() else "off"


def asked_for() -> str:
    """Return what the program or the environment says of the store; "" if neither says anything."""
    return config.cache or os.environ.get("TORCHDYNAMO_CACHE", "")


def complain(code: CodeType, root: Path, kind: str, text: str) -> None:
    """Record that something of a store is not used, and warn if the program or the environment asked for the store.

    There is one warning for each kind and store. Where a filter makes errors of warnings, the text is logged instead:
    the call of the program that is being compiled has nothing to do with it.
    """
    tell(code, text)
    named = asked_for() or os.environ.get("TORCHDYNAMO_CACHE_DIR") or root in places.baked()
    if not named or (kind, root) in _complained:
        return
    _complained.add((kind, root))  # before the warning, which may be an error
    text = f"the store of compiled code: {text}; it is not used"
    try:
        warn_user(text, TorchDynamoWarning)
    except TorchDynamoWarning:
        logger.warning(text)


logger = logging.getLogger("torchdynamo.cache")
_complained: set[tuple[str, Path]] = set()


def is_used(compiler: CompilerSettings) -> bool:
    """Return whether frames of a compiler are looked for: not by whoever wants to see them captured."""
    return mode() != "off" and not (
        explain.watched() or record.is_active() or config.verify_correctness or config.debug
    )


def key_of(code: CodeType, roots: Roots, compiler: Any) -> keys.FrameKey:
    """Return the key of a frame. Raises NotStorable if it has none."""
    backend = compiler.backend_name
    if not compiler.backend_is_ours:
        raise NotStorable(f"backend {backend!r} is not one of ours: nothing says whether it is what it was")
    if any(map(is_marked, roots.locals.values())):
        raise NotStorable("a tensor is marked as dynamic or static, which a capture checks")
    keys.check_kernels()
    return keys.frame_key(code, roots, backend, (*compiler.asked, compiler.facts()))


def key_if_used(code: CodeType, roots: Roots, compiler: Any) -> keys.FrameKey | None:
    """Return the key of a frame that may be stored; None for others. It is asked before anything is imported."""
    if not is_used(compiler):
        return None
    try:
        return key_of(code, roots, compiler)
    except NotStorable as error:
        tell(code, f"{notes.NOT_STORED}: {error}")
        return None


def is_marked(obj: Any) -> bool:
    """Return whether an argument is a tensor of whose sizes the program has said something: a capture checks that."""
    if not issubclass(type(obj), torch.Tensor):  # `isinstance` asks the object, which may tell who asks
        return False
    named = object.__getattribute__(obj, "__dict__")
    return any(name in named for name in MARKS)


MARKS = (
    *(dynamic_marks.DYNAMIC, dynamic_marks.RANGES, dynamic_marks.MAYBE),
    *(dynamic_marks.UNBACKED, dynamic_marks.STATIC),
)


def find(
    key: keys.FrameKey | None,
    code: CodeType,
    roots: Roots,
    compiler: Any,
    started: float,
    build: Callable[[CodeType, Roots], Any] | None = None,
) -> Any:
    """Return an entry for a frame that another process has stored, and whose guards hold; None if there is none.

    build: compiles the frame again when its call has set something up; None for no entry that does.
    """
    if key is None:
        return None
    try:
        found = (read(path, root, code, roots, compiler, started, build) for root, path in stored(key, code))
        return next((entry for entry in found if entry is not None), None)
    except NotYet:
        raise
    except Exception as error:  # the frame can be captured all the same
        if interrupts.came() or not config.suppress_errors:
            raise
        fault = f"by a fault of torchdynamo ({type(error).__name__}: {error})"
        complain(code, places.folder(), "reading", f"an entry for {code.co_name} cannot be read, {fault}")
        return None


def stored(key: keys.FrameKey, code: CodeType) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a frame, each after the store that it is in: those of an image first."""
    for root in (*places.baked(), places.folder()):
        try:
            for path in places.entries_at(root, key.name):
                if path not in learned.record(code).raising:
                    yield root, path
        except places.Untrusted as error:
            complain(code, root, "trust", str(error))


def read(
    path: Path,
    root: Path,
    code: CodeType,
    roots: Roots,
    compiler: Any,
    started: float,
    build: Callable[[CodeType, Roots], Any] | None,
) -> Any:
    """Return the entry in a file if its guards hold for a frame; None if they do not, or if the file is damaged."""
    try:
        sections = files.unpacked(places.contents(path))
        if build is None and FIRST_RUN in sections:
            return None
        frame = frames.LoadedFrame(sections, code, roots)
        program = frame.verified()
        first_run = first_run_of(frame, sections.get(FIRST_RUN), build)
        graph_id, failed = next_graph_id(code), what_failed(code, compiler.owner_id, roots)
        entry = entry_of(frame, program, sections, root, compiler, graph_id, first_run)
    except Unresolved as error:
        tell(code, f"{notes.NO_FIT}: {error}")
        return None
    except CallRaised as error:  # not to be called a third time: eager is next
        tell(code, f"{notes.NO_FIT}: {error}")
        learned.record(code).raising |= {path}
        raise NotYet from None
    except places.Untrusted as error:
        complain(code, root, "trust", str(error))
        return None
    except OSError:
        return None  # another process has removed it
    except files.Damaged as error:
        complain(code, root, "damage", f"{path} is damaged ({error})")
        discard(path)
        return None
    except (RecordError, *compiled.FAULTS) as error:
        complain(code, root, "damage", f"{path} cannot be read ({type(error).__name__}: {error})")
        return None
    touch(path)
    if first_run is not None:
        first_run.entry = entry
        return entry
    again = "" if failed is None else recompile_text(code, failed, [], frame.guards, None)
    if failed is not None:
        tell_again(code, failed, again, roots, compiler.dynamic)
    operators, at_call = frame.call.operators, frame.call.at_call
    tell_compiled(
        *(code, graph_id, compiler.backend_name, entry, started, operators, (), again, at_call, "in the store"),
        loaded=True,
    )
    return entry


def first_run_of(
    frame: frames.LoadedFrame, data: bytes | None, build: Callable[[CodeType, Roots], Any] | None
) -> FirstRun | None:
    """Return what compiles a frame again once its call has set something up; None if it sets up nothing.

    Raises Unresolved for a function that does so in each call.
    """
    if data is None or build is None:
        return None
    if is_endless_setup(frame.code):
        raise Unresolved("it sets something up, as other calls have done")
    return FirstRun(frame.code, FirstCall(*json.loads(data)), frame.roots, build)


def entry_of(
    frame: frames.LoadedFrame,
    program: Any,
    sections: dict[str, bytes],
    root: Path,
    compiler: Any,
    graph_id: GraphId,
    first_run: FirstRun | None,
) -> Any:
    """Return the entry of a frame whose guards hold."""
    code, call = frame.code, frame.call
    name = next_graph_name() if call.name else ""
    graph = gm = None
    rerun = frame.rerun()
    if rerun is not None:
        rerun.final = compiler.fullgraph
    if name:
        gm = graphs.StoredGraph(sections["graph"], frame.targets)
        graph = graph_of(frame, gm, name, sections["backend"], root, compiler, rerun, graph_id)
    items = frame.written(name, rerun, first_run)
    made = Written(items, frame.variables).assembled(code)
    bound = frame.bound[call.bound_inputs :]
    info = CompiledEntry(
        made, Guards(frame.guards, program), gm, frame.why, name, compiler, Ties(code, frame.guards, bound)
    )
    begun = {"local": (name, graph)} if graph is not None else {}
    entry = _native.Entry(made, program, owner_id=compiler.owner_id, info=info, **begun)
    count(code, compiler, call.operators)
    return entry


def count(code: CodeType, compiler: Any, operators: int) -> None:
    """Count an entry as its capture would be counted, so that what is called later is compiled alike."""
    budget.spent(code, compiler.owner_id, operators)
    written = resume.origin(code).code
    if budget.is_fruitful(code, written, compiler.owner_id, operators):
        suspending.found_something(written, compiler.owner_id)
    elif not (compiler.fullgraph or config.capture_everything):
        budget.may_rest(written, compiler.owner_id)


def graph_of(
    frame: frames.LoadedFrame,
    gm: graphs.StoredGraph,
    name: str,
    backend: bytes,
    root: Path,
    compiler: Any,
    rerun: Bailout | None,
    graph_id: GraphId,
) -> Any:
    """Return the compiled graph of a frame as its code calls it."""
    call = frame.call
    raised = ignore if rerun is None else rerun.raised
    made = compiled.load_compiled(backend, gm, functools.partial(blob_at, root), raised)
    run = made
    if (call.mutated or call.random) and not compiled.is_as_captured(backend):
        run = Careful(made, call.mutated, UNKNOWN_CODE)
    written = frame.code if call.pure else None
    first: list[Any] = []
    start, known = CallSite(ref(frame.code), 0, str(frame.roots.globals.get("__name__", "")), None), frame.known
    modes, leaving = Modes.now(), frame.leaving

    def handler(error: BaseException, args: Any) -> Any:
        if not first:
            mutates = [node.name for at, node in enumerate(placeholders(gm)) if at in call.mutated]
            told = None if rerun is None else rerun.raised
            program = gm.program(known, start)  # the frame itself is not held: it has the call's tensors
            name, shown = compiler.backend_name, str(graph_id)
            made = on_error(gm.module, name, mutates, shown, told, leaving, program, call.pure, modes=modes)
            first.append(made)
        return first[0](error, args)

    return callable_graph(run, name, handler, call.boxes, len(frame.bound) > 0 and call.splat, written, graph_id)


def ignore(error: Exception) -> None:
    """Leave an error to whoever runs the graph."""


def placeholders(gm: Any) -> list[torch.fx.Node]:
    """Return the inputs of a graph."""
    return list(gm.graph.find_nodes(op="placeholder"))


UNKNOWN_CODE = (lambda: None).__code__  # of a graph that no error has come from yet


def discard(path: Path) -> None:
    """Remove a damaged file, if it is ours to remove."""
    with contextlib.suppress(OSError):
        if mode() == "on":
            path.unlink()


def blob_at(root: Path, digest: str) -> BlobFile:
    """Read a blob that can be trusted, and note its use. Raises Untrusted or OSError."""
    path = places.blob_at(root, digest)
    content = places.contents(path)
    touch(path)
    return BlobFile(str(path), content)


def touch(path: Path) -> None:
    """Note that a file has been used, at most once in an hour."""
    with contextlib.suppress(OSError):
        if mode() == "on" and time.time() - path.stat().st_mtime > HOUR:
            os.utime(path)


HOUR = 3600.0


def tell(code: CodeType, text: str) -> None:
    """Record what became of a frame in the store, for this process, and for `cache why`."""
    events.record("cache", beginning(code), text, code=ref(code))
    if mode() == "on":
        notes.keep(places.folder(), code, text)
