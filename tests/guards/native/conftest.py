"""The native guard program by itself. With TORCHDYNAMO_HOOK_ONLY set to the folder of a hook-only build these tests
need no torch, and run on any Python that has pytest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

HOOK_ONLY = os.environ.get("TORCHDYNAMO_HOOK_ONLY")

if HOOK_ONLY and "torchdynamo" not in sys.modules:
    package = ModuleType("torchdynamo")
    source = Path(__file__).parents[3] / "torchdynamo"
    package.__path__ = [str(Path(HOOK_ONLY) / "torchdynamo"), str(source)]
    sys.modules["torchdynamo"] = package
