"""Load the extension, and say what to do if it was built for another torch or Python."""

from __future__ import annotations

import platform
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

REBUILD = "Build it here: `pip install -e . --no-build-isolation`, or `python setup.py build_ext --inplace`."


def installed_torch() -> str | None:
    """Return torch's version, importing it, since an extension that links against it needs it loaded; or None."""
    if find_spec("torch") is None:
        return None
    version: str = str(import_module("torch").__version__)
    return version


def check_versions(built_for_torch: str, built_for_python: str, torch: str | None) -> None:
    """Raise ImportError if the extension was built for another torch or Python; one built without torch fits any."""
    if built_for_torch and built_for_torch != torch:
        raise ImportError(f"torchdynamo was built for torch {built_for_torch}, and this is torch {torch}. {REBUILD}")
    here = platform.python_version()
    if built_for_python.rpartition(".")[0] != here.rpartition(".")[0]:
        raise ImportError(f"torchdynamo was built for Python {built_for_python}, and this is Python {here}. {REBUILD}")


def load_native() -> ModuleType:
    torch = installed_torch()
    try:
        native = import_module("torchdynamo._native")
    except ImportError as error:
        raise ImportError(
            f"torchdynamo's extension cannot be loaded ({error}): it is not built, or was built for another torch or "
            f"Python than torch {torch} and Python {platform.python_version()}. {REBUILD}"
        ) from error
    check_versions(native.TORCH_VERSION, native.PYTHON_VERSION, torch)
    return native
