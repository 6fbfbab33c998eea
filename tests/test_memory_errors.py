"""Fail each allocation of a call of a compiled function: it gives eager's result or MemoryError, and never crashes.

Only calls that are served from the cache: PyTorch itself does not survive a failed allocation in most of what a capture
uses (a grad mode that cannot be made is used all the same), so nothing can be promised there.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("_testcapi", reason="this Python was built without its test modules")

PROGRAM = """
    import collections, enum, sys
    import _testcapi
    import torch
    import torchdynamo

    class Colour(enum.Enum):
        RED = 1

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.table = {"a": 1, 2: (3, 4)}
            self.order = collections.OrderedDict(one=1.0, two=None)
            self.numbers = [1, 2.5, "three", Colour.RED]
            self.found = {1, 2}

        def forward(self, x, by=2, *more, scale=1.0, **rest):
            if "missing" in self.table or len(self.numbers) > 9 or self.order["two"] is not None:
                return x
            y = self.linear(x) * self.table["a"] + self.table[2][1] + by * scale + len(more) + len(rest)
            return [y, more, rest] if 1 in self.found else y

    RESULT = torch.zeros(2, 4)

    compiles = 0

    def ready(gm, example_inputs):
        global compiles
        compiles += 1
        count = len(next(node for node in gm.graph.nodes if node.op == "output").args[0])
        return lambda *inputs: (RESULT,) * count

    model = Model()
    x = torch.ones(2, 4)
    CALLS = [lambda: compiled(x), lambda: compiled(x, 3, 4, 5), lambda: compiled(x, scale=2.0, other="b")]

    def failing_at(number, call, wanted):
        _testcapi.set_nomemory(number, number + 1)
        try:
            try:
                got = call()
            finally:
                _testcapi.remove_mem_hooks()
        except MemoryError:
            return True
        assert got[0] is RESULT and got[1:] == wanted[1:], (number, got)
        return False

    failed = times = 0
    for number in range({tries}):
        if {fresh} or number == 0:
            torchdynamo.reset()
            times += 1
            compiled = torchdynamo.compile(model, backend=ready, dynamic=False)
            wanted = [call() for call in CALLS]
        for call, result in zip(CALLS, wanted):
            failed += failing_at(number, call, result)
    assert [call()[1:] for call in CALLS] == [result[1:] for result in wanted]
    assert compiles == times * len(CALLS), (compiles, times)
    print("failed", failed)
"""


@pytest.mark.long
@pytest.mark.parametrize(("fresh", "tries"), [(False, 200), (True, 40)], ids=["settled", "while guards are armed"])
def test_a_hit_without_memory(fresh: bool, tries: int) -> None:
    program = textwrap.dedent(PROGRAM).replace("{tries}", str(tries)).replace("{fresh}", str(fresh))
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 0, "no allocation failed: the hits were not tried"
