"""What changes an object says so: a checkpoint in which it happens to what its caller has made is not captured."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.errors import Unsupported

HEAD = """
import collections, functools, io, itertools, random, threading
import numpy as np
import torch
from torch.utils.checkpoint import checkpoint
class Box:
    n = 0
    def __init__(self): self.n = 0
class Slotted:
    __slots__ = "s"
    def __init__(self): self.s = 0
"""

NOTE = "; own.add_note('a')" if hasattr(KeyError, "add_note") else ""
# What makes an object; statements that change it; statements that do not.
METHODS = {
    "[3, 1, 2]": (
        "own.append(1); own.extend([1]); own += [1]; own *= 2; own.insert(0, 1); own.pop(); own.remove(1); own.clear();"
        "own.sort(); own.reverse(); own[0] = 7; own[:1] = [7, 8]; del own[0]; own.__init__([1])",
        "len(own); own[0]; own[1:]; own.index(1); own.count(1); own + [1]; sorted(own); 1 in own; own.copy()",
    ),
    "{'a': 1, 'b': 2}": (
        "own['c'] = 1; own['a'] = 7; del own['a']; own.pop('a'); own.popitem(); own.clear(); own.update(c=1);"
        "own.setdefault('c', 1); own |= {'c': 1}",
        "own['a']; own.get('c'); own.pop('c', None); own.setdefault('a', 1); own.items(); own.copy(); own | {}",
    ),
    "{1, 2}": (
        "own.add(3); own.discard(1); own.remove(1); own.pop(); own.clear(); own.update({3}); own |= {3}; own &= {1};"
        "own -= {1}; own ^= {1}",
        "1 in own; len(own); own | {3}; own & {1}; own.copy(); own.union({3}); sorted(own)",
    ),
    "collections.deque([3, 1, 2])": (
        "own.append(1); own.appendleft(1); own.extend([1]); own.extendleft([1]); own.pop(); own.popleft();"
        "own.rotate(); own.reverse(); own.clear(); own.insert(0, 1); own.remove(1); own[0] = 7; del own[0]; own += [1]",
        "len(own); own[0]; own.index(1); own.count(1); list(own); own.copy(); own.maxlen",
    ),
    "collections.OrderedDict(a=1, b=2)": (
        "own.move_to_end('a'); own['c'] = 1; del own['a']; own.pop('a'); own.popitem(); own.clear(); own.update(c=1)",
        "own['a']; list(own); len(own); own.copy()",
    ),
    "collections.defaultdict(list, a=[1])": (
        "own['b']; own['b'].append(1); own['a'].append(1)",
        "own['a']; own.get('b')",
    ),
    "collections.Counter('aab')": (
        "own['a'] += 1; own.update('a'); own.subtract('a')",
        "own['a']; own['z']; own.total()",
    ),
    "bytearray(b'abc')": (
        "own[0] = 7; own.append(1); own.extend(b'x'); own += b'x'; own.pop(); own.reverse(); own.clear(); del own[0];"
        "memoryview(own)[0] = 7",
        "own[0]; len(own); own.upper(); bytes(own); own + b'x'; memoryview(own)[0]",
    ),
    "io.StringIO('ab')": ("own.write('c'); own.read(); own.seek(1); own.truncate(0); own.close()", "1"),
    "random.Random(3)": ("own.random(); own.seed(1); own.getrandbits(3); own.shuffle([1, 2])", "own.getstate()"),
    "iter([1, 2])": ("next(own); list(own)", "iter(own)"),
    "(n for n in [1, 2])": ("next(own); own.close(); own.send(None)", "iter(own)"),
    "enumerate([1, 2])": ("next(own); list(own)", "1"),
    "itertools.count()": ("next(own)", "1"),
    "Box()": ("own.n = 1; own.new = 1; del own.n; own.__dict__['n'] = 1; setattr(own, 'n', 1)", "own.n; vars(own)"),
    "Slotted()": ("own.s = 1; del own.s", "own.s"),
    "threading.Lock()": ("own.acquire()", "own.locked(); own.acquire() and own.release()"),
    "threading.local()": ("own.n = 1", "hasattr(own, 'n')"),
    "functools.lru_cache(None)(lambda n: n)": ("own(1)", "own.__wrapped__"),
    "np.array([2.0, 1.0])": ("own[0] = 1; own += 1; own.fill(1); own.sort()", "own.sum(); own + 1; own[0]"),
    "KeyError('a')": ("own.args = (1,); own.__cause__ = None; own.n = 1" + NOTE, "own.args; str(own)"),
    "torch.ones(2)": ("own.n = 1; own.add_(1); own[0] = 1; own.zero_()", "own + 1; own.clone().zero_(); own[0]"),
}  # fmt: skip


def statements(which: int) -> list[tuple[str, str]]:
    return [(made, each.strip()) for made, both in METHODS.items() for each in both[which].split(";")]


def capture_in_a_checkpoint(made: str, act: str) -> None:
    """Capture, whole, a function that does this, in a checkpoint, to something that its caller has made."""
    program = (
        f"def f(x):\n    own = {made}\n    def part(y):\n        nonlocal own\n        {act}\n        return y.sin()\n"
        f"    return checkpoint(part, x, use_reentrant=False)\n"
    )
    space: dict[str, Any] = {"__name__": "told"}
    exec(HEAD + program, space)
    compiled = torchdynamo.compile(space["f"], backend="eager", fullgraph=True)
    compiled(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize(("made", "act"), statements(0))
def test_what_changes_something_is_told(made: str, act: str) -> None:
    with pytest.raises(Unsupported, match="activation-checkpoint"):
        capture_in_a_checkpoint(made, act)


@pytest.mark.parametrize(("made", "act"), statements(1))
def test_what_only_reads_is_no_effect(made: str, act: str) -> None:
    capture_in_a_checkpoint(made, act)
