"""Begin with what another process has captured and compiled: look for an entry in the store, and keep new ones there.

See cache/store for the format and the rules, and docs/warm_start.md.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any
from weakref import ref

import torch

from torchdynamo import _native, config, events
from torchdynamo.backends import artifacts
from torchdynamo.backends.run import Careful, on_error
from torchdynamo.cache import budget
from torchdynamo.cache.entries import CompiledEntry
from torchdynamo.cache.store import compiled, coverage, eviction, files, frames, graphs, keys, places
from torchdynamo.cache.store.rows import Unresolved
from torchdynamo.cache.store.values import NotStorable, NotYetStorable
from torchdynamo.cache.weak_invalidation import Ties
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import Why
from torchdynamo.capture.torch import dynamic_marks
from torchdynamo.codegen import resume
from torchdynamo.codegen.codegen import Written
from torchdynamo.codegen.deopt import Bailout
from torchdynamo.core.call_sites import CallSite
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.errors import RecordError
from torchdynamo.graph.modes import Modes
from torchdynamo.graph_compilation import CalledGraph, callable_graph, next_graph_name
from torchdynamo.guards.explain import Guards
from torchdynamo.report import explain
from torchdynamo.report.compiles import beginning, next_graph_id
from torchdynamo.specialization import CompilerSettings

MODES = {"0": "off", "off": "off", "read": "read", "1": "on", "on": "on"}


def mode() -> str:
    """Return whether the store is used: "off", "read" or "on"."""
    return MODES.get(config.cache or os.environ.get("TORCHDYNAMO_CACHE", ""), "off")


def is_used(compiler: CompilerSettings) -> bool:
    """Return whether frames of a compiler are looked for: not by whoever wants to see them captured."""
    return mode() != "off" and not (explain.watched() or config.verify_correctness or config.debug)


def key_of(code: CodeType, roots: Roots, compiler: Any) -> str:
    """Return the key of a frame. Raises NotStorable if it has none."""
    backend = compiler.backend_name
    if not compiler.backend_is_ours:
        raise NotStorable(f"backend {backend!r} is not one of ours: nothing says whether it is what it was")
    keys.check_kernels()
    digest = keys.compiler_digest(backend, compiler.asked)
    return keys.frame_key(code, str(roots.globals.get("__name__")), digest)


def key_if_used(code: CodeType, roots: Roots, compiler: Any) -> str | None:
    """Return the key of a frame that may be stored; None for others. It is asked before anything is imported."""
    if not is_used(compiler) or any(map(is_marked, roots.locals.values())):
        return None
    try:
        return key_of(code, roots, compiler)
    except NotStorable as error:
        tell(code, f"not stored: {error}")
        return None


def is_marked(obj: Any) -> bool:
    """Return whether an argument is a tensor of whose sizes the program has said something: a capture checks that."""
    return isinstance(obj, torch.Tensor) and any(name in obj.__dict__ for name in MARKS)


MARKS = (
    *(dynamic_marks.DYNAMIC, dynamic_marks.RANGES, dynamic_marks.MAYBE),
    *(dynamic_marks.UNBACKED, dynamic_marks.STATIC),
)


def find(key: str | None, code: CodeType, roots: Roots, compiler: Any, started: float) -> Any:
    """Return an entry for a frame that another process has stored, and whose guards hold; None if there is none."""
    if key is None:
        return None
    for root in (*places.baked(), places.folder()):
        for path in places.entries_at(root, key):
            found = read(path, root, code, roots, compiler, started)
            if found is not None:
                return found
    return None


def read(path: Path, root: Path, code: CodeType, roots: Roots, compiler: Any, started: float) -> Any:
    """Return the entry in a file if its guards hold for a frame; None if they do not, or if the file is damaged."""
    try:
        sections = files.unpacked(places.contents(path))
        frame = frames.LoadedFrame(sections, code, roots)
        program = frame.verified()
        entry = entry_of(frame, program, sections, root, compiler)
    except Unresolved as error:
        tell(code, f"a stored version does not fit: {error}")
        return None
    except places.Untrusted as error:
        places.complain(str(error))
        return None
    except OSError:
        return None  # another process has removed it
    except files.Damaged as error:
        places.complain(f"{path} is damaged ({error})")
        discard(path)
        return None
    except (RecordError, *compiled.FAULTS) as error:
        places.complain(f"{path} cannot be read ({type(error).__name__}: {error})")
        return None
    seconds = {"store": time.perf_counter() - started}
    events.record(
        "compile",
        beginning(code),
        operators=frame.call.operators,
        backend=compiler.backend_name,
        graph=str(entry.info.name),
        code=ref(code),
        made=ref(entry.info.code),
        seconds=seconds,
        stored="hit",
    )
    touch(path)
    return entry


def entry_of(frame: frames.LoadedFrame, program: Any, sections: dict[str, bytes], root: Path, compiler: Any) -> Any:
    """Return the entry of a frame whose guards hold."""
    code, call = frame.code, frame.call
    name = next_graph_name() if call.name else ""
    graph = gm = None
    rerun = frame.rerun()
    if rerun is not None:
        rerun.final = compiler.fullgraph
    if name:
        gm = graphs.StoredGraph(sections["graph"])
        graph = graph_of(frame, gm, name, sections["backend"], root, compiler, rerun)
    items = frame.written(name, rerun)
    made = Written(items, frame.variables).assembled(code)
    bound = frame.bound[call.bound_inputs :]
    record = CompiledEntry(
        made, Guards(frame.guards, program), gm, frame.why, name, compiler, Ties(code, frame.guards, bound)
    )
    begun = {"local": (name, graph)} if graph is not None else {}
    entry = _native.Entry(made, program, owner_id=compiler.owner_id, info=record, **begun)
    budget.spent(code, compiler.owner_id, call.operators)
    budget.fruitful(code, resume.origin(code).code, compiler.owner_id)
    return entry


def graph_of(
    frame: frames.LoadedFrame,
    gm: graphs.StoredGraph,
    name: str,
    backend: bytes,
    root: Path,
    compiler: Any,
    rerun: Bailout | None,
) -> Any:
    """Return the compiled graph of a frame as its code calls it."""
    call, graph_id = frame.call, next_graph_id(frame.code)
    made = compiled.load_compiled(backend, gm, functools.partial(places.blob_at, root))
    run = made
    if (call.mutated or call.random) and not compiled.is_as_captured(backend):
        run = Careful(made, call.mutated, UNKNOWN_CODE)
    written = frame.code if call.pure else None
    first: list[Any] = []
    start, known = CallSite(ref(frame.code), 0, str(frame.roots.globals.get("__name__", "")), None), frame.known
    modes = Modes.now()

    def handler(error: BaseException, args: Any) -> Any:
        if not first:
            mutates = [node.name for at, node in enumerate(placeholders(gm)) if at in call.mutated]
            told = None if rerun is None else rerun.raised
            program = gm.program(known, start)  # the frame itself is not held: it has the call's tensors
            name, shown = compiler.backend_name, str(graph_id)
            made = on_error(gm.module, name, mutates, shown, told, (), program, call.pure, modes=modes)
            first.append(made)
        return first[0](error, args)

    return callable_graph(run, name, handler, call.boxes, len(frame.bound) > 0 and call.splat, written, graph_id)


def placeholders(gm: Any) -> list[torch.fx.Node]:
    """Return the inputs of a graph."""
    return list(gm.graph.find_nodes(op="placeholder"))


UNKNOWN_CODE = (lambda: None).__code__  # of a graph that no error has come from yet


def keep(
    key: str | None,
    code: CodeType,
    roots: Roots,
    compiler: Any,
    captured: Capture,
    called: CalledGraph,
    written: Written,
    guards: list[Guard],
    bound: list[Source],
    pure: bool,
    operators: int,
    why: Why | None,
) -> None:
    """Write a new entry to the store, before its frame runs."""
    if mode() != "on" or key is None:
        return
    with telling(code):
        sections, known = written_sections(
            code, compiler, captured, called, written, guards, bound, pure, operators, why
        )
        check(sections, code, roots, guards)
        if called.module is None:
            save(key, sections, {})
            return
        sites = captured.machine.builder.call_sites
        sections["graph"] = graphs.dump_graph(called.module, sites, [code, *known])
        try:
            backend, blobs = compiled.dump_compiled(called.made, called.module, compiler.backend_name)
        except NotYetStorable:
            later = functools.partial(keep_later, key, ref(code), sections, ref(called.made), compiler.backend_name)
            if not artifacts.after_backward(called.made, later):
                raise
            return
        save(key, {**sections, "backend": backend}, blobs)


def keep_later(key: str, code: ref[CodeType], sections: dict[str, bytes], made: ref[Any], backend: str) -> None:
    """Write an entry with gradients to the store, once its backward has been compiled."""
    there, run = code(), made()
    if there is not None and run is not None:
        with telling(there):
            content, blobs = compiled.dump_artifact(run, backend)
            save(key, {**sections, "backend": content}, blobs)


@contextlib.contextmanager
def telling(code: CodeType) -> Iterator[None]:
    """Record why an entry cannot be stored; nothing of that is an error in the program's call."""
    try:
        yield
    except NotStorable as error:
        tell(code, f"not stored: {error}")
    except places.Untrusted as error:
        places.complain(str(error))
    except OSError as error:
        places.complain(f"it cannot be written ({error.strerror})")
    except Exception as error:  # what has been compiled serves all the same
        if not config.suppress_errors:
            raise
        places.complain(f"{code.co_name} is not stored, by a fault of torchdynamo ({type(error).__name__}: {error})")


def written_sections(
    code: CodeType,
    compiler: Any,
    captured: Capture,
    called: CalledGraph,
    written: Written,
    guards: list[Guard],
    bound: list[Source],
    pure: bool,
    operators: int,
    why: Why | None,
) -> tuple[dict[str, bytes], list[CodeType]]:
    """Return an entry as the sections of a file, without its graph, and the code they name. Raises NotStorable."""
    vm, gm = captured.machine, called.module
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
        pure,
        operators,
        None if called.rerun is None else (called.rerun.warned, called.rerun.assumes_sizes),
    )
    answers = [frames.RegistryAnswer(cls, abstract, answer) for (cls, abstract), answer in vm.answers.items()]
    frame = frames.StoredFrame(
        code, guards, [*called.bound, *bound], written.items, written.variables, call, why, answers
    )
    sections, known = frames.dump(frame)
    uncovered = next(coverage.not_covered(vm.followed.values(), code, known), None)
    if uncovered is not None:
        raise NotStorable(f"no guard names {uncovered.co_name} of {uncovered.co_filename}, which it calls")
    sections["why"] = about(code, compiler, operators, len(guards), why)
    return sections, known


def about(code: CodeType, compiler: Any, operators: int, guards: int, why: Why | None) -> bytes:
    """Return what people are told of an entry."""
    place = beginning(code)
    found = {
        "function": place.function,
        "file": place.filename,
        "line": place.line,
        "backend": compiler.backend_name,
        "operators": operators,
        "guards": guards,
        "ends": None if why is None else why.reason,
        "environment": keys.facts_of_environment(),
    }
    return json.dumps(found).encode()


def check(sections: dict[str, bytes], code: CodeType, roots: Roots, guards: list[Guard]) -> None:
    """Read an entry back for the frame that it was made for. Raises NotStorable if that says something else."""
    try:
        frame = frames.LoadedFrame(sections, code, roots)
        if not frames.agree(frame.guards, guards):
            raise NotStorable("its guards say something else when they are read back")
        frame.verified()
        frame.written(frame.call.name, frame.rerun())
    except Unresolved as error:
        raise NotStorable(f"{error}, when it is read back") from None


def save(key: str, sections: dict[str, bytes], blobs: dict[str, bytes]) -> None:
    """Write the file of an entry, and its blobs first. Raises OSError or Untrusted."""
    root = places.made_private(places.folder())
    for digest, content in blobs.items():
        path = places.made_private(places.blobs_in(root)) / digest
        if not path.exists():
            files.write(path, content)
    content, home = files.packed(sections), places.made_private(places.frames_in(root, key))
    eviction.make_room(home)
    files.write(home / f"{files.digest(content)[:16].hex()}.td", content)
    prune_at_exit(root)


@functools.cache
def prune_at_exit(root: Path) -> None:
    """See to it that a store to which this process has written is small when it ends."""
    atexit.register(eviction.prune, root)


def discard(path: Path) -> None:
    """Remove a damaged file, if it is ours to remove."""
    with contextlib.suppress(OSError):
        if mode() == "on":
            path.unlink()


def touch(path: Path) -> None:
    """Note that a file has been used, at most once in an hour."""
    with contextlib.suppress(OSError):
        if mode() == "on" and time.time() - path.stat().st_mtime > HOUR:
            os.utime(path)


HOUR = 3600.0


def tell(code: CodeType, text: str) -> None:
    """Record what became of a frame in the store."""
    events.record("cache", beginning(code), text, code=ref(code))
