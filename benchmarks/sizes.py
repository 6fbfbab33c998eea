"""Other people's models at other sizes: which of them can vary, and what each size costs in compiles.

    python benchmarks/sizes.py --corpus ../shared/corpus --out build/sizes.jsonl        # or `make sizes`
    python benchmarks/sizes.py --corpus ../shared/corpus --only 'hf/' --count 20
    python benchmarks/sizes.py --corpus ../shared/corpus --keep           # goes on where it was interrupted

For each case of the corpus: eager runs it with other batches, and with longer and shorter sequences. What
it takes is run at five sizes, 1 among them where eager takes it, through torchdynamo and torch.compile (backend eager),
each time compared with eager. A compile is one call of the backend; a model in k graphs may have 2k.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from axes import Axis, axes, candidates, resized

import torchdynamo

SIZES = 5
WAITED = 10  # times the processor time that a case may take
FRONTENDS: dict[str, tuple[Callable[..., Any], Callable[[], None]]] = {
    "torchdynamo": (torchdynamo.compile, torchdynamo.reset),
    "torch.compile": (torch.compile, torch.compiler.reset),
}


# -- one case ---------------------------------------------------------------------------------------------------------
class Counting:
    """The eager backend, counting."""

    def __init__(self) -> None:
        self.compiles = 0

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        self.compiles += 1
        return gm.forward


class Subject:
    """A case of the corpus, to be called at any size."""

    def __init__(self, corpus: Any, name: str) -> None:
        self.case, self.reseed = corpus.CASES[name], corpus.reseed

    def build(self) -> tuple[Any, Any]:
        module, args, kwargs = self.case.build()
        return module, (args, kwargs)

    def call(self, fn: Any, inputs: Any) -> Any:
        self.reseed(7)
        with torch.enable_grad() if "grad" in self.case.tags else torch.no_grad():
            return fn(*inputs[0], **inputs[1])


def varying(subject: Subject) -> dict[str, tuple[Axis, list[int]]]:
    """What of the case's sizes eager lets vary, and the sizes to run it at: its batch, and one of its lengths."""
    module, inputs = subject.build()
    subject.call(module, inputs)
    found: dict[str, tuple[Axis, list[int]]] = {}
    for axis in axes(inputs):
        sizes = sizes_of(subject, module, axis) if axis.name not in found else []
        if len(sizes) == SIZES:
            found[axis.name] = axis, sizes
    return found


def sizes_of(subject: Subject, module: Any, axis: Axis) -> list[int]:
    """The first sizes that eager takes."""
    sizes = [axis.size]
    for size in candidates(axis.size):
        try:
            subject.call(module, resized(subject.case.inputs_for(module, 0)[1:], axis, size))
        except Exception:  # whatever a model says to a size it does not take
            continue
        sizes.append(size)
        if len(sizes) == SIZES:
            break
    return sizes


def measured(
    subject: Subject, frontend: str, axis: Axis, sizes: list[int], differ: Callable[..., Any]
) -> dict[str, Any]:
    """The compiles after each size, and whether what came out was eager's."""
    compiling, reset = FRONTENDS[frontend]
    reset()
    counting, begin = Counting(), time.process_time()
    eager, module = subject.build()[0], subject.build()[0]
    compiled = compiling(module, backend=counting)
    after, wrong = [], []
    for size in sizes:
        expected = subject.call(eager, resized(subject.case.inputs_for(eager, 0)[1:], axis, size))
        got = subject.call(compiled, resized(subject.case.inputs_for(module, 0)[1:], axis, size))
        why, _ = differ(expected, got)
        if why is not None:
            wrong.append(f"{size}: {why}")
        after.append(counting.compiles)
    reset()
    return {"compiles": after, "wrong": wrong, "seconds": round(time.process_time() - begin, 2)}


def run_case(name: str, frontends: list[str], save: Callable[[list[dict[str, Any]]], None]) -> None:
    """A row for each axis of a case, saved as it becomes known."""
    import corpus  # type: ignore[import-not-found]
    import runner  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    subject, rows = Subject(corpus, name), []
    for axis, sizes in varying(subject).values():
        row: dict[str, Any] = {"case": name, "axis": axis.name, "sizes": sizes}
        rows.append(row)
        save(rows)
        for frontend in frontends:
            try:
                row[frontend] = measured(subject, frontend, axis, sizes, runner.differ)
            except Exception as error:  # of the front end: the row says so
                row[frontend] = {"error": f"{type(error).__name__}: {error}"[:400]}
            save(rows)


# -- all --------------------------------------------------------------------------------------------------------------
def child(name: str, frontends: list[str], path: str) -> None:
    """In a process of its own."""
    warnings.filterwarnings("ignore")

    def save(rows: list[dict[str, Any]]) -> None:
        Path(path + ".new").write_text(json.dumps(rows, default=str))
        os.replace(path + ".new", path)

    run_case(name, frontends, save)


def forked(name: str, frontends: list[str], path: str, seconds: int) -> int:
    """Starts the child. What it may take is processor time, so that what else the machine does changes no result."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        child(name, frontends, path)
        code = 0
    finally:
        os._exit(code)


def run_all(
    names: list[str], frontends: list[str], jobs: int, seconds: int, out: Path, keep: bool
) -> list[dict[str, Any]]:
    """Each case in a fork of this process, which has only imported what most of them need.

    One that neither ends nor takes processor time is waited for `WAITED` times as long."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in out.open()] if keep and out.exists() else []
    done_before = {row["case"] for row in rows}
    todo, live = collections.deque((i, name) for i, name in enumerate(names) if name not in done_before), {}
    with tempfile.TemporaryDirectory() as folder, out.open("a" if keep else "w") as lines:
        while todo or live:
            while todo and len(live) < jobs:
                index, name = todo.popleft()
                path = f"{folder}/{index}.json"
                live[forked(name, frontends, path, seconds)] = name, path, time.monotonic() + WAITED * seconds
            time.sleep(0.05)
            for pid, (name, path, end) in list(live.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if not done and time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                    done, status = os.waitpid(pid, 0)
                if done:
                    del live[pid]
                    for row in json.loads(Path(path).read_text()) if Path(path).exists() else [fixed(name)]:
                        rows.append({**row, "status": status})
                        lines.write(json.dumps(rows[-1]) + "\n")
                        print(told(rows[-1]), flush=True)
                    lines.flush()
    return rows


def fixed(name: str) -> dict[str, Any]:
    """A case that takes no other sizes."""
    return {"case": name, "axis": None, "sizes": []}


def told(row: dict[str, Any]) -> str:
    """One line about a case."""
    if not row["axis"]:
        return f"{row['case']:44s} cannot vary" + (f" (status {row['status']})" if row["status"] else "")
    text = f"{row['case']:44s} {row['axis']:6s} {row['sizes']}"
    for frontend in row.keys() & FRONTENDS.keys() or FRONTENDS:
        found = row.get(frontend, {"error": f"died, status {row['status']}"})
        text += f"  {frontend} {found.get('compiles') or found.get('error')}"
        text += f" WRONG {found['wrong']}" if found.get("wrong") else ""
    return text


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """How many are right, and how many need two compiles at most."""
    able = [row for row in rows if row["axis"]]
    cases = {row["case"] for row in rows}
    yield f"{len({row['case'] for row in able})} of {len(cases)} cases can vary, {len(able)} ways in all"
    for frontend in FRONTENDS:
        ran = [row[frontend] for row in able if "compiles" in row.get(frontend, {})]
        right = sum(not found["wrong"] for found in ran)
        twice = sum(found["compiles"][-1] <= 2 * max(found["compiles"][0], 1) for found in ran)
        total = sum(found["compiles"][-1] for found in ran)
        share = 100 * twice / max(len(able), 1)
        yield (
            f"{frontend}: {right} equal to eager at every size; {twice} ({share:.0f}%) with at most two compiles a "
            f"graph; {total} compiles in all; {len(able) - len(ran)} failed"
        )


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="../shared/corpus", help="the folder of corpus.py and runner.py")
    parser.add_argument("--out", default="build/sizes.jsonl")
    parser.add_argument("--only", default="", help="a regular expression for the cases' names")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many cases at the beginning")
    parser.add_argument("--count", type=int, default=None, help="run so many cases")
    parser.add_argument("--shuffle", action="store_true", help="in another order, the same each time")
    parser.add_argument("--frontends", default=",".join(FRONTENDS), help="which of the two are measured")
    parser.add_argument("--keep", action="store_true", help="keep the cases that the file has already")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=240, help="of processor time, for each case")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(given.corpus).resolve()))
    import corpus
    import runner
    import tvshim  # type: ignore[import-not-found]

    tvshim.install()
    for name in runner.PRELOAD:
        if runner.importlib.util.find_spec(name.partition(".")[0]):
            runner.importlib.import_module(name)
    names = [name for name in corpus.CASES if re.search(given.only, name)]
    if given.shuffle:
        random.Random(0).shuffle(names)
    names = names[given.skip :][: given.count]
    out = Path(given.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = run_all(names, given.frontends.split(","), given.jobs, given.seconds, out, given.keep)
    out.with_suffix(".txt").write_text(
        "".join(f"{row['case']} {row['axis']} {row['sizes']}\n" for row in rows if row["axis"])
    )
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
