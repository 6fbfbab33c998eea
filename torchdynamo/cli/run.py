"""The command `run`: run a program as it is, compiled, and show what was compiled, what broke, and what that costs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import Any

from rich.console import Console
from rich.text import Text

from torchdynamo import events
from torchdynamo.api import optimize
from torchdynamo.backends.registry import list_backends
from torchdynamo.drop_in import install
from torchdynamo.report.saving import save, writer_of
from torchdynamo.report.screen import WIDTH, screen
from torchdynamo.report.summary import Report, report_of
from torchdynamo.report.timing import timed_graphs

FAILED = 3
"""The exit status where something happened that `--fail-on` names."""
FAILURES = ("breaks", "recompiles", "fallbacks", "limits")


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments; what follows the program is the program's."""
    parser = argparse.ArgumentParser(
        prog="python -m torchdynamo run",
        description="Run a program as it is, compile what it computes, and show what was compiled, what broke, and "
        "what that costs.",
    )
    parser.add_argument(
        "--backend", default="inductor", help="the backend of what is compiled here (default: inductor)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--watch", action="store_true", help="compile only what the program itself compiles by torchdynamo"
    )
    how.add_argument("--install", action="store_true", help="compile only what the program hands to torch.compile")
    parser.add_argument(
        "--report", metavar="FILE", action="append", default=[], help="write the report: .json, .html, .trace.json"
    )
    parser.add_argument(
        "--fail-on",
        metavar="WHAT",
        default="",
        help=f"exit with {FAILED} where there was any of these: {','.join(FAILURES)}",
    )
    parser.add_argument("--quiet", action="store_true", help="show nothing at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, as of python -m")
    parser.add_argument("program", help="a file, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    found = parser.parse_args(given)
    found.fail_on = [word.strip() for word in found.fail_on.split(",") if word.strip()]
    # "fallback" reads as well as "fallbacks"
    found.fail_on = [word if word in FAILURES else f"{word}s" for word in found.fail_on]
    for word in found.fail_on:
        if word not in FAILURES:
            parser.error(f"--fail-on takes {', '.join(FAILURES)}, not {word.removesuffix('s')!r}")
    for path in found.report:
        try:
            writer_of(path)
        except ValueError as error:
            parser.error(str(error))
    if found.backend not in list_backends():
        parser.error(f"there is no backend {found.backend!r}; there are {', '.join(list_backends())}")
    if not found.module and not os.path.isfile(found.program):
        parser.error(f"there is no file {found.program!r}")
    return found


def main(given: Sequence[str]) -> int:
    """Run a program and show the report on standard error. Returns the program's exit status, or FAILED."""
    found = arguments_of(given)
    began = time.perf_counter()
    with timed_graphs() as graph_calls, compiled_by(found):
        status = run_module(found) if found.module else run_file(found)
    seconds = time.perf_counter() - began
    title = os.path.basename(found.program)
    made = report_of(events.recent(), title=title, graph_calls=list(graph_calls), skipped=events.skips())
    for path in found.report:
        save(made, path)
    if not found.quiet:
        console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
        console.print(Text(f"\ntorchdynamo: {title} ran for {seconds:.1f} s", style="bold"))
        console.print(screen(made.to_dict(), short=True))
    return status or (FAILED if failures(made, found.fail_on) else 0)


def failures(made: Report, kinds: Sequence[str]) -> list[str]:
    """Return which of some kinds of events there were."""
    return [kind for kind in kinds if made["totals"][kind]]


def compiled_by(found: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    """Return the context that the program runs in."""
    if found.watch:
        return contextlib.nullcontext()
    together = contextlib.ExitStack()
    together.enter_context(install())
    if not found.install:
        together.enter_context(optimize(found.backend))
    return together


def run_file(found: argparse.Namespace) -> int:
    """Run a file as `python FILE` does: as `__main__`, which stays. Returns its exit status."""
    path = found.program
    sys.argv[:] = [path, *found.arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(path) as file:
        source = file.read()
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = module
    return status_of(lambda: exec(compile(source, path, "exec", dont_inherit=True), module.__dict__), path)


def run_module(found: argparse.Namespace) -> int:
    """Run a module as `python -m MODULE` does. Returns its exit status."""
    sys.argv[:] = [found.program, *found.arguments]
    sys.path[0] = os.getcwd()
    return status_of(lambda: runpy.run_module(found.program, run_name="__main__", alter_sys=True), None)


def status_of(program: Callable[[], object], path: str | None) -> int:
    """Run a program; return its exit status, and show an exception as Python does, without our frames."""
    try:
        program()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException as error:
        error.__traceback__ = begun_at(error.__traceback__, path)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def begun_at(trace: TracebackType | None, path: str | None) -> TracebackType | None:
    """Return a traceback from the program's own first frame on; all of it for a program that did not compile."""
    first = trace
    while first is not None and (path is None or first.tb_frame.f_code.co_filename != path):
        first = first.tb_next
    return first
