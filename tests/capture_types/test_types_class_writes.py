"""Writing to classes: read back in the frame, done after it, and seen by the next call."""

from __future__ import annotations

import torch

import torchdynamo


class Handle:
    next_id = 0
    state = "off"

    def __init__(self):
        self.id = Handle.next_id
        Handle.next_id += 1


class Special(Handle):
    pass


class Setting:
    def __init__(self, state):
        self.before, self.state = Special.state, state

    def __enter__(self):
        Special.state = self.state

    def __exit__(self, *args):
        Special.state = self.before


def numbered(x):
    first, second = Handle(), Special()
    return x + second.id, first.id, Special.next_id, second.next_id


def with_setting(x):
    with Setting("on"):
        inside = Handle.state, Special.state, Special().state
    return x + 1, inside, Special.state


def test_counting():
    compiled = torchdynamo.compile(numbered, backend="eager", fullgraph=True)
    for call in range(4):
        result, *ids = compiled(torch.zeros(1))
        assert result.item() == 2 * call + 1 and ids == [2 * call, 2 * call + 2, 2 * call + 2]
        assert Handle.next_id == 2 * call + 2 and "next_id" not in vars(Special)


def test_a_setting_that_is_put_back():
    compiled = torchdynamo.compile(with_setting, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.zeros(1))[1:] == (("off", "on", "on"), "off")


class Counted:
    n = 0


class Inheriting(Counted):
    pass


class Other:
    n = 7


def count_and_read(x):
    Counted.n = Counted.n + 1
    return x + Inheriting.n + Inheriting().n


def changes(run):
    """What comes of calls between which the class that inherits gets an attribute, or a base, of its own."""
    Counted.n, results = 0, []
    steps = (
        lambda: None,
        lambda: setattr(Inheriting, "n", 100),
        lambda: delattr(Inheriting, "n"),
        lambda: setattr(Inheriting, "__bases__", (Other,)),
        lambda: setattr(Inheriting, "__bases__", (Counted,)),
        lambda: (setattr(Inheriting, "n", 0), setattr(Counted, "n", 0)),
        lambda: (delattr(Inheriting, "n"), setattr(Counted, "n", 1.5)),
    )
    for step in steps:
        step()
        results += [run(torch.zeros(1)).item() for _ in range(2)]
    return results


def test_what_inherits_may_get_its_own():
    """Where a class was written to, those that inherit from it are read past their own names."""
    compiled = torchdynamo.compile(count_and_read, backend="eager", fullgraph=True)
    assert changes(compiled) == changes(count_and_read)
