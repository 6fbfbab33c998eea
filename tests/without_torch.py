"""Make parts of `torchdynamo` importable where there is no torch, by being imported.

The tests of bytecode, of the hook and of guard programs need none. They run on a Python that has none, and with
TORCHDYNAMO_HOOK_ONLY set to the folder of a build of the hook alone: `torchdynamo` is then an empty parent that knows
its folders.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
HOOK_ONLY = os.environ.get("TORCHDYNAMO_HOOK_ONLY")

if HOOK_ONLY or importlib.util.find_spec("torch") is None:
    parent = ModuleType("torchdynamo")
    parent.__path__ = [str(Path(folder) / "torchdynamo") for folder in (HOOK_ONLY, ROOT) if folder]
    sys.modules["torchdynamo"] = parent
elif str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
