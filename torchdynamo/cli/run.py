"""The command `run`: run a program as it is, compiled, and show what was compiled, what broke, and what that costs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
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
    sys.argv[:] = [found.program, *found.arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(found.program))
    path = os.path.abspath(found.program)
    with io.open_code(path) as file:
        source = file.read()
    main = as_main(__file__=path, __spec__=None, __cached__=None)
    return status_of(lambda: exec(compile(source, path, "exec", dont_inherit=True), main), path)


def run_module(found: argparse.Namespace) -> int:
    """Run a module as `python -m MODULE` does: as `__main__`, which stays. Returns its exit status.

    Raises ImportError where an import of a package that the module is in raises it.
    """
    sys.path[0] = os.getcwd()
    sys.argv[:] = ["-m", *found.arguments]
    spec = module_spec(found.program)
    if spec is None or not isinstance(spec.loader, InspectLoader):
        print(f"{sys.executable}: No module named {found.program}", file=sys.stderr)
        return 1
    code = spec.loader.get_code(spec.name)
    if code is None:
        print(f"{sys.executable}: No code object available for {spec.name}", file=sys.stderr)
        return 1
    sys.argv[0] = code.co_filename
    main = as_main(
        __file__=code.co_filename,
        __spec__=spec,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=spec.parent,
    )
    return status_of(lambda: exec(code, main), code.co_filename)


def module_spec(name: str) -> ModuleSpec | None:
    """Return the spec of what `python -m NAME` runs, of a package its `__main__`; None if there is none."""
    try:
        spec = find_spec(name)
        is_package = spec is not None and spec.submodule_search_locations is not None
        return find_spec(f"{name}.__main__") if is_package else spec
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):  # a package in front that is not there
            return None
        raise


def as_main(**names: Any) -> dict[str, Any]:
    """Put a new module in the place of `__main__`, with some names; return its namespace."""
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=__builtins__, **names)
    before = sys.modules["__main__"]
    # multiprocessing, which torch imports, has given the module a second name, under which classes come back from
    # processes that are spawned
    for name in [name for name in ("__main__", "__mp_main__") if sys.modules.get(name) is before]:
        sys.modules[name] = module
    return module.__dict__


def status_of(program: Callable[[], object], path: str) -> int:
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


def begun_at(trace: TracebackType | None, path: str) -> TracebackType | None:
    """Return a traceback from the program's own first frame on; None for a program that did not compile."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename != path:
        first = first.tb_next
    return first
