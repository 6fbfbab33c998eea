"""threading.local: what each thread holds is read, written and guarded by itself."""

from __future__ import annotations

import threading
from typing import Any

import torch

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)
STATE = threading.local()


class Prepared(threading.local):
    def __init__(self):
        self.scale = 2


PREPARED = Prepared()


def reads(x):
    return x * getattr(STATE, "scale", 1), hasattr(STATE, "other")


def counts(x):
    before = getattr(STATE, "depth", 0)
    STATE.depth = before + 1
    try:
        return x + STATE.depth
    finally:
        STATE.depth = before


def writes(x):
    STATE.scale = x.dim() + 2
    STATE.seen = x + 1
    if hasattr(STATE, "old"):
        del STATE.old
    try:
        del STATE.old
    except AttributeError as error:
        text = str(error)
    return x * STATE.scale, text


def makes(x):
    state = threading.local()
    state.a = [1]
    state.a.append(2)
    return x + len(state.a), state


def of_a_subclass(x):
    return x * PREPARED.scale


def in_a_thread(fn: Any, *args: Any) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(fn(*args)))
    thread.start()
    thread.join()
    return found[0]


def clear() -> None:
    for name in list(STATE.__dict__):
        delattr(STATE, name)


def test_reads() -> None:
    clear()
    compiled = torchdynamo.compile(reads, backend="eager", fullgraph=True)
    for scale in (None, 2, 3, 2):
        if scale is not None:
            STATE.scale = scale
        assert torch.equal(compiled(X)[0], reads(X)[0])
        assert torch.equal(in_a_thread(compiled, X)[0], X)
    STATE.other = 1
    assert compiled(X)[1] is True
    before = len(_native.cache_entries(reads.__code__))
    compiled(X), in_a_thread(compiled, X)
    assert len(_native.cache_entries(reads.__code__)) == before


def test_writes() -> None:
    compiled = torchdynamo.compile(writes, backend="eager", fullgraph=True)
    for _ in range(3):
        held = []
        for fn in (writes, compiled):
            clear()
            STATE.old = 1
            result = fn(X)
            held.append((result, dict(STATE.__dict__)))
        assert str(held[0]) == str(held[1])


def test_restored() -> None:
    clear()
    compiled = torchdynamo.compile(counts, backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 1)
        assert STATE.depth == 0


def test_made() -> None:
    compiled = torchdynamo.compile(makes, backend="eager", fullgraph=True)
    for _ in range(2):
        result, state = compiled(X)
        assert torch.equal(result, X + 2) and state.a == [1, 2]


class Picky(threading.local):
    known = 5

    @property
    def double(self):
        return self.scale * 2

    def times(self, x):
        return x * self.scale

    def __init__(self, scale):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("only here")
        self.scale = scale


PICKY = Picky(3)


def of_more(x):
    PREPARED.seen = x + 1
    return x * PREPARED.scale + PICKY.known, PICKY.times(x), PICKY.double, hasattr(PICKY, "other")


def test_subclasses() -> None:
    """Their `__init__` runs once in each thread, where they are first looked at."""
    compiled = torchdynamo.compile(of_a_subclass, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 2) and torch.equal(in_a_thread(compiled, X), X * 2)
        in_a_thread(setattr, PREPARED, "scale", 9)
    assert len(_native.cache_entries(of_a_subclass.__code__)) == 1
    PREPARED.scale = 4
    assert torch.equal(compiled(X), X * 4) and torch.equal(in_a_thread(compiled, X), X * 2)


def test_what_a_subclass_says() -> None:
    compiled = torchdynamo.compile(of_more, backend="eager")
    assert str(compiled(X)) == str(of_more(X)) == str(compiled(X))
    assert torch.equal(PREPARED.seen, X + 1)
    Picky.known = 6
    assert str(compiled(X)) == str(of_more(X))
    PICKY.other = 1
    assert str(compiled(X)) == str(of_more(X))
    Picky.times = lambda self, x: x - self.scale
    assert str(compiled(X)) == str(of_more(X))


def raised_by(x: Any) -> tuple[str, bool]:
    """What a thread gets that is not let in."""
    errors = []
    for fn in (of_more, torchdynamo.compile(of_more, backend="eager")):
        try:
            fn(x)
        except RuntimeError as error:
            errors.append(str(error))
    return errors[0], errors == ["only here", "only here"]


def test_an_init_that_raises() -> None:
    torchdynamo.compile(of_more, backend="eager")(X)
    assert in_a_thread(raised_by, X) == ("only here", True)


def its_dict(x):
    held = STATE.__dict__
    held["depth"] = held.get("depth", 0) + 1
    return x * held.get("scale", 1) + STATE.depth, "other" in held, vars(STATE) is held


def test_its_dict() -> None:
    clear()
    compiled = torchdynamo.compile(its_dict, backend="eager", fullgraph=True)
    for scale in (1, 2, 3):
        STATE.scale, STATE.depth = scale, 0
        wanted, told, same = its_dict(X)
        assert STATE.depth == 1
        STATE.depth = 0
        got = compiled(X)
        assert torch.equal(got[0], wanted) and (told, same) == got[1:] and STATE.depth == 1
        assert torch.equal(in_a_thread(compiled, X)[0], X + 1)
