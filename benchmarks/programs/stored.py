"""Run programs twice over one store of captures, each time in a process of its own: what the second finds there.

    python benchmarks/programs/stored.py [NAME ...] --backend eager --steps 7 --out F.jsonl [--jobs 2] [--limit 300]
    python benchmarks/programs/stored.py --summary F.jsonl

A row of a program has for each process: whether its results are eager's (to the bit; with inductor within 1e-3), how
many parts it found and compiled, and of those that it compiled the place, and what was told of the store there. The
summary has programs by what was found, and the reasons by how often they were told in the second processes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUNNER = Path(os.environ.get("PROGRAMS", HERE.parents[2] / "shared" / "programs"))
LONGEST = 240  # characters of a reason


def programs() -> Any:
    """Return the module that runs programs, with all programs in it."""
    sys.path[:0] = [str(RUNNER), str(HERE)]
    found = importlib.import_module("programs")
    for each in importlib.import_module("run").OURS:
        importlib.import_module(each)
    return found


def child(name: str, backend: str, steps: int) -> None:
    """Run a program in eager and over the store; print a row."""
    runner = programs()
    runner.torch_parts()
    kept = runner.declare_vision_operators()
    import torchdynamo

    spec, told = runner.PROGRAMS[name], []
    with runner.output_caught():
        eager = runner.World(spec, 0).run(steps).finish()
        torchdynamo.events.listeners.append(lambda event, count: told.append(event))
        ways = {"around": lambda: torchdynamo.optimize(backend)}
        if spec["by"] == "compile":
            ways = {"compile": lambda *args, **named: torchdynamo.compile(*args, **{**named, "backend": backend})}
        ours = runner.World(spec, 0, **ways).run(steps).finish()
        torchdynamo.events.listeners.clear()
        differs = runner.compare(eager, ours, 1e-3 if backend == "inductor" else 0)
        if differs:
            again = runner.compare(eager, runner.World(spec, 0).run(steps).finish(), 0)
            differs = [*differs, f"eager itself: {again and again[0]}"]
    compiled = [each for each in told if each.kind == "compile"]
    row = {"equal": differs is None, "differs": differs, "found": sum(each.stored == "hit" for each in compiled)}
    row["compiled"] = [shown(each.place) for each in compiled if each.stored != "hit"]
    row["told"] = [(shown(each.place), each.text[:LONGEST]) for each in told if each.kind == "cache"]
    print(json.dumps(row))
    del kept


def shown(place: Any) -> str:
    """Return a place in a program as text."""
    return f"{place.function} ({Path(place.filename).name}:{place.line})"


def process(name: str, backend: str, steps: int, limit: int, store: str) -> dict[str, Any]:
    """Return the row of a new process; one with an error if it has none."""
    command = [sys.executable, __file__, name, "--child", "--backend", backend, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHDYNAMO_CACHE": "1",
            "TORCHDYNAMO_CACHE_DIR": store,
            "TMPDIR": folder,
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{store}/inductor",
        }
        done = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, errors = done.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(done.pid, signal.SIGKILL)
            done.communicate()
            return {"error": f"not done after {limit} s"}
    if done.returncode:
        return {"error": f"exit {done.returncode}: {errors.strip()[-300:]}"}
    row: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return row


def twice(name: str, backend: str, steps: int, limit: int) -> dict[str, Any]:
    """Return the rows of two processes over one store."""
    with tempfile.TemporaryDirectory() as store:
        rows: dict[str, Any] = {"name": name, "backend": backend}
        for number in ("first", "second"):
            rows[number] = process(name, backend, steps, limit, store)
            if "error" in rows[number]:
                break
    return rows


def line(rows: dict[str, Any]) -> str:
    """Return what two processes have given as a line."""
    texts = []
    for number in ("first", "second"):
        row = rows.get(number, {"error": "-"})
        said = row.get("error") or ("equal" if row["equal"] else f"DIFFERS {row['differs']}")
        counts = f"{row['found']} found, {len(row['compiled'])} compiled" if "found" in row else ""
        texts.append(f"{said} {counts}".strip())
    return f"{rows['name']:26} {'; '.join(texts)}"


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print programs by what their second processes found, and why the rest was compiled."""
    seconds = [each["second"] for each in rows if "found" in each.get("second", {})]
    whole = sum(not each["compiled"] for each in seconds)
    equal = sum(
        each[number]["equal"] for each in rows for number in ("first", "second") if "found" in each.get(number, {})
    )
    print(
        f"{len(rows)} programs, {len(seconds)} ran twice, {equal} of {2 * len(seconds)} runs equal, {whole} found all"
    )
    found, compiled = (sum(each["found"] for each in seconds), sum(len(each["compiled"]) for each in seconds))
    print(f"parts found: {found}, compiled: {compiled}")
    reasons: Counter[str] = Counter()
    where: dict[str, Counter[str]] = {}
    for each in rows:
        for _, text in each.get("second", {}).get("told", ()):
            reasons[text] += 1
            where.setdefault(text, Counter())[each["name"]] += 1
    for text, count in reasons.most_common():
        print(f"{count:5} {text}  [{', '.join(f'{name} {times}' for name, times in where[text].most_common(4))}]")


def main() -> None:
    """Run programs and write their rows, or print what rows say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        child(given.names[0], given.backend, given.steps)
        return
    if given.summary:
        summarize([json.loads(each) for each in given.summary.read_text().splitlines()])
        return
    names, rows = given.names or list(programs().PROGRAMS), []
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda name: twice(name, given.backend, given.steps, given.limit), names):
            rows.append(found)
            print(line(found), flush=True)
            with given.out.open("a") if given.out else contextlib.nullcontext() as file:
                if file:
                    file.write(json.dumps(found) + "\n")
    summarize(rows)


if __name__ == "__main__":
    main()
