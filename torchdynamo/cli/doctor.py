"""The command `doctor`: check that torchdynamo and its compilers can work here, and say what to type if they cannot.

It must run where the rest of the package cannot be imported, so it imports torch and the extension as parts of a check.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import difflib
import json
import multiprocessing
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

LEAST_SPACE = 500 * 2**20
"""Bytes that the disk of a cache folder should have free."""
SOURCE = """#include <sstream>
extern "C" int f(long x) { std::ostringstream text; text << x; return text.str().size(); }
"""
"""Writes a number to a stream, as kernels do for the text of an error."""
READ = (
    "TORCHDYNAMO_CACHE",
    "TORCHDYNAMO_CACHE_DIR",
    "TORCHDYNAMO_CACHE_TRUST",
    "TORCHDYNAMO_ENSEMBLE_DB",
    "TORCHDYNAMO_LOGS",
    "TORCHDYNAMO_LOGS_OUT",
    "TORCHDYNAMO_RECORD",
    "TORCHDYNAMO_REPORT",
    "TORCHDYNAMO_REPRO",
)
"""The variables that this package reads."""
BUILD = (
    "TORCHDYNAMO_BUILD_LIB",
    "TORCHDYNAMO_DEBUG",
    "TORCHDYNAMO_FREE_THREADED",
    "TORCHDYNAMO_HOOK_ONLY",
    "TORCHDYNAMO_SANITIZE",
)
"""The variables that setup.py reads."""
IGNORED = (
    "TORCH_COMPILE_CPROFILE",
    "TORCH_COMPILE_DYNAMIC_SOURCES",
    "TORCH_COMPILE_DYNAMO_PROFILER",
    "TORCH_COMPILE_OVERRIDE_BACKENDS",
    "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS",
    "TORCH_COMPILE_REPLAY_RECORD",
)
"""Variables of torch.compile without the prefix TORCHDYNAMO_, and without an effect here."""


class Finding(NamedTuple):
    """Finding of one check. remedy: one line to type in a shell; "" where nothing is wrong."""

    check: str
    text: str
    remedy: str = ""


def import_or_error(name: str) -> tuple[Any, Exception | None]:
    """Import a module that may be broken. Returns (module, None), or (None, error)."""
    try:
        return import_module(name), None
    except Exception as error:
        return None, error


def check_torch() -> Iterator[Finding]:
    """Check that torch is installed, and that the extension was built for it and for this Python."""
    if find_spec("torch") is None:
        yield Finding("torch", "torch is not installed in this environment", f"{sys.executable} -m pip install torch")
        return
    torch, broken = import_or_error("torch")
    if broken is not None:
        remedy = f"{sys.executable} -m pip install --force-reinstall torch"
        yield Finding("torch", f"torch cannot be imported ({type(broken).__name__}: {broken})", remedy)
        return
    _, error = import_or_error("torchdynamo.hook")
    if error is None:
        yield Finding("torch", f"torch {torch.__version__} and Python {platform.python_version()}, as it was built for")
        return
    # the text is build_check's, whose last sentences say how to build in any installation
    fault = str(error).partition(" Build it here: ")[0].rstrip(".")
    yield Finding("torch", fault, f"{sys.executable} -m pip install -e . --no-build-isolation")


def compiler_name() -> str:
    """Return the C++ compiler that Inductor calls, or would call; it may not exist."""
    builder, _ = import_or_error("torch._inductor.cpp_builder")
    with contextlib.suppress(Exception):
        return str(builder.get_cpp_compiler())
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def fault_of(compiler: str) -> str:
    """Build a shared library and call it in a fork of this process. Returns what went wrong, "" if nothing did.

    A compiler that links a C++ library of its own into what it builds can make kernels that crash where they raise.
    """
    with tempfile.TemporaryDirectory(prefix="torchdynamo-doctor-") as folder:
        source, library = Path(folder, "f.cpp"), Path(folder, "f.so")
        source.write_text(SOURCE)
        line = [compiler, "-shared", "-fPIC", str(source), "-o", str(library)]
        built = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
        if built.returncode:
            told = next(
                (each for each in built.stderr.splitlines() if "error" in each), f"exit status {built.returncode}"
            )
            return f"cannot make a shared library ({told.strip()})"
        child = multiprocessing.get_context("fork").Process(target=load_and_call, args=(str(library),))
        child.start()
        child.join()
    if (status := child.exitcode or 0) >= 0:
        return ""
    return (
        f"builds code that crashes ({signal.Signals(-status).name}) where it writes a number, as kernels that raise do"
    )


def load_and_call(library: str) -> None:
    """Call the function that SOURCE defines."""
    ctypes.CDLL(library).f(12)


def check_compiler() -> Iterator[Finding]:
    """Check that the C++ compiler exists and can make a shared library that works."""
    name = compiler_name()
    named = ", which CXX names," if os.environ.get("CXX") else ""
    install = "xcode-select --install" if sys.platform == "darwin" else "apt install g++"
    remedy = "unset CXX" if named and shutil.which("g++") else install
    found = shutil.which(name)
    if found is None:
        yield Finding("compiler", f"no C++ compiler: {name}{named} is not on PATH", remedy)
    elif fault := fault_of(found):
        yield Finding("compiler", f"{found} {fault}", remedy)
    else:
        yield Finding("compiler", found)


def check_headers() -> Iterator[Finding]:
    """Check that Python.h, which Inductor's wrappers include, is where this Python says that it is."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.is_file():
        yield Finding("Python.h", str(header))
        return
    version = sysconfig.get_python_version()
    yield Finding("Python.h", f"there is no {header}, so kernels cannot be built", f"apt install python{version}-dev")


def inductors_folder() -> str | None:
    """Return Inductor's cache folder, None if torch does not say where it is."""
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    place, _ = import_or_error("torch._inductor.runtime.cache_dir_utils")
    return given or (place and str(place.default_cache_dir()))


def check_caches() -> Iterator[Finding]:
    """Check the folders in which Inductor and the ensemble keep what they have made."""
    folder = inductors_folder()
    if folder is not None:
        private = not os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        fault = fault_of_folder(Path(folder), private)
        remedy = 'export TORCHINDUCTOR_CACHE_DIR="$HOME/.cache/torchinductor"' if fault else ""
        yield Finding("Inductor's cache", fault or folder, remedy)
    database, _ = import_or_error("torchdynamo.backends.ensemble.database")
    file: Path | None = database and database.path()
    if file is not None:
        fault = fault_of_folder(file.parent, private=False)
        remedy = 'export TORCHDYNAMO_ENSEMBLE_DB="$HOME/ensemble.sqlite3"' if fault else ""
        yield Finding("ensemble's cache", fault or str(file.parent), remedy)


def fault_of_folder(folder: Path, private: bool) -> str:
    """Return why a folder, or one that is yet to be made, cannot be used as a cache; "" if it can.

    private: it must belong to this user, and nobody else may write to it.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        return f"{folder} cannot be made: {there} is a file" if there != folder else f"{folder} is not a folder"
    try:
        with tempfile.TemporaryDirectory(prefix=".torchdynamo-doctor-", dir=there):
            pass
    except OSError as error:
        return f"{folder} cannot be written to ({error.strerror})"
    known = os.lstat(there)
    if private and there == folder and hasattr(os, "getuid"):
        if known.st_uid != os.getuid():
            return f"{folder} belongs to another user (id {known.st_uid}), so it is not used"
        if known.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write to {folder}, so it is not used"
    free = shutil.disk_usage(there).free
    return f"{folder} has only {free >> 20} MiB of free space" if free < LEAST_SPACE else ""


class LibraryOfAddress(ctypes.Structure):
    """`Dl_info` of the C library: which file, and which symbol, an address is in."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def check_frame_hooks() -> Iterator[Finding]:
    """Check that this Python starts without somebody else's frame evaluator (PEP 523)."""
    python = ctypes.pythonapi
    interpreter, evaluator = python.PyInterpreterState_Get, python._PyInterpreterState_GetEvalFrameFunc
    interpreter.restype = evaluator.restype = ctypes.c_void_p
    evaluator.argtypes = [ctypes.c_void_p]
    found = evaluator(interpreter())
    if found == ctypes.cast(python._PyEval_EvalFrameDefault, ctypes.c_void_p).value:
        yield Finding("frame evaluator", "Python's own")
        return
    known = LibraryOfAddress()
    with contextlib.suppress(AttributeError):  # systems without dladdr
        python.dladdr(ctypes.c_void_p(found), ctypes.byref(known))
    library = os.fsdecode(known.file or b"code made while running")
    text = f"another frame evaluator (PEP 523) is in before the program starts, from {library}: every call is slower"
    yield Finding("frame evaluator", text, f"{sys.executable} -X importtime -c pass  # lists what it loads")


def check_variables() -> Iterator[Finding]:
    """Check that each variable that seems to be meant for torchdynamo is one that it reads."""
    faults = [*ignored_variables(os.environ)]
    yield from faults or [Finding("variables", "none is set that has no effect")]


def ignored_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Find variables that are set and have no effect: misspelt ones, and torch.compile's own."""
    for name in sorted(environment):
        if (not name.startswith("TORCHDYNAMO_") or name in READ + BUILD) and name not in IGNORED:
            continue
        near = difflib.get_close_matches(name, READ, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield Finding("variables", f"{name} is set, and has no effect on torchdynamo{hint}", f"unset {name}")


def check_gpu() -> Iterator[Finding]:
    """Check that a GPU that is there can be used by torch and Inductor."""
    torch, _ = import_or_error("torch")
    if torch is None or not hasattr(torch, "cuda"):
        return
    usable = torch.cuda.is_available()
    if usable and find_spec("triton") is None:
        remedy = f"{sys.executable} -m pip install triton"
        yield Finding("GPU", f"Inductor needs the package triton for {torch.cuda.get_device_name()}", remedy)
    elif usable:
        yield Finding("GPU", ", ".join(torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())))
    elif os.path.exists("/dev/nvidia0"):
        remedy = f"{sys.executable} -c 'import torch; torch.zeros(1).cuda()'  # says why"
        yield Finding("GPU", f"torch {torch.__version__} cannot use the GPU of this machine", remedy)
    else:
        yield Finding("GPU", "none: everything is compiled for the CPU")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_frame_hooks,  # before torch is imported, which may bring one
    check_torch,
    check_compiler,
    check_headers,
    check_caches,
    check_variables,
    check_gpu,
)


def is_asked(argv: Sequence[str], line: Sequence[str]) -> bool:
    """Return whether `python -m torchdynamo doctor` is about to run, from sys.argv and sys.orig_argv.

    Python imports the package before the command, and `argv[0]` is "-m" until then.
    """
    return list(argv[:2]) == ["-m", "doctor"] and any(each.removeprefix("-m") == "torchdynamo" for each in line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what each check found. Returns the exit status: 1 if something is wrong."""
    parser = argparse.ArgumentParser("python -m torchdynamo doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON: check, text, remedy")
    found = parser.parse_args(arguments)
    findings = [finding for check in CHECKS for finding in check()]
    if found.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{'fault' if finding.remedy else 'ok':5}  {finding.check}: {' '.join(finding.text.split())}")
            if finding.remedy:
                print(f"       type: {finding.remedy}")
    return int(any(finding.remedy for finding in findings))
