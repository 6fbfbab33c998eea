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
