"""Builds `torchdynamo._native`.

    pip install .                              built against the torch that is installed here; `-e .` works too
    python setup.py build_ext --inplace        while working on the C files

What can be asked of it, by environment variables:

    TORCHDYNAMO_DEBUG=1             -O0 -g -UNDEBUG: C asserts are on
    TORCHDYNAMO_SANITIZE=address    the same, under AddressSanitizer (docs/native.md says how to run it)
    TORCHDYNAMO_HOOK_ONLY=1         leave out the files that need torch: the hook alone, for a Python that has no torch
    TORCHDYNAMO_FREE_THREADED=1     build for free-threaded CPython 3.13, which is not supported: docs/support.md
    TORCHDYNAMO_BUILD_LIB=DIR       put the extension there, instead of beside the package
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
CSRC = Path("torchdynamo/hook/csrc")
SUPPORTED = ((3, 10), (3, 14))
TORCHES = ((2, 10), (2, 14))
FREE_THREADED = os.environ.get("TORCHDYNAMO_FREE_THREADED") == "1"
HOOK_ONLY = os.environ.get("TORCHDYNAMO_HOOK_ONLY") == "1"
SANITIZE = os.environ.get("TORCHDYNAMO_SANITIZE", "")
DEBUG = os.environ.get("TORCHDYNAMO_DEBUG") == "1" or bool(SANITIZE)


def refuse(why: str, what_to_do: str) -> None:
    raise SystemExit(f"torchdynamo cannot be built here: {why}.\n{what_to_do}")


def check_python() -> None:
    low, high = SUPPORTED
    if not low <= sys.version_info[:2] <= high or sys.implementation.name != "cpython":
        refuse(
            f"it needs CPython {low[0]}.{low[1]} to {high[0]}.{high[1]}, and this is "
            f"{sys.implementation.name} {sys.version.split()[0]}",
            "Make a virtual environment with one of those, e.g. `python3.11 -m venv .venv`.",
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED") and not (FREE_THREADED and sys.version_info[:2] == (3, 13)):
        refuse(
            "free-threaded Python is not supported",
            "Use the ordinary build of the same version; to try what there is on 3.13t, TORCHDYNAMO_FREE_THREADED=1.",
        )


def check_setuptools() -> None:
    if int(setuptools.__version__.partition(".")[0]) < 77:
        refuse(
            f"setuptools {setuptools.__version__} is too old to read pyproject.toml",
            "Upgrade it: `pip install --upgrade setuptools wheel ninja`.",
        )


def check_compiler(variable: str, what: str) -> None:
    command = os.environ.get(variable) or sysconfig.get_config_var(variable) or "g++"
    program = shlex.split(command)[0]
    if shutil.which(program) is None:
        refuse(f"no {what} compiler ({program} is not on PATH)", f"Install one (`apt install g++`), or set {variable}.")


def check_header() -> None:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        version = sysconfig.get_python_version()
        refuse(f"there is no {header}", f"Install Python's headers: `apt install python{version}-dev`.")


def check_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        refuse(
            f"torch is not installed for {sys.executable}",
            f"Install it first: `{sys.executable} -m pip install torch`. If that Python was made for this build only, "
            "build without one: `uv pip install --no-build-isolation .`, `python -m build --no-isolation`.",
        )


def check_torch_version(version: str) -> None:
    low, high = (f"{major}.{minor}" for major, minor in TORCHES)
    if not TORCHES[0] <= tuple(map(int, version.split(".")[:2])) <= TORCHES[1]:
        refuse(
            f"it knows PyTorch {low} to {high}, and this is {version}",
            f"Install one of these first: `{sys.executable} -m pip install 'torch=={high}.*'`.",
        )


def compile_flags() -> list[str]:
    flags = ["-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
    flags += ["-O0", "-g", "-UNDEBUG"] if DEBUG else ["-O2", "-g0"]  # Python's own flags have a -g
    if SANITIZE:
        flags += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
    return flags


def sources(*suffixes: str) -> list[str]:
    found = sorted(path for path in (ROOT / CSRC).iterdir() if path.suffix in suffixes)
    return [str(path.relative_to(ROOT)) for path in found]


def compile_as_c(command: build_ext, extension: Extension) -> None:
    """Files that include CPython's internals must reach the C compiler; torch's build sends every source to g++."""
    plain = [source for source in extension.sources if source.endswith(".c")]
    extension.sources = [source for source in extension.sources if source not in plain]
    compiler = command.compiler
    unpatched = type(compiler).compile

    def objects_of(source: str) -> list[str]:
        return unpatched(
            compiler,
            [source],
            output_dir=command.build_temp,
            macros=extension.define_macros,
            include_dirs=extension.include_dirs,
            extra_postargs=[*extension.extra_compile_args, "-std=gnu11"],
            depends=extension.depends,
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        extension.extra_objects = [name for names in pool.map(objects_of, plain) for name in names]


def compile_as_one(command: build_ext, extension: Extension) -> None:
    """Have the C++ files compiled as one, since each by itself takes 20 s, nearly all of it for torch's headers."""
    together = [source for source in extension.sources if source.endswith(".cpp")]
    text = "".join(f'#include "{Path(source).name}"\n' for source in together)
    whole = Path(command.build_temp, "native.cpp")
    if not whole.is_file() or whole.read_text() != text:  # ninja goes by when it was written
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)
    extension.sources = [str(whole)]


def extension_arguments(torch_version: str) -> dict[str, Any]:
    return {
        "name": "torchdynamo._native",
        "include_dirs": [str(ROOT / CSRC)],
        "depends": sources(".h"),
        "define_macros": [
            ("TD_TORCH_VERSION", f'"{torch_version}"'),
            *([("TD_FREE_THREADED", "1")] if FREE_THREADED else []),
        ],
        "extra_compile_args": compile_flags(),
        "extra_link_args": [f"-fsanitize={SANITIZE}"] if SANITIZE else [],
    }


def hook_only() -> tuple[Extension, type[build_ext]]:
    arguments = extension_arguments("")
    arguments["define_macros"].append(("TD_HOOK_ONLY", "1"))
    return Extension(sources=sources(".c"), **arguments), build_ext


def full() -> tuple[Extension, type[build_ext]]:
    check_torch()
    import torch

    check_torch_version(torch.__version__)
    from torch.utils.cpp_extension import BuildExtension, CppExtension

    class BuildNative(BuildExtension):  # type: ignore[misc]
        def build_extension(self, ext: Extension) -> None:
            compile_as_c(self, ext)
            compile_as_one(self, ext)
            super().build_extension(ext)

    return CppExtension(sources=sources(".c", ".cpp"), **extension_arguments(torch.__version__)), BuildNative


def main() -> None:
    check_python()
    check_setuptools()
    check_header()
    check_compiler("CC", "C")
    if not HOOK_ONLY:
        check_compiler("CXX", "C++")
    extension, command = hook_only() if HOOK_ONLY else full()
    elsewhere = os.environ.get("TORCHDYNAMO_BUILD_LIB")
    options = {"build_ext": {"build_lib": elsewhere}} if elsewhere else {}
    setup(ext_modules=[extension], cmdclass={"build_ext": command}, options=options)


main()
