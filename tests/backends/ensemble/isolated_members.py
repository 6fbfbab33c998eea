"""Members that must be tried in a process of their own: importing this file registers them there."""

from __future__ import annotations

import os
import time
from typing import NoReturn

from torchdynamo.backends.ensemble.member import MEMBERS, Member, Run
from torchdynamo.backends.ensemble.subgraph import Subgraph


def crash(subgraph: Subgraph) -> NoReturn:
    os.abort()


def crash_when_run(subgraph: Subgraph) -> Run:
    return lambda *args: os.abort()


def hang(subgraph: Subgraph) -> NoReturn:
    while True:
        time.sleep(1)


def lie(subgraph: Subgraph) -> Run:
    return lambda *args: tuple(each + 1 for each in subgraph.gm.forward(*args))


def work(subgraph: Subgraph) -> Run:
    return subgraph.gm.forward


ISOLATED = {
    build.__name__: Member(build.__name__, build, cost=0.0, rank=5, isolated=True)
    for build in (crash, crash_when_run, hang, lie, work)
}
for name, each in ISOLATED.items():
    MEMBERS.setdefault(name, each)
