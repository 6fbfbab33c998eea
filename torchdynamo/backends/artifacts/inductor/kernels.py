"""Load kernels in C++ that Inductor compiled, without Inductor.

A kernel is an extension module with one function. As it is loaded it takes the address of a C function from an
environment variable: how to get at a tensor's data.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchdynamo import _native
from torchdynamo.backends.artifacts.artifact import BadArtifact, CannotStore, ReadBlob, read_verified

ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
MODULE = "kernel"  # the kernel exports PyInit_kernel, and has a function of this name

_loaded: dict[str, Callable[..., Any]] = {}  # by digest: Python never unloads an extension module
_lock = threading.Lock()


def library_of(kernel: Any) -> bytes:
    """Return the contents of the library that a kernel has been loaded from. Raises CannotStore if there is none."""
    path = getattr(getattr(kernel, "__self__", None), "__file__", None)
    if getattr(kernel, "__name__", None) != MODULE or not isinstance(path, str):
        raise CannotStore(f"a kernel is a {type(kernel).__name__} and not a function of a library")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotStore(f"the library of a kernel cannot be read: {error}") from None


def load_kernel(name: str, read_blob: ReadBlob) -> Callable[..., Any]:
    """Return the kernel in a library, which is loaded once per process.

    name: the digest of the library. Raises BadArtifact for a library that is not what was written, or cannot be loaded.
    """
    with _lock:
        if name not in _loaded:
            path, _ = read_verified(name, read_blob)
            _loaded[name] = kernel_at(path)
        return _loaded[name]


def kernel_at(path: str) -> Callable[..., Any]:
    """Load the library at a path and return its kernel."""
    loader = importlib.machinery.ExtensionFileLoader(f"torchdynamo.artifact.{MODULE}", path)
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec is not None
    ours, before = str(_native.tensor_data_pointer()), os.environ.get(ADDRESS)
    os.environ[ADDRESS] = ours
    try:
        module = importlib.util.module_from_spec(spec)
        sys.modules.pop(loader.name, None)  # an extension puts itself there
        loader.exec_module(module)
        kernel: Callable[..., Any] = getattr(module, MODULE)
    except (ImportError, AttributeError) as error:
        raise BadArtifact(f"the library of a kernel cannot be loaded: {error}") from error
    finally:
        if os.environ.get(ADDRESS) == ours:  # Inductor sets it and leaves it, maybe in another thread just now
            if before is None:
                del os.environ[ADDRESS]
            else:
                os.environ[ADDRESS] = before
    return kernel
