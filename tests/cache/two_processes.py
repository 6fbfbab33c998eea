"""Run a table of programs in one process, change some of them, and run them again in another with the same store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torchdynamo.cache.store import notes


class Program(NamedTuple):
    """A module that defines `f` and `args()`, before and after a change; other files that it imports, by name."""

    before: str
    after: str | None = None  # None: it stays as it is
    files: Mapping[str, tuple[str, str]] = {}


class Outcome(NamedTuple):
    """What became of a program in one process."""

    equal: bool  # to eager's result
    hits: int
    compiled: int
    told: list[str]
    imported: list[str]

    @property
    def refused(self) -> list[str]:
        """What was told and is not put right later, frames that are left to Python apart."""
        return [text for text in self.told if not text.startswith((notes.LATER, notes.LEFT))]


DRIVER = """
import importlib, json, sys, traceback
import torch, torchdynamo
from torch.utils import _pytree as pytree
from torchdynamo import events

HEAVY = ("torch._inductor", "torch._dynamo", "triton", "sympy", "torch.fx.experimental.symbolic_shapes")
sys.path.insert(0, sys.argv[1])


def same(one, other):
    if isinstance(one, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one is other or one == other or (one != one and other != other))


def result(fn, module):
    torch.manual_seed(0)
    given = module.args()
    try:
        given_back = fn(*given)
        return given_back, given, module.after(given_back) if hasattr(module, "after") else None
    except Exception as error:
        frames = [(each.name, each.lineno) for each in traceback.extract_tb(error.__traceback__)[1:]]
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        return f"{type(error).__name__}: {error}", given, frames, modes


found = {}
for name in sys.argv[3:]:
    module = importlib.import_module(f"program_{name}")
    want = result(module.f, module)
    if hasattr(module, "reset"):
        module.reset()
    settings = getattr(module, "SETTINGS", {})
    before = set(sys.modules)
    events.clear()
    got = result(torchdynamo.compile(module.f, **{"backend": "eager", **settings}), module)
    seen = events.recent()
    found[name] = dict(
        equal=bool(same(got, want)),
        hits=sum(event.stored == "hit" for event in seen),
        compiled=sum(event.kind == "compile" and event.stored != "hit" for event in seen),
        told=[event.text for event in seen if event.kind == "cache"],
        imported=[each for each in HEAVY if each in sys.modules and each not in before],
    )
json.dump(found, open(sys.argv[2], "w"))
"""


def run(
    folder: Path, names: list[str], environment: Mapping[str, str] = {}, driver: str = DRIVER
) -> dict[str, Outcome]:
    """Run programs that lie in a folder in a process of their own; return what became of each."""
    (folder / "driver.py").write_text(driver)
    result = folder / "outcomes.json"
    settings = {"TORCHDYNAMO_CACHE": "1", "TORCHDYNAMO_CACHE_DIR": str(folder / "store"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-B", str(folder / "driver.py"), str(folder / "programs"), str(result), *names],
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(result.read_text())
    return {name: Outcome(**fields) for name, fields in found.items()}


def write(folder: Path, programs: Mapping[str, Program], after: bool) -> None:
    """Write the programs of a table as modules, as they are before or after the change."""
    home = folder / "programs"
    home.mkdir(exist_ok=True)
    for name, program in programs.items():
        text = program.after if after and program.after is not None else program.before
        (home / f"program_{name}.py").write_text("import torch\n" + textwrap.dedent(text))
        for other, versions in program.files.items():
            (home / f"{other}.py").write_text("import torch\n" + textwrap.dedent(versions[after]))


def twice(
    folder: Path, programs: Mapping[str, Program], environment: Mapping[str, str] = {}
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Run a table of programs, change them, and run them again; return what became of them each time.

    environment: variables of the second process.
    """
    write(folder, programs, after=False)
    first = run(folder, list(programs))
    write(folder, programs, after=True)
    return first, run(folder, list(programs), environment)
