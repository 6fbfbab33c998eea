"""The command `cache`: list, show, check and remove what is stored of earlier processes' captures."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchdynamo.backends import artifacts
from torchdynamo.cache.store import eviction, files, places
from torchdynamo.cli import cache_why

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Stored(NamedTuple):
    """An entry on disk."""

    path: Path
    size: int
    used: float
    about: dict[str, Any]
    fault: str

    @property
    def id(self) -> str:
        """The beginning of its name, which tells it from others."""
        return self.path.stem[:12]


def entries(root: Path) -> Iterator[Stored]:
    """Yield the entries of a store, those used last first."""
    for used, size, path in sorted(eviction.kept(root), reverse=True):
        if path.suffix != ".td":
            continue
        about, fault = {}, ""
        try:
            about = json.loads(files.unpacked(places.contents(path))["why"])
        except FileNotFoundError:
            continue  # another process has made room
        except (files.Damaged, places.Untrusted, OSError, KeyError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        yield Stored(path, size, used, about, fault)


def size_text(size: float) -> str:
    """Return a size in a unit that suits it."""
    for unit in ("B", "K", "M"):
        if size < 1024:
            return f"{size:.0f}{unit}"
        size /= 1024
    return f"{size:.1f}G"


def size_of(text: str) -> int:
    """Return a number of bytes from a text such as 500M. Raises ValueError."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    return int(float(text.removesuffix(text[-1:]) if unit else text) * UNITS[unit])


def seconds_of(text: str) -> float:
    """Return seconds from a text such as 30d. Raises ValueError or KeyError."""
    return float(text[:-1]) * SECONDS[text[-1]]


def listed(arguments: argparse.Namespace, root: Path) -> int:
    """Print a line for each entry."""
    found = list(entries(root))
    if arguments.json:
        print(json.dumps([{"id": each.id, "size": each.size, "used": each.used, **each.about} for each in found]))
        return 0
    for each in found:
        age = (time.time() - each.used) / 86400
        what = each.fault or "{function} {file}:{line}  {backend}  {operators} operators, {guards} guards".format(
            **each.about
        )
        print(f"{each.id}  {size_text(each.size):>6}  {age:5.1f}d  {what}")
    print(f"{len(found)} entries, {size_text(eviction.size(root))} in {root}")
    return 0


def shown(arguments: argparse.Namespace, root: Path) -> int:
    """Print what is known of one entry, and its sections."""
    for each in entries(root):
        if each.path.stem.startswith(arguments.id):
            print(each.path)
            print(each.fault or json.dumps(each.about, indent=2))
            if not each.fault:
                for name, content in files.unpacked(places.contents(each.path)).items():
                    print(f"{name:8} {size_text(len(content))}")
            return 0
    print(f"there is no entry {arguments.id!r} in {root}", file=sys.stderr)
    return 1


def verified(arguments: argparse.Namespace, root: Path) -> int:
    """Compare digests and owners of all entries and blobs. Returns 1 if one is not as it was written."""
    faults = [(each.path, each.fault) for each in entries(root) if each.fault]
    for path in places.blobs_in(root).glob("*"):
        try:
            if artifacts.digest_of(places.contents(path)) != path.name:
                faults.append((path, "its contents are others"))
        except (places.Untrusted, OSError) as error:
            faults.append((path, str(error)))
    for path, fault in faults:
        print(f"{path}: {fault}")
    print(f"{len(faults)} of them are not as they were written" if faults else "all are as they were written")
    return 1 if faults else 0


def pruned(arguments: argparse.Namespace, root: Path) -> int:
    """Remove what has not been used for longest."""
    most = size_of(arguments.max_size) if arguments.max_size else eviction.MOST
    older = seconds_of(arguments.older) if arguments.older else None
    removed = eviction.prune(root, most, older)
    print(f"{len(removed)} files removed; {size_text(eviction.size(root))} are left in {root}")
    return 0


def cleared(arguments: argparse.Namespace, root: Path) -> int:
    """Remove all."""
    shutil.rmtree(root / places.FORMAT, ignore_errors=True)
    return 0


def path_of(arguments: argparse.Namespace, root: Path) -> int:
    """Print where the store lies."""
    print(root)
    return 0


def baked(arguments: argparse.Namespace, root: Path) -> int:
    """Copy the store, for an image; `TORCHDYNAMO_CACHE_TRUST` names the copy there."""
    target = places.made_private(Path(arguments.folder).absolute())
    notes = shutil.ignore_patterns(places.notes_in(root).name)
    shutil.copytree(root / places.FORMAT, target / places.FORMAT, ignore=notes, dirs_exist_ok=True)
    print(f"{sum(1 for _ in entries(target))} entries in {target}: set TORCHDYNAMO_CACHE_TRUST={target} in the image")
    return 0


def explained(arguments: argparse.Namespace, root: Path) -> int:
    """Print why the entries of a function do not serve it here. Returns 1 if there are none, 2 if it is no function."""
    sys.path.insert(0, os.getcwd())
    stored = ((each.path, each.used, each.about) for folder in (*places.baked(), root) for each in entries(folder))
    try:
        lines = list(cache_why.why(arguments.name, stored))
        told = list(cache_why.told(arguments.name, root))
    except Exception as error:  # of the user's own module: shown with its name, whatever it is
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    advice = "" if told else "; torchdynamo.explain says why a frame is not stored"
    print("\n".join((*(lines or [f"there is no entry of {arguments.name} in {root}{advice}"]), *told)))
    return 0 if lines else 1


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace, Path], int], str, Sequence[tuple[str, str]]]] = {
    "ls": (listed, "list the entries", [("--json", "as JSON")]),
    "show": (shown, "show an entry", [("id", "the beginning of its name")]),
    "why": (explained, "say what keeps a function's entries from being used", [("name", "MODULE:FUNCTION")]),
    "verify": (verified, "compare digests and owners", []),
    "prune": (
        pruned,
        "remove what has not been used for longest",
        [("--max-size", "what may stay, such as 1G"), ("--older", "and what is older, such as 30d")],
    ),
    "clear": (cleared, "remove all", []),
    "path": (path_of, "print where the store lies", []),
    "bake": (baked, "copy the store, for an image", [("folder", "where to")]),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command on the store. Returns the exit status: 1 for what is damaged or not there, 2 for a wrong one."""
    parser = argparse.ArgumentParser("python -m torchdynamo cache", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text, options) in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        for option, meaning in options:
            action: Any = "store_true" if option == "--json" else "store"
            command.add_argument(option, help=meaning, action=action)
    given = parser.parse_args(arguments)
    return COMMANDS[given.command][0](given, places.folder())
