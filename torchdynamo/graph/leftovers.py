"""Free what torch would keep forever of each compiled graph."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import re
import weakref
from collections.abc import Iterator

import torch.fx
from torch.fx import graph_module


def free_text_with(gm: torch.fx.GraphModule) -> None:
    """Free the source text of a graph module's code along with it; torch would keep it for tracebacks."""
    weakref.finalize(gm, _drop_texts, [gm.forward.__code__.co_filename]).atexit = False


@contextlib.contextmanager
def free_texts_with(gm: torch.fx.GraphModule) -> Iterator[None]:
    """Free, along with this graph module, the texts of all graph modules that are made inside of the block."""
    first = graph_module._loader.next_id
    try:
        yield
    finally:
        keys = reversed(list(graph_module._loader.eval_cache))
        made = list(itertools.takewhile(lambda key: _number(key) >= first, keys))
        weakref.finalize(gm, _drop_texts, made).atexit = False


def _number(key: str) -> int:
    """Return the number in a key such as "<eval_with_key>.20 from ..."; -1 for other keys."""
    found = re.match(r"<eval_with_key>\.(\d+)", key)
    return int(found[1]) if found else -1


def _drop_texts(keys: list[str]) -> None:
    for key in keys:
        if graph_module._loader.eval_cache.pop(key, None) is not None:
            linecache.cache.pop(key, None)
