"""Locks are taken without a break where no other thread runs; tests before these may have left some running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_in_a_process_of_their_own() -> None:
    tests = Path(__file__).with_name("locks.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout
