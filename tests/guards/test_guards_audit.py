"""Reading a function's defaults raises an audit event; whoever listens for these is not compiled on that account."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchdynamo

PROGRAM = """
import sys, torch, torchdynamo
from torchdynamo.report.explain import collecting

class Held:
    def helper(self, x, k=2):
        return x * k

held, seen = Held(), []
fast = torchdynamo.compile(lambda x: held.helper(x), backend="eager")
fast(torch.ones(2))

def listener(event, args):
    if event == "object.__getattr__":
        seen.append(args[1])

sys.addaudithook(listener)
with collecting() as events:
    torch.set_num_threads(1)
    Held.helper.__defaults__ = (3,)
    for _ in range(3):
        assert fast(torch.ones(2)).tolist() == [3, 3]
print("__defaults__" in seen, *(event.function for event in events))
"""


@pytest.mark.long
def test_listeners_are_not_compiled() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(torchdynamo.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "<lambda>"]
