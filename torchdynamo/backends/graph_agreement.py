"""Compare, if the program asks for it, that ranks are about to run the same collectives.

Each rank writes what its graph will send to the store of the process group, under the group's name and the number of
the call, and reads what the others have written there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.errors import RanksDisagree
from torchdynamo.graph.recording import is_collective

_timeout: timedelta | None = None
_calls: Counter[tuple[int, str]] = Counter()  # (world, name of a group) -> graphs with its collectives that have run


def compare(timeout: timedelta | None) -> None:
    """Compare from now on, waiting so long for other ranks; None: no more."""
    global _timeout
    _timeout = timeout


class Collectives(NamedTuple):
    """Communication of a graph: a text for each collective, the groups that have a part in it, and its place."""

    texts: tuple[str, ...]
    groups: tuple[str, ...]
    where: str


def collectives_of(gm: torch.fx.GraphModule, name: str) -> Collectives:
    """Return what a captured graph sends; `name`: the graph as messages call it."""
    nodes = [node for node in gm.graph.nodes if is_collective(node.target)]
    texts, groups = [], dict[str, None]()
    for node in nodes:
        given = [
            pytree.tree_map(described, torch.fx.node.map_arg(each, lambda one: one.meta["example_value"]))
            for each in node.args
        ]
        texts.append(f"{node.target}{tuple(given)}")
        groups.update((each, None) for each in node.args if isinstance(each, str) and is_group(each))
    places = [place for node in nodes for place in lines_of(node.meta.get("stack_trace") or "")]
    return Collectives(tuple(texts), tuple(groups), ", ".join([name, *places[:1]]))


def lines_of(trace: str) -> list[str]:
    """Return the places of the program in a traceback's text, without those of this package."""
    lines = [line.strip() for line in trace.splitlines()]
    return [line for line in lines if line.startswith("File ") and f"{os.sep}torchdynamo{os.sep}capture" not in line]


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(str(each) for each in value.shape)}"
    return value


def resolved(name: str) -> Any:
    resolve: Any = torch._C._distributed_c10d._resolve_process_group
    return resolve(name)


def is_group(name: str) -> bool:
    return any(group.group_name == name for group in dist.distributed_c10d._world.pg_map)


def check(sent: Collectives) -> None:
    """Compare with the other ranks, if the program asks for it. Raises RanksDisagree for ranks that differ."""
    if _timeout is None:
        return
    mine = [hashlib.sha256("\n".join(sent.texts).encode()).hexdigest(), sent.where, list(sent.texts)]
    world = dist.distributed_c10d._get_default_store()
    for name in sent.groups:
        group = resolved(name)
        number = _calls[(id(group), name)]
        _calls[(id(group), name)] += 1
        rank, keys = group.rank(), [f"torchdynamo/{name}/{number}/{each}" for each in range(group.size())]
        world.set(keys[rank], json.dumps(mine))
        for other, key in enumerate(keys):
            if other != rank:
                compare_with(world, key, mine, rank, other, _timeout)
        if number > 1:
            world.delete_key(f"torchdynamo/{name}/{number - 2}/{rank}")


def compare_with(store: Any, key: str, mine: list[Any], rank: int, other: int, timeout: timedelta) -> None:
    try:
        store.wait([key], timeout)
    except (RuntimeError, dist.DistStoreError) as error:
        text = f"rank {rank} is about to run {mine[1]}, and rank {other} has come to no graph with collectives"
        raise RanksDisagree(f"{text} within {timeout.total_seconds():g} seconds") from error
    theirs = json.loads(store.get(key))
    if theirs[0] != mine[0]:
        raise RanksDisagree(
            f"ranks are about to run different collectives: rank {rank} in {mine[1]} ({'; '.join(mine[2])}), "
            f"rank {other} in {theirs[1]} ({'; '.join(theirs[2])})"
        )
