"""Every test begins and ends with no callback on and nothing cached.

With TORCHDYNAMO_HOOK_ONLY set to the folder of a hook-only build, the tests need no torch and run on any Python that
has pytest: the package is then looked up by parts, without its `__init__`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

HOOK_ONLY = os.environ.get("TORCHDYNAMO_HOOK_ONLY")

if HOOK_ONLY:
    package = ModuleType("torchdynamo")
    source = Path(__file__).parents[2] / "torchdynamo"
    package.__path__ = [str(Path(HOOK_ONLY) / "torchdynamo"), str(source)]
    sys.modules["torchdynamo"] = package

install = importlib.import_module("torchdynamo.hook.install")


@pytest.fixture(autouse=True)
def clean_hook() -> Iterator[None]:
    install.clear_all()
    yield
    left_on = install.set_eval_frame(None)
    install.clear_all()
    assert left_on is None
    assert not install.hook_is_in()
