"""Side effects, each kind before each reader: what was done is done as often, and in the order, of eager.

A row of KINDS is a way to leave something behind; a row of READERS a place where capture has to know whether that
happened. Each pair is one program, run eagerly and compiled in a world of its own.
"""

from __future__ import annotations

import logging
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import torchdynamo
from torchdynamo.bytecode.versions import ONE_FRAME_SHOWN
from torchdynamo.capture.show import LINES
from torchdynamo.capture.vm.effect_kinds import IN_PLACE, EffectKind
from torchdynamo.codegen.replay import REPLAYS
from torchdynamo.errors import Unsupported


class Way(NamedTuple):
    """A side effect: what the program has, what does it, and what shows it."""

    kind: EffectKind
    act: str
    look: str
    there: str = ""


KINDS = {
    "attribute": Way(EffectKind.ATTRIBUTE, "OBJ.n += 1", "OBJ.n", "OBJ = Box()"),
    "attribute met inside": Way(EffectKind.ATTRIBUTE, "REG['k'].n += 1", "REG['k'].n", "REG = {'k': Box()}"),
    "slot": Way(EffectKind.ATTRIBUTE, "OBJ.s += 1", "OBJ.s", "OBJ = Slotted()"),
    "cell": Way(EffectKind.ATTRIBUTE, "bump()", "held()", "bump, held = counter()"),
    "deleted": Way(EffectKind.ATTRIBUTE, "OBJ.__dict__.pop('n', None)", "vars(OBJ)", "OBJ = Box()"),
    "list": Way(EffectKind.ITEMS, "LOG.append(1)", "LOG", "LOG = []"),
    "list in an object": Way(EffectKind.ITEMS, "OBJ.log.append(1)", "OBJ.log", "OBJ = Box()"),
    "list in a dict": Way(EffectKind.ITEMS, "D.setdefault('k', []).append(1)", "D", "D = {}"),
    "dict": Way(EffectKind.ITEMS, "D[len(D)] = 1", "D", "D = {}"),
    "set": Way(EffectKind.ITEMS, "S.add(len(S))", "S", "S = {10}"),
    "deque": Way(EffectKind.ITEMS, "Q.append(1)", "list(Q)", "Q = collections.deque([0], 4)"),
    "ordered dict": Way(EffectKind.ITEMS, "D.move_to_end('a' if list(D)[0] == 'a' else 'b')", "list(D)",
                        "D = collections.OrderedDict(a=1, b=2)"),
    "bytes": Way(EffectKind.ITEMS, "B[0] += 1", "bytes(B)", "B = bytearray(2)"),
    "thread-local": Way(EffectKind.THREAD_LOCAL, "TL.n = TL.n + 1", "TL.n", "TL = threading.local(); TL.n = 0"),
    "generator of random numbers": Way(EffectKind.ITEMS, "R.seed(3)", "R.getstate()", "R = random.Random(1)"),
    "global": Way(EffectKind.NAME, "global N; N += 1", "N", "N = 0"),
    "module": Way(EffectKind.NAME, "MOD.n += 1", "MOD.n", "MOD = module('made'); MOD.n = 0"),
    "function": Way(EffectKind.FUNCTION, "plain.n += 1", "plain.n", "plain.n = 0"),
    "class": Way(EffectKind.CLASS, "K.n += 1", "K.n", "class K: n = 0"),
    "class that inherits": Way(EffectKind.CLASS, "Sub.n += 1", "(K.n, Sub.n)", "class K: n = 0\nclass Sub(K): pass"),
    "tensor": Way(EffectKind.TENSOR, "W.seen += 1", "W.seen", "W = torch.ones(2); W.seen = 0"),
    "gradient": Way(EffectKind.TENSOR, "W.grad = None if W.grad is not None else W * 2", "W.grad", "W = torch.ones(2)"),
    "log message": Way(EffectKind.DEFERRED, "logging.getLogger('effects').warning('said')", "MESSAGES"),
    "warning": Way(EffectKind.DEFERRED, "warnings.warn('said')", "MESSAGES"),
    "memory": Way(EffectKind.GRAPH, "W.add_(1)", "W.tolist()", "W = torch.ones(2)"),
    "random numbers": Way(EffectKind.RANDOM, "torch.rand(1)", "torch.get_rng_state().tolist()"),
}  # fmt: skip

HEAD = """
import collections, functools, logging, random, sys, threading, types, warnings, weakref
import torch, torchdynamo
from torch.utils.checkpoint import checkpoint

class Box:
    n = 0
    def __init__(self): self.n, self.log = 0, []
class Slotted:
    __slots__ = "s"
    def __init__(self): self.s = 0
def counter():
    n = 0
    def bump():
        nonlocal n
        n += 1
    return bump, lambda: n
def plain(): pass
def module(name):
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]
"""


class Reader(NamedTuple):
    """A place where it matters what has been done: the program, its calls, and how it is compiled."""

    program: str
    calls: str
    settings: dict[str, Any] = {}
    tolerates: tuple[EffectKind, ...] = ()


READERS = {
    "replayed": Reader("def f(x): act(); return x + 1", "for _ in range(3): g(torch.ones(2))"),
    "called ahead at a branch on a size": Reader(
        "def ask(): act(); return False\n"
        "def f(x):\n"
        "    if x.shape[0] > 1 and ask(): x = x * 2\n"
        "    return x + 1",
        "for n in (3, 4, 1, 1): g(torch.ones(n))",
    ),
    "cached": Reader(
        "@functools.lru_cache(None)\n"
        "def table(n): act(); return n * 2\n"
        "def f(x, n): return x * table(n)",
        "for n in (3, 4, 5, 5, 5): g(torch.ones(3), n)",
        {"dynamic": True},
    ),
    "in a checkpoint": Reader(
        "def part(y): act(); return y.sin()\n"
        "def f(x): return checkpoint(part, x, use_reentrant=False).sum()",
        "for _ in range(3): g(torch.ones(3, requires_grad=True)).backward()",
    ),
    "in a backward": Reader(
        "class Own(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): return x * 2\n"
        "    @staticmethod\n"
        "    def backward(ctx, grad): act(); return grad * 2\n"
        "def f(x): return Own.apply(x).sum()",
        "for _ in range(3): g(torch.ones(3, requires_grad=True)).backward()",
    ),
    "when an object dies": Reader(
        "class Dying:\n"
        "    def __init__(self, x): self.x = x\n"
        "    def __del__(self): act()\n"
        "@torchdynamo.disable\n"
        "def note(): SEEN.append(repr(look()))\n"
        "def f(x): d = Dying(x); y = d.x + 1; del d; note(); return y",
        "for _ in range(2): g(torch.ones(2))",
    ),
    "beside a set-up": Reader(
        "CACHE = Box(); CACHE.table = None\n"
        "def f(x):\n"
        "    if CACHE.table is None: CACHE.table = torch.ones(2)\n"
        "    act()\n"
        "    return x + CACHE.table",
        "for _ in range(4): g(torch.ones(2))",
    ),
    "before a loop that stays Python": Reader(
        "@torchdynamo.disable\n"
        "def note(): SEEN.append(repr(look()))\n"
        "def f(x):\n"
        "    act()\n"
        "    for _ in range(2): note()\n"
        "    return x",
        "for _ in range(3): g(torch.ones(2))",
    ),
}  # fmt: skip


def world(way: Way, program: str, wrap: Callable[[Any], Any]) -> dict[str, Any]:
    """The names of a program, whose `g` is `f`, compiled or not."""
    module = sys.modules["effects"] = types.ModuleType("effects")  # where its classes are found
    space = vars(module)
    space.update(SEEN=[], MESSAGES=[])
    body = f"def act():\n    {way.act}\ndef look(): return {way.look}\n"
    exec(HEAD + textwrap.dedent(way.there) + "\n" + body + program, space)
    space["g"] = wrap(space["f"])
    return space


def outcome(space: dict[str, Any], calls: str) -> Any:
    """What is to be seen when the calls have been made."""
    torch.manual_seed(0)
    handler = logging.Handler()
    handler.emit = lambda record: space["MESSAGES"].append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("effects")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *rest: space["MESSAGES"].append(str(message))
            exec(calls, space)
    finally:
        logger.removeHandler(handler)
    return repr(space["look"]()), space["SEEN"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_as_often_and_in_order(kind: str, reader: str) -> None:
    if reader == "when an object dies" and not ONE_FRAME_SHOWN:
        pytest.skip("what a continuation is given dies with the function there")
    way, (program, calls, settings, _) = KINDS[kind], READERS[reader]
    expected = outcome(world(way, program, lambda f: f), calls)
    torchdynamo.reset()
    compiled = world(way, program, lambda f: torchdynamo.compile(f, backend="eager", **settings))
    assert outcome(compiled, calls) == expected


SIDES = {
    "cond": "def f(x): return torch.cond(x.sum() > 0, one, lambda x: x - 1, (x,))",
    "cond, the other side": "def f(x): return torch.cond(x.sum() < 0, lambda x: x - 1, one, (x,))",
    "while_loop": (
        "from torch._higher_order_ops.while_loop import while_loop\n"
        "def f(x): return while_loop(lambda x: x.sum() < 9, lambda x: (one(x),), (x,))"
    ),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_side_that_does_something_is_refused(kind: str, side: str) -> None:
    way = KINDS[kind]
    program = f"def one(x): act(); return x + 1\n{SIDES[side]}"
    space = world(way, program, lambda f: torchdynamo.compile(f, backend="eager", fullgraph=True))
    before = outcome(space, "")
    if way.kind is EffectKind.RANDOM:
        outcome(space, "g(torch.ones(2))")
        return
    with pytest.raises(Unsupported):
        outcome(space, "g(torch.ones(2))")
    assert outcome(space, "") == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_done_under_a_lock_is_done_when_it_is_free(kind: str) -> None:
    way, seen = KINDS[kind], []

    def backend(gm: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.append((space["LOCK"].locked(), repr(space["look"]())))
            return gm.forward(*args)

        return run

    program = "LOCK = threading.Lock()\ndef f(x):\n    with LOCK: act()\n    return x + 1"
    space = world(way, program, lambda f: torchdynamo.compile(f, backend=backend))
    before, stop = repr(space["look"]()), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        after, _ = outcome(space, "g(torch.ones(2))")
    finally:
        stop.set()
        other.join()
    assert seen and after != before
    assert all(locked or shown != before for locked, shown in seen)


HOLDERS = {
    "a global": ("HELD = Box()", "HELD", "global HELD; HELD = None"),
    "an attribute": ("OBJ = Box(); OBJ.held = Box()", "OBJ.held", "OBJ.held = None"),
    "a deleted attribute": ("OBJ = Box(); OBJ.held = Box()", "OBJ.held", "del OBJ.held"),
    "a list": ("LOG = [Box()]", "LOG[0]", "LOG.clear()"),
    "a dict": ("D = {1: Box()}", "D[1]", "D[1] = 2"),
    "a module": ("M = module('holding'); M.held = Box()", "M.held", "M.held = None"),
    "a function": ("plain.held = Box()", "plain.held", "plain.held = None"),
    "a class": ("class K: held = Box()", "K.held", "K.held = None"),
    "a thread-local": ("TL = threading.local(); TL.held = Box()", "TL.held", "TL.held = None"),
    "a tensor": ("W = torch.ones(1); W.held = Box()", "W.held", "W.held = None"),
}  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_weak_reference_to_what_was_let_go(holder: str) -> None:
    there, held, drop = HOLDERS[holder]
    program = f"REF = weakref.ref({held})\ndef f(x):\n    {drop}\n    return x + 1 if REF() is None else x"
    way = Way(EffectKind.NAME, "pass", "None", there)
    for wrap in (lambda f: f, lambda f: torchdynamo.compile(f, backend="eager")):
        assert world(way, program, wrap)["g"](torch.zeros(1)).item() == 1


def test_a_weak_reference_where_a_constant_was_written_over() -> None:
    way = Way(
        EffectKind.CLASS, "K.n = 2; OBJ.n = 3; W.n = 4; plain.n = 5", "None", "W = torch.ones(1); W.n = 1; plain.n = 0"
    )
    program = "class K: n = 0\nOBJ = Box()\nREF = weakref.ref(OBJ)\ndef f(x): act(); return x + REF().n"
    g = world(way, program, lambda f: torchdynamo.compile(f, backend="eager", fullgraph=True))["g"]
    assert g(torch.zeros(1)).item() == 3


# -- what lasts -------------------------------------------------------------------------------------------------------
OWNERS = {
    "class": ("class K: value = None", "K"),
    "class of an instance": ("class K: value = None\nOBJ = K()", "type(OBJ)"),
    "class that inherits": ("class Up: value = None\nclass K(Up): pass", "K"),
    "object": ("K = Box(); K.value = None", "K"),
    "function": ("K = plain; K.value = None", "K"),
    "tensor": ("K = torch.ones(2); K.value = None", "K"),
    "module": ("K = module('lasting'); K.value = None", "K"),
    "thread-local": ("K = threading.local(); K.value = None", "K"),
}


def compiles(owner: str, program: str, calls: int) -> tuple[list[int], list[Any]]:
    """How many graphs there were after each call, and what the calls gave."""
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    torchdynamo.reset()
    way = Way(EffectKind.CLASS, "pass", "None", OWNERS[owner][0])
    space = world(way, program.replace("OWNER", OWNERS[owner][1]), lambda f: torchdynamo.compile(f, backend=backend))
    counts, results = [], []
    for _ in range(calls):
        results.append(space["g"](torch.ones(2)).tolist())
        counts.append(len(graphs))
    return counts, results


@pytest.mark.parametrize("owner", OWNERS)
def test_a_set_up_is_compiled_once(owner: str) -> None:
    program = "def f(x):\n    if OWNER.value is None: OWNER.value = torch.ones(2)\n    return x + OWNER.value"
    counts, results = compiles(owner, program, 4)
    assert counts == [1] * 4 and results == [[2, 2]] * 4


@pytest.mark.parametrize("owner", OWNERS)
def test_a_counter_is_compiled_once(owner: str) -> None:
    program = "OWNER.value = 0\ndef f(x): OWNER.value += 1; return x + OWNER.value"
    counts, results = compiles(owner, program, 5)
    assert counts == [1] * 5 and results == [[n + 1] * 2 for n in range(1, 6)]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_state_that_is_replaced_is_compiled_once(owner: str) -> None:
    program = "OWNER.value = torch.ones(2)\ndef f(x): OWNER.value = OWNER.value * 2; return x + OWNER.value"
    counts, results = compiles(owner, program, 4)
    assert counts == [1] * 4 and results == [[2**n + 1] * 2 for n in range(1, 5)]


def test_a_counter_that_a_subclass_reads() -> None:
    program = "class Sub(K): pass\nK.value = 0\ndef f(x): K.value += 1; return x + Sub.value + Sub().value"
    counts, results = compiles("class", program, 4)
    assert counts == [1] * 4 and results == [[2 * n + 1] * 2 for n in range(1, 5)]


# -- the frame's own --------------------------------------------------------------------------------------------------
OWN = {
    "list": ("own = []", "own.append(1)", "len(own)"),
    "dict": ("own = {}", "own[len(own)] = 1", "len(own)"),
    "set": ("own = {0}", "own.add(len(own))", "len(own)"),
    "deque": ("own = collections.deque()", "own.append(1)", "len(own)"),
    "object": ("own = Box()", "own.n += 1", "own.n"),
    "cell": ("own = 0", "nonlocal own; own += 1", "own"),
    "iterator": ("own = iter(range(9))", "next(own)", "next(own)"),
    "generator": ("own = (n for n in range(9))", "next(own)", "next(own)"),
    "zip": ("own = zip(range(9), range(9))", "next(own)", "next(own)[0]"),
    "bytes": ("own = bytearray(1)", "own[0] += 1", "own[0]"),
    "text file": ("import io; own = io.StringIO()", "own.write('a')", "own.tell()"),
    "cache": ("ns = []; own = functools.lru_cache(None)(lambda n: ns.append(n))", "own(len(ns))", "len(ns)"),
    "random": ("own = random.Random(); own.seed(1)", "own.random()", "own.random()"),
    "exception": ("own = ValueError('one')", "own.args = (*own.args, 1)", "len(own.args)"),
    "tensor": ("own = torch.zeros(1); own.n = 0", "own.n += 1", "own.n"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_what_a_checkpoint_does_to_the_frames_own(kind: str) -> None:
    """As often as eager does by the time the forward is done: once, and never half of it."""
    made, act, look = OWN[kind]
    program = (
        f"def f(x):\n    {made}\n    def part(y):\n        {act}\n        return y.sin()\n"
        f"    y = checkpoint(part, x, use_reentrant=False).sum()\n    y.backward()\n    return y.detach() + {look}\n"
    )
    way = Way(EffectKind.ITEMS, "pass", "None")
    results = [
        world(way, program, wrap)["g"](torch.ones(2, requires_grad=True))
        for wrap in (lambda f: f, lambda f: torchdynamo.compile(f, backend="eager"))
    ]
    assert torch.equal(*results)


@pytest.mark.parametrize("kind", OWN)
def test_what_sides_do_to_the_frames_own(kind: str) -> None:
    made, act, look = OWN[kind]
    program = (
        f"def f(x):\n    {made}\n    def one(x):\n        {act}\n        return x + 1\n"
        f"    return torch.cond(x.sum() > 0, one, one, (x,)) + {look}\n"
    )
    g = world(
        Way(EffectKind.ITEMS, "pass", "None"),
        program,
        lambda f: torchdynamo.compile(f, backend="eager", fullgraph=True),
    )
    with pytest.raises(Unsupported):
        g["g"](torch.ones(2))


def test_what_is_put_back_is_no_effect() -> None:
    """In a checkpoint, and in sides: attributes, lists, names and grad mode that are as before when it is done."""
    way = Way(
        EffectKind.ATTRIBUTE,
        "before, OBJ.n = OBJ.n, 5; LOG.append(1); LOG.pop(); D['a'] = 1; del D['a']; OBJ.n = before",
        "(OBJ.n, LOG, D)",
        "OBJ = Box(); LOG = []; D = {}",
    )
    for program in (
        "def part(y):\n    act()\n    with torch.no_grad(): z = y + 1\n    return y * z\n"
        "def f(x): return checkpoint(part, x, use_reentrant=False).sum()",
        "def one(x): act(); return x + 1\ndef f(x): return torch.cond(x.sum() > 0, one, one, (x,))",
    ):
        space = world(way, program, lambda f: torchdynamo.compile(f, backend="eager", fullgraph=True))
        before = repr(space["look"]())
        space["g"](torch.ones(2, requires_grad=True))
        assert repr(space["look"]()) == before


# -- the tables -------------------------------------------------------------------------------------------------------
def test_each_kind_is_replayed_and_shown() -> None:
    assert LINES.keys() == REPLAYS.keys() == set(EffectKind) - IN_PLACE


def test_each_kind_has_a_row_here() -> None:
    assert {way.kind for way in KINDS.values()} == set(EffectKind) - {EffectKind.STATE, EffectKind.ASSUMPTION}
