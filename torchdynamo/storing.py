"""Keep what has just been compiled in the store, for the processes that come after: see docs/warm_start.md."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo import _native, config
from torchdynamo.backends import artifacts
from torchdynamo.bytecode.qualnames import qualname_of
from torchdynamo.cache.store import compiled, coverage, devices, eviction, files, frames, graphs, keys, notes, places
from torchdynamo.cache.store.operators import custom_operators
from torchdynamo.cache.store.rows import Unresolved
from torchdynamo.cache.store.values import NotStorable, NotYetStorable
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import Why
from torchdynamo.codegen import resume
from torchdynamo.codegen.codegen import Written
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.errors import RecordError
from torchdynamo.first_run import FIRST_RUN, FirstRun
from torchdynamo.graph_compilation import CalledGraph
from torchdynamo.hook import interrupts
from torchdynamo.report import explain
from torchdynamo.report.compiles import beginning
from torchdynamo.specialization import CompilerSettings
from torchdynamo.warm_start import complain, is_used, key_of, mode, stored, tell


class NewEntry(NamedTuple):
    """A frame that has been compiled and has not run yet."""

    code: CodeType
    roots: Roots
    compiler: Any
    captured: Capture
    called: CalledGraph
    written: Written
    guards: list[Guard]
    program: _native.GuardProgram  # of the guards
    bound: Sequence[Source]
    pure: bool
    operators: int
    why: Why | None
    at_call: bool  # it ends before a call that leads to where capture ends
    first_run: FirstRun | None  # of a frame that sets something up, and runs as it was captured

    @property
    def backend_name(self) -> str:
        """The backend that has made the graph."""
        return "eager" if self.first_run is not None else str(self.compiler.backend_name)


def keep(key: keys.FrameKey | None, entry: NewEntry) -> str:
    """Write a new entry to the store, before its frame runs.

    key: None for one that is not stored. Returns what the store has of it, if `explain` watches, and else "".
    """
    if explain.watched() and mode() != "off":
        return outlook(entry)
    if mode() == "on" and key is not None:
        with telling(entry.code):
            write(key, entry)
    return ""


def write(key: keys.FrameKey, entry: NewEntry) -> None:
    """Write a new entry to the store, or see to it that this happens. Raises NotStorable, OSError or Untrusted."""
    made, gm, backend = entry.called.made, entry.called.module, entry.backend_name
    places.made_private(places.folder())  # what cannot be stored is told before all the rest, which takes longer
    if gm is None:
        save(key.name, checked_sections(key, entry), {})
        return
    if backend != "eager":
        compiled.check_devices(gm)
    try:
        content, blobs = compiled.dump_compiled(made, gm, backend)
    except NotYetStorable as error:
        sections = checked_sections(key, entry)
        later = functools.partial(keep_later, key.name, ref(entry.code), sections, ref(made), backend)
        if not artifacts.when_ready(made, later):
            raise
        tell(entry.code, f"{notes.LATER}: {error}")
        return
    save(key.name, {**checked_sections(key, entry), "backend": content}, blobs)


def keep_later(key: str, code: ref[CodeType], sections: dict[str, bytes], made: ref[Any], backend: str) -> None:
    """Write an entry whose backend was not ready: by now a backward is compiled, or a member chosen."""
    there, run = code(), made()
    if there is None:
        return
    with interrupts.deferred(), telling(there):
        if run is None:
            raise NotStorable("what its backend has compiled is gone, before it could be written")
        try:
            content, blobs = compiled.dump_artifact(run, backend)
        except NotYetStorable:
            if artifacts.when_ready(run, functools.partial(keep_later, key, code, sections, made, backend)):
                return
            raise
        save(key, {**sections, "backend": content}, blobs)
        notes.drop(places.folder(), there, notes.LATER)


def outlook(entry: NewEntry) -> str:
    """Return whether the store has an entry, or could have it, or why not. Nothing is written."""
    try:
        key = key_of(entry.code, entry.roots, entry.compiler)
        sections = checked_sections(key, entry)
        if is_there(key, entry):
            return "in the store"
        if "graph" in sections:
            compiled.dump_compiled(entry.called.made, entry.called.module, entry.backend_name)
    except NotYetStorable as error:
        return f"not in the store; to be stored later: {error}"
    except NotStorable as error:
        return f"not stored: {error}"
    except Exception as error:  # the graph serves all the same, as in `telling`
        if not config.suppress_errors:
            raise
        return f"not stored, by a fault of torchdynamo ({type(error).__name__}: {error})"
    return "not in the store; to be stored when it is compiled"


def pass_over(code: CodeType, compiler: CompilerSettings, reason: str) -> str:
    """Record that a captured frame is left to Python, and so is captured in each process.

    Returns what the store has of it, if `explain` watches, and else "".
    """
    if is_used(compiler):
        tell(code, f"{notes.LEFT}: {reason}")
    return "not stored: it is left to Python" if explain.watched() and mode() != "off" else ""


def is_there(key: keys.FrameKey, entry: NewEntry) -> bool:
    """Return whether the store has an entry for a frame whose guards hold."""
    for _, path in stored(key, entry.code):
        try:
            frames.LoadedFrame(files.unpacked(places.contents(path)), entry.code, entry.roots).verified(calls=False)
        except (Unresolved, places.Untrusted, OSError, files.Damaged, RecordError, *compiled.FAULTS):
            continue
        return True
    return False


@contextlib.contextmanager
def telling(code: CodeType) -> Iterator[None]:
    """Record why an entry cannot be stored; nothing of that is an error in the program's call."""
    try:
        yield
    except NotStorable as error:
        tell(code, f"{notes.NOT_STORED}: {error}")
    except places.Untrusted as error:
        complain(code, places.folder(), "trust", str(error))
    except OSError as error:
        complain(code, places.folder(), "writing", f"it cannot be written ({error.strerror})")
    except Exception as error:  # what has been compiled serves all the same
        if not config.suppress_errors:
            raise
        fault = f"by a fault of torchdynamo ({type(error).__name__}: {error})"
        complain(code, places.folder(), "storing", f"{code.co_name} is not stored, {fault}")


def checked_sections(key: keys.FrameKey, entry: NewEntry) -> dict[str, bytes]:
    """Return an entry as the sections of a file, without what its backend has made. Raises NotStorable."""
    sections, known = written_sections(entry)
    sections["why"] = about(key, entry)
    if entry.first_run is not None:
        sections[FIRST_RUN] = json.dumps(entry.first_run.call).encode()
    check(sections, entry)
    if entry.called.module is not None:
        sites = entry.captured.machine.builder.call_sites
        sections["graph"] = graphs.dump_graph(entry.called.module, sites, [entry.code, *known])
    return sections


def written_sections(entry: NewEntry) -> tuple[dict[str, bytes], list[CodeType]]:
    """Return how an entry calls its graph as sections of a file, and the code they name. Raises NotStorable."""
    code, called, why = entry.code, entry.called, entry.why
    vm, gm = entry.captured.machine, called.module
    if called.only_here:
        raise NotStorable(called.only_here)
    for fact in vm.of_process:
        raise NotStorable(f"it rests on {fact}")
    mutated, random, as_captured = graphs.effects_as_data(gm) if gm is not None else ((), False, False)
    call = frames.GraphFacts(
        repr(called.graph) if called.graph is not None else "",
        tuple(called.arguments),
        len(called.bound),
        bool(called.bound),
        called.boxes,
        tuple(mutated),
        random,
        as_captured,
        entry.pure,
        entry.operators,
        entry.at_call,
        None if called.rerun is None else (called.rerun.warned, called.rerun.assumes_sizes),
    )
    answers = [frames.RegistryAnswer(cls, abstract, answer) for (cls, abstract), answer in vm.answers.items()]
    frame = frames.StoredFrame(
        *(code, entry.guards, [*called.bound, *entry.bound], entry.written.items, entry.written.variables),
        call=call,
        why=why,
        answers=answers,
        set_orders=tuple(vm.set_orders),
        cached_calls=tuple(vm.cached_calls),
        operators={} if gm is None else custom_operators(gm),
        targets={} if gm is None else graphs.targets_of(compiled.graphs_of(called.made, gm)),
        first_run=entry.first_run,
        leaving=called.leaving,
        constant_calls=vm.constant_calls,
        devices=devices.devices_of(gm),
    )
    sections, known = frames.dump(frame)
    uncovered = next(coverage.not_covered(vm.followed.values(), code, known), None)
    if uncovered is not None:
        raise NotStorable(f"no guard names {uncovered.co_name} of {uncovered.co_filename}, which it calls")
    return sections, known


def about(key: keys.FrameKey, entry: NewEntry) -> bytes:
    """Return what people are told of an entry."""
    place = beginning(entry.code)
    found = {
        "function": place.function,
        "qualified name": qualname_of(resume.origin(entry.code).code),
        "file": place.filename,
        "line": place.line,
        "backend": entry.compiler.backend_name,
        "operators": entry.operators,
        "guards": len(entry.guards),
        "ends": None if entry.why is None else entry.why.reason,
        "key": key.parts,
        "environment": keys.facts_of_environment(),
    }
    return json.dumps(found).encode()


def check(sections: dict[str, bytes], entry: NewEntry) -> None:
    """Read an entry back for the frame that it was made for. Raises NotStorable if that says something else."""
    try:
        frame = frames.LoadedFrame(sections, entry.code, entry.roots)
        if not frames.agree(frame.guards, entry.guards):
            raise NotStorable("its guards say something else when they are read back")
        frame.confirm(entry.program)
        frame.written(frame.call.name, frame.rerun(), entry.first_run)
    except Unresolved as error:
        raise NotStorable(f"{error}, when it is read back") from None


def save(key: str, sections: dict[str, bytes], blobs: dict[str, bytes]) -> None:
    """Write the file of an entry, and its blobs first. Raises OSError, Untrusted or NotStorable."""
    content = files.packed(sections)
    largest = max(map(len, (content, *blobs.values())))
    if largest > places.LARGEST:
        raise NotStorable(f"it has {largest} bytes in one file, and {places.LARGEST} are read at most")
    root = places.made_private(places.folder())
    for digest, blob in blobs.items():
        path = places.made_private(places.blobs_in(root)) / digest
        if not is_whole(path, digest):
            files.write(path, blob)
    home = places.made_private(places.frames_in(root, key))
    eviction.make_room(home)
    files.write(home / f"{files.digest(content)[:16].hex()}.td", content)
    prune_at_exit(root)


def is_whole(path: Path, digest: str) -> bool:
    """Return whether a blob is there, as it was written."""
    try:
        return artifacts.digest_of(path.read_bytes()) == digest
    except OSError:
        return False


@functools.cache
def prune_at_exit(root: Path) -> None:
    """See to it that a store to which this process has written is small when it ends."""
    atexit.register(eviction.prune_if_due, root)
