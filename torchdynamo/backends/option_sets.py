"""Sets of Inductor's options that `torchdynamo.tune` tries for a graph, and the choice that it has stored.

None of them changes results beyond rounding. A choice is known by the graph, the machine and the versions at work.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.backends.ensemble.database import Row, database
from torchdynamo.backends.ensemble.identity import OF_INDUCTOR, fingerprint, graph_hash
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.errors import UnknownSetting

DEFAULT = "default"
CHOSEN = "chosen"  # state of the row of the set that a graph is compiled with
FREEZING = "freezing"
AND = " + "  # between the names of sets that are chosen together


class OptionSet(NamedTuple):
    """Options to try together, on "cpu", on "cuda", or on both (""). base: others are tried on top of it as well."""

    options: Mapping[str, Any]
    device: str = ""
    base: bool = False


SETS: dict[str, OptionSet] = {
    DEFAULT: OptionSet({}),
    "cuda graphs": OptionSet({"cudagraphs": True}, "cuda", base=True),
    "constants": OptionSet({"freezing": True}, base=True),
    "templates": OptionSet({"max_autotune_gemm": True}),
    "templates, coordinate descent": OptionSet({"max_autotune": True, "coordinate_descent_tuning": True}, "cuda"),
    "coordinate descent": OptionSet({"coordinate_descent_tuning": True}, "cuda"),
    "combined kernels": OptionSet({"combo_kernels": True}, "cuda"),
    "layouts as given": OptionSet({"layout_optimization": False}),
    "narrow convolutions as products": OptionSet({"conv_1x1_as_mm": True}),
    "both kinds of reductions": OptionSet({"triton.multi_kernel": 1}, "cuda"),
    "fusions that are measured": OptionSet({"benchmark_fusion": True}, "cuda"),
    "aggressive fusion": OptionSet({"aggressive_fusion": True}, "cuda"),
    "one thread": OptionSet({"cpp.threads": 1}, "cpu"),
    "concatenated layers": OptionSet({"cpp.enable_concat_linear": True}, "cpu"),
    "half vectors": OptionSet({"cpp.simdlen": 256}, "cpu"),
    "no split reductions": OptionSet({"split_reductions": False}),
    "recompute less": OptionSet({"realize_reads_threshold": 1}),
    "recompute more": OptionSet({"realize_reads_threshold": 16}),
    "small fusions": OptionSet({"max_fusion_size": 8}),
    "no reordering of loops": OptionSet({"loop_ordering_after_fusion": False}),
    "no padding": OptionSet({"shape_padding": False}, "cuda"),
    "threads at run time": OptionSet({"cpp.dynamic_threads": True}, "cpu"),
    "large chunks": OptionSet({"cpp.min_chunk_size": 16384}, "cpu"),
    "loop tails without vectors": OptionSet({"cpp.enable_loop_tail_vec": False}, "cpu"),
}
"""In the order in which they are tried: what often wins comes first."""


def sets_for(device: str, constants: bool) -> tuple[list[str], list[str]]:
    """Return the names of the sets for a device that this version of Inductor has: combinations of bases, and others.

    constants: parameters may become constants, for as long as they stay as they are.
    """
    from torch import _inductor

    known = {*_inductor.config.get_config_copy(), "cudagraphs"}
    bases, others = [DEFAULT], []
    for name, each in SETS.items():
        if name == DEFAULT or each.device not in ("", device) or not known.issuperset(each.options):
            continue
        if not each.base:
            others.append(name)
        elif constants or FREEZING not in each.options:
            bases += [on_top(base, name) for base in bases]
    return bases, others


def on_top(base: str, name: str) -> str:
    """Return the name of a set on top of one that is a base."""
    return name if base == DEFAULT else f"{base}{AND}{name}"


def options_of(choice: str) -> dict[str, Any]:
    """Return the options of a set, or of some together. Raises KeyError for sets that there are not."""
    return {option: value for name in choice.split(AND) for option, value in SETS[name].options.items()}


def key_of(subgraph: Subgraph) -> str | None:
    """Return under what key the choice for a graph is stored; None if no other process would know the graph."""
    name = graph_hash(subgraph)
    return None if name is None else OF_INDUCTOR + name


def keep_choice(key: str, rows: Sequence[Row]) -> None:
    """Store what was found of a graph; one of the rows is `CHOSEN`, and no earlier one is any more."""
    stored = database()
    if stored is not None:
        found = {row.member for row in rows}
        earlier = [each for each in stored.rows(key) if each.state == CHOSEN and each.member not in found]
        stored.keep(key, [*(each._replace(state="built") for each in earlier), *rows])


class ChosenSets:
    """What was chosen for graphs on such a machine, read again when the database changes."""

    def __init__(self) -> None:
        self.stamp: object = None
        self.sets: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return the name of the set that was chosen for each key."""
        stored = database()
        stamp = stored and (stored, written_at(stored.file), written_at(Path(f"{stored.file}-wal")), fingerprint())
        if stored is None or written_at(stored.file) is None:
            return {}
        if stamp != self.stamp:
            self.sets = dict(stored.with_state(CHOSEN))
            self.stamp = stamp
        return self.sets


def written_at(file: Path) -> tuple[int, int, int] | None:
    """Return what tells whether a file has changed; None without one."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


_chosen = ChosenSets()


def choice_for(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, constants: bool = False) -> str | None:
    """Return the name of the set that was chosen for a graph; None if it was not tuned. constants: with permission to
    make constants of parameters.
    """
    known = _chosen.read()
    if not known:
        return None
    name = known.get(key_of(Subgraph(gm, example_inputs, constants=constants)) or "")
    return name if name is not None and SETS.keys() >= {*name.split(AND)} else None


def choices(mode: str | None, options: Mapping[str, Any] | None) -> str:
    """Return a digest of all choices that are stored, if the option "tuned" or the mode asks for them; else ""."""
    known = _chosen.read() if asks_for_choice(mode, options) else {}
    return hashlib.sha256(repr(sorted(known.items())).encode()).hexdigest() if known else ""


def asks_for_choice(mode: str | None, options: Mapping[str, Any] | None) -> bool:
    """Return whether a graph is compiled as was chosen for it."""
    return mode == "max-autotune" or tuned_in(options)[0]


def with_choice(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], mode: str | None, options: Mapping[str, Any] | None
) -> tuple[str | None, dict[str, Any] | None]:
    """Return a mode and options with those chosen for the graph, if the option "tuned" or the mode asks for them.

    Options that are given go before chosen ones, but for "freezing", which is the permission to choose it. A choice
    takes the place of mode "max-autotune".
    """
    rest = tuned_in(options)[1]
    if not asks_for_choice(mode, options):
        return mode, rest
    given = dict(rest or {})
    constants = bool(given.pop(FREEZING, False))
    name = choice_for(gm, example_inputs, constants=constants)
    if name is None:
        return mode, rest
    return None if mode == "max-autotune" else mode, {**options_of(name), **given} or None


def tuned_in(options: Mapping[str, Any] | None) -> tuple[bool, dict[str, Any] | None]:
    """Return what the option "tuned" says, and the other options. Raises UnknownSetting for what is no bool."""
    rest = dict(options or {})
    asked = rest.pop("tuned", False)
    if not isinstance(asked, bool):
        raise UnknownSetting(f"option 'tuned' is True or False, and not {asked!r}")
    return asked, rest or None
