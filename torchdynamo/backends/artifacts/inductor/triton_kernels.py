"""Write kernels that Triton compiled for a GPU, and launch them without Triton and Inductor.

Inductor writes a function for each kernel, its launcher, which computes the grid and passes the arguments on to torch's
launcher in C++. It is kept as bytecode, with the binary that it launches. Of several configurations that one is kept
which the first call has found to be the fastest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch

from torchdynamo.backends.artifacts.artifact import (
    BadArtifact,
    CannotStore,
    NotReady,
    ReadBlob,
    Value,
    add_blob,
    field,
    read_verified,
)
from torchdynamo.graph import torch_compat

RUNNER = "runner"  # what a launcher calls
BUILTINS = {"max": max}
TENSOR = "O"  # how torch's launcher is told that an argument is a tensor, or no memory
AS_WRITTEN = ("TEMPLATE", "USER_AUTOTUNE", "FIXED")  # kernels whose configurations Inductor does not vary
NOT_RUN = "its kernels have not run yet, and the first run chooses how they are launched"
Launch = Callable[..., None]

_loaded: dict[tuple[str, str, int], int] = {}  # by digest, function and device; they stay for good
_lock = threading.Lock()


def launcher_in_cpp() -> Any:
    """Return torch's launcher of kernels; None if this build of torch has none."""
    return torch_compat.KERNEL_LAUNCHER


def encode_launch(name: str, kernel: Any, blobs: dict[str, bytes]) -> tuple[Value, CodeType]:
    """Return how a kernel is launched as data, and its launcher's code. Raises CannotStore, and NotReady for a kernel
    whose configuration is not chosen yet.

    kernel: Inductor's object, which has a launcher for each configuration that is left.
    """
    launchers = getattr(kernel, "launchers", None)
    if launchers is None or launcher_in_cpp() is None:
        raise CannotStore(f"the kernel {name!r} is a {type(kernel).__name__}, and nothing launches it")
    if len(launchers) != 1 or is_to_be_tuned(kernel, launchers[0]):
        raise NotReady(NOT_RUN)
    (launcher,) = launchers
    code = getattr(launcher, "__code__", None)
    static = getattr(getattr(launcher, "__globals__", {}).get(RUNNER), "__self__", None)
    if not getattr(launcher, "_is_static", False) or not isinstance(code, CodeType) or static is None:
        raise CannotStore(f"the kernel {name!r} is launched by Triton")
    if set(code.co_names) - {RUNNER, *BUILTINS} or code.co_freevars:
        raise CannotStore(f"the launcher of the kernel {name!r} uses {', '.join(code.co_names)}")
    scratches = int(static.has_global_scratch) + int(static.has_profile_scratch)
    about = {
        "binary": add_blob(blobs, binary_of(name, launcher.cache_hash, static.name, device_of(kernel))),
        "function": static.name,
        "device": device_of(kernel),
        "warps": static.num_warps,
        "shared": static.shared,
        "arguments": static.arg_tys,
        "scratches": scratches,
    }
    return about, code


def is_to_be_tuned(kernel: Any, launcher: Any) -> bool:
    """Return whether the first run looks for a better configuration than those that Inductor proposed."""
    tuned = kernel.inductor_meta.get("coordinate_descent_tuning") and kernel.heuristic_type.name not in AS_WRITTEN
    return bool(tuned) and not getattr(launcher.config, "found_by_coordesc", False)


def device_of(kernel: Any) -> int:
    """Return the number of the GPU that a kernel was compiled for."""
    return int(kernel.triton_meta.get("device") or 0)


def binary_of(name: str, folder: str, function: str, device: int) -> bytes:
    """Return the binary of a kernel, which Triton keeps in a folder of its cache. Raises CannotStore."""
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    path = Path(triton_cache_dir(device), folder, f"{function}.cubin")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotStore(f"the binary of the kernel {name!r} cannot be read: {error.strerror}") from None


def decode_launch(data: dict[str, Value], code: Any, read_blob: ReadBlob) -> Any:
    """Return a kernel with a method `run`, as Inductor's code calls it. Raises BadArtifact for what `encode_launch` did
    not write, and for a binary that cannot be loaded.
    """
    if not isinstance(code, CodeType):
        raise BadArtifact("the launcher of a kernel is missing")
    launch = launching(
        function_in(field(data, "binary", str), field(data, "function", str), data, read_blob),
        field(data, "warps", int),
        field(data, "shared", int),
        field(data, "arguments", str),
        field(data, "scratches", int),
    )
    return SimpleNamespace(run=FunctionType(code, {RUNNER: launch, "__builtins__": BUILTINS}))


def function_in(binary: str, name: str, data: dict[str, Value], read_blob: ReadBlob) -> int:
    """Return the handle of a function in a binary, which is loaded once per process and device."""
    torchs, device, shared = launcher_in_cpp(), field(data, "device", int), field(data, "shared", int)
    if torchs is None or not torch.cuda.is_available() or device >= torch.cuda.device_count():
        raise BadArtifact(f"kernels are for the GPU {device}, which is not here")
    with _lock:
        key = (binary, name, device)
        if key not in _loaded:
            path, _ = read_verified(binary, read_blob)
            try:
                with torch.cuda.device(device):
                    *_, function, _, _ = torchs._load_kernel(path, name, shared, device)
            except RuntimeError as error:
                raise BadArtifact(f"the binary of a kernel cannot be loaded: {error}") from None
            _loaded[key] = function
        return _loaded[key]


def launching(function: int, warps: int, shared: int, arguments: str, scratches: int) -> Launch:
    """Return what a launcher calls with a grid, a stream and arguments.

    arguments: a letter for each that says how it is passed. scratches: the number of further ones, which are no memory.
    """
    launch, more, kinds = launcher_in_cpp()._launch_kernel, (None,) * scratches, arguments + TENSOR * scratches

    def run(x: int, y: int, z: int, stream: int, *args: Any) -> None:
        launch(function, x, y, z, warps, shared, kinds, args + more, stream)

    return run
