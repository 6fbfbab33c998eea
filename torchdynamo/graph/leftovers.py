"""What torch would keep for good of each compile, and how it is kept from that."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import re
import weakref
from collections.abc import Iterator

import torch.fx
from torch.fx import graph_module


def text_goes_with(gm: torch.fx.GraphModule) -> None:
    """Have the text of a graph module's code go when it does. torch keeps the text of all, for tracebacks."""
    weakref.finalize(gm, _drop_texts, [gm.forward.__code__.co_filename]).atexit = False


@contextlib.contextmanager
def texts_go_with(gm: torch.fx.GraphModule) -> Iterator[None]:
    """Have the texts of graph modules that torch makes while this is open go with this one."""
    first = graph_module._loader.next_id
    try:
        yield
    finally:
        keys = reversed(list(graph_module._loader.eval_cache))
        made = list(itertools.takewhile(lambda key: _number(key) >= first, keys))
        weakref.finalize(gm, _drop_texts, made).atexit = False


def _number(key: str) -> int:
    """Return which text it is by the key, as in "<eval_with_key>.20 from ..."; -1 for another key."""
    found = re.match(r"<eval_with_key>\.(\d+)", key)
    return int(found[1]) if found else -1


def _drop_texts(keys: list[str]) -> None:
    for key in keys:
        if graph_module._loader.eval_cache.pop(key, None) is not None:
            linecache.cache.pop(key, None)
