"""Sets of Inductor's options that `torchdynamo.tune` tries for a graph, and the choice that it has stored.

None of them changes results beyond rounding. A choice is known by the graph, the machine and the versions at work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.backends.ensemble.database import Row, database
from torchdynamo.backends.ensemble.identity import graph_hash
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.errors import UnknownSetting

DEFAULT = "default"
CHOSEN = "chosen"  # state of the row of the set that a graph is compiled with


class OptionSet(NamedTuple):
    """Options to try together, on "cpu", on "cuda", or on both ("")."""

    options: Mapping[str, Any]
    device: str = ""


SETS: dict[str, OptionSet] = {
    DEFAULT: OptionSet({}),
    "cuda graphs": OptionSet({"cudagraphs": True}, "cuda"),
    "coordinate descent": OptionSet({"coordinate_descent_tuning": True}, "cuda"),
    "templates": OptionSet({"max_autotune_gemm": True, "cudagraphs": True}, "cuda"),
    "templates, coordinate descent": OptionSet(
        {"max_autotune": True, "coordinate_descent_tuning": True, "cudagraphs": True}, "cuda"
    ),
    "combined kernels": OptionSet({"combo_kernels": True}, "cuda"),
    "no padding": OptionSet({"shape_padding": False}, "cuda"),
    "layouts as given": OptionSet({"layout_optimization": False}),
    "no reordering of loops": OptionSet({"loop_ordering_after_fusion": False}),
    "no split reductions": OptionSet({"split_reductions": False}),
    "aggressive fusion": OptionSet({"aggressive_fusion": True}, "cuda"),
    "recompute less": OptionSet({"realize_reads_threshold": 1}),
    "recompute more": OptionSet({"realize_reads_threshold": 16}),
    "small fusions": OptionSet({"max_fusion_size": 8}),
    "concatenated layers": OptionSet({"cpp.enable_concat_linear": True}, "cpu"),
    "half vectors": OptionSet({"cpp.simdlen": 256}, "cpu"),
    "threads at run time": OptionSet({"cpp.dynamic_threads": True}, "cpu"),
    "large chunks": OptionSet({"cpp.min_chunk_size": 16384}, "cpu"),
    "one thread": OptionSet({"cpp.threads": 1}, "cpu"),
    "loop tails without vectors": OptionSet({"cpp.enable_loop_tail_vec": False}, "cpu"),
    "templates for products": OptionSet({"max_autotune_gemm": True}, "cpu"),
}


def sets_for(device: str) -> dict[str, Mapping[str, Any]]:
    """Return the options of each set for a device that this version of Inductor has, by name."""
    from torch import _inductor

    known = {*_inductor.config.get_config_copy(), "cudagraphs"}
    return {
        name: options for name, (options, kind) in SETS.items() if kind in ("", device) and known.issuperset(options)
    }


def key_of(subgraph: Subgraph) -> str | None:
    """Return under what key the choice for a graph is stored; None if no other process would know the graph."""
    name = graph_hash(subgraph)
    return None if name is None else f"inductor {name}"


def keep_choice(key: str, rows: Sequence[Row]) -> None:
    """Store what was found of a graph; one of the rows is `CHOSEN`."""
    stored = database()
    if stored is not None:
        stored.keep(key, rows)


def choice_for(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> str | None:
    """Return the name of the set that was chosen for a graph; None if it was not tuned."""
    stored = database()
    if stored is None or not stored.file.exists():
        return None
    key = key_of(Subgraph(gm, example_inputs))
    rows = [] if key is None else stored.rows(key)
    return next((row.member for row in rows if row.state == CHOSEN and row.member in SETS), None)


def choices(mode: str | None, options: Mapping[str, Any] | None) -> str:
    """Return a digest of all choices that are stored, if the option "tuned" or the mode asks for them; else ""."""
    stored = database() if asks_for_choice(mode, options) else None
    if stored is None or not stored.file.exists():
        return ""
    return hashlib.sha256(repr(stored.with_state(CHOSEN)).encode()).hexdigest()


def asks_for_choice(mode: str | None, options: Mapping[str, Any] | None) -> bool:
    """Return whether a graph is compiled as was chosen for it."""
    return mode == "max-autotune" or tuned_in(options)[0]


def with_choice(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], mode: str | None, options: Mapping[str, Any] | None
) -> tuple[str | None, dict[str, Any] | None]:
    """Return a mode and options with those chosen for the graph, if the option "tuned" or the mode asks for them.

    Options that are given go before chosen ones. A choice takes the place of mode "max-autotune".
    """
    rest = tuned_in(options)[1]
    if not asks_for_choice(mode, options):
        return mode, rest
    name = choice_for(gm, example_inputs)
    if name is None:
        return mode, rest
    return None if mode == "max-autotune" else mode, {**SETS[name].options, **(rest or {})} or None


def tuned_in(options: Mapping[str, Any] | None) -> tuple[bool, dict[str, Any] | None]:
    """Return what the option "tuned" says, and the other options. Raises UnknownSetting for what is no bool."""
    rest = dict(options or {})
    asked = rest.pop("tuned", False)
    if not isinstance(asked, bool):
        raise UnknownSetting(f"option 'tuned' is True or False, and not {asked!r}")
    return asked, rest or None
