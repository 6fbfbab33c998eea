"""Compile graphs by Inductor, PyTorch's own compiler, to fused kernels in C++ or Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch.fx

from torchdynamo.backends.artifacts.aot.noting import keep_notes, noting
from torchdynamo.backends.cache_key import Decompositions
from torchdynamo.backends.checked_contents import Checked
from torchdynamo.backends.cpp_kernels import as_in_eager
from torchdynamo.backends.cuda_graphs.direct import called_directly
from torchdynamo.backends.cuda_graphs.seam import (
    INDUCTORS,
    Wanted,
    ledger_for,
    recorded_as_captured,
    recorded_kernels,
    wanted_in,
)
from torchdynamo.backends.cut_backward import cutting
from torchdynamo.backends.ddp_buckets import by_buckets, parts_in
from torchdynamo.backends.decompositions import with_our_rows
from torchdynamo.backends.disk_caches import disk_caches
from torchdynamo.backends.freezing import OPTION as FREEZING
from torchdynamo.backends.freezing import WithConstants, freezable
from torchdynamo.backends.frozen_constants import kept_apart
from torchdynamo.backends.handoff import handoff
from torchdynamo.backends.input_checks import without_input_checks
from torchdynamo.backends.joint_pass import before_inductors
from torchdynamo.backends.kernel_names import short_names
from torchdynamo.backends.option_sets import choices, tuned_in, with_choice
from torchdynamo.backends.partition import for_inductor
from torchdynamo.backends.preserve import is_for_eager, leaves_inputs_alone
from torchdynamo.backends.recursion_limit import recursion_limit_restored
from torchdynamo.backends.region_bodies import bodies_have_one_schema, bodies_keep_arguments
from torchdynamo.backends.regions import Choice, choice_in, left_whole, outlined
from torchdynamo.backends.registry import register_backend, rests_on
from torchdynamo.backends.rewrites import WantedRewrites, left_as_written, rewritten
from torchdynamo.backends.rewrites import choice_in as rewrites_in
from torchdynamo.backends.settings import checked_by, nearest
from torchdynamo.backends.split_backward import split_into_parts
from torchdynamo.backends.strides import skip_sympy_strides
from torchdynamo.errors import UnknownSetting

PRE_PASS = "joint_custom_pre_pass"


@register_backend
@rests_on(choices)
@checked_by(lambda mode, options: settings(mode, of_inductor(options)) if mode or options else None)
@leaves_inputs_alone
@split_into_parts
@by_buckets
def inductor(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any] | None:
    """Compile the graph with Inductor; return None for graphs that must run in eager (`is_for_eager`).

    mode, options: as torch.compile takes them, and the options "regions", "rewrites", "loss_chunks",
    "loss_bytes", "ddp_parts", "cudagraphs", "cudagraph_recordings" and "tuned". Raises UnknownSetting for others.
    """
    mode, options = with_choice(gm, example_inputs, mode, options)
    regions, options = choice_in(options)
    recordings, options = wanted_in(options)
    rewrites, options = rewrites_in(options)
    parts, options = parts_in(options)
    patches = settings(mode, options)
    recorded = is_recorded(recordings, patches)
    ledger = ledger_for(gm, recordings) if recorded else None
    if is_for_eager(gm, example_inputs):
        return None if ledger is None else recorded_as_captured(gm, example_inputs, ledger)
    compilation = Compilation(gm, patches, regions, rewrites, recorded, ledger, parts)
    subgraph = freezable(gm, example_inputs) if is_frozen(patches) else None
    if subgraph is None:
        return compilation.made(gm, example_inputs)
    unfrozen = compilation._replace(patches={**patches, FREEZING: False})
    return WithConstants(subgraph, compilation.made, unfrozen.made)


class Compilation(NamedTuple):
    """A graph, and the settings with which it is compiled."""

    gm: torch.fx.GraphModule
    patches: Mapping[str, Any]
    regions: Choice
    rewrites: WantedRewrites
    recorded: bool
    ledger: Any
    parts: int  # of a backward under DistributedDataParallel, at most

    def made(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph with these settings; where Inductor fails on what was made of it, closer to what it was."""
        from torch._inductor.exc import InductorError

        mine = self._replace(gm=gm)
        try:
            return mine.compiled(inputs)
        except InductorError as error:
            plainer = mine.plainer(error)
            if plainer is None:
                raise
        return plainer.made(gm, inputs)

    def plainer(self, error: Exception) -> Compilation | None:
        """Return the compilation without regions, or else without rewrites, after an error; None if it had neither."""
        if left_whole(self.gm, error):
            return self._replace(regions=False)
        if left_as_written(self.gm, error):
            return self._replace(rewrites=self.rewrites._replace(on=False))
        return None

    def compiled(self, inputs: Sequence[Any], *, by_contents: bool = True) -> Callable[..., Any]:
        """Compile the graph for these inputs. by_contents: rewrites may rest on what inputs contain."""
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        inner, patches = wrapped(compile_fx_inner), dict(self.patches)
        if self.ledger is not None:
            inner = recorded_kernels(inner, self.ledger)
        contents = None
        with handoff(self.gm, inputs) as ready:
            if self.rewrites.on:
                contents = rewritten(
                    *(ready.module, self.gm, inputs, patches), by_contents=by_contents, losses=self.rewrites.losses
                )
            order = () if self.recorded else ready.order
            outlined(ready.module, self.gm, self.regions, patches)
            caches = disk_caches(ready, inputs, patches, wrapped=self.recorded or bool(order))
            with caches, bodies_have_one_schema(), noting() as found:
                made: Any = compile_fx(
                    ready.module,
                    ready.inputs,
                    inner_compile=cutting(inner, order, self.parts),
                    config_patches=patches,
                    decompositions=decompositions(patches),
                )
        if self.recorded:
            made = called_directly(made, ready, found)
        run = keep_notes("inductor", ready.as_captured(made), ready, found)
        if contents is None:
            return run
        return Checked(run, contents, lambda args: self.compiled(args, by_contents=False))


def wrapped(inner_compile: Callable[..., Any]) -> Callable[..., Any]:
    """Return Inductor's function that compiles one graph, forward or backward, with what is ours around it."""
    around: tuple[Callable[..., Any], ...] = (
        *(without_input_checks, bodies_keep_arguments(), skip_sympy_strides(), as_in_eager()),
        *(short_names(), recursion_limit_restored(), kept_apart),
    )
    for wrap in around:
        inner_compile = wrap(inner_compile)
    return inner_compile


def of_inductor(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the options that are Inductor's own. Raises UnknownSetting for wrong values of others."""
    for split in (tuned_in, choice_in, wanted_in, rewrites_in, parts_in):
        options = split(options)[1]
    return options


def is_recorded(wanted: Wanted, patches: dict[str, Any]) -> bool:
    """Return whether CUDA graphs are wanted, by an option or Inductor's setting, which is switched off for ours."""
    from torch import _inductor

    inductors: Any = _inductor.config
    setting = bool(patches.get(INDUCTORS, inductors.triton.cudagraphs))
    patches[INDUCTORS] = False
    return setting if wanted.on is None else wanted.on


def is_frozen(patches: Mapping[str, Any]) -> bool:
    """Return whether parameters are to be constants, by an option or Inductor's setting."""
    from torch import _inductor

    inductors: Any = _inductor.config
    return bool(patches.get(FREEZING, inductors.freezing))


def decompositions(patches: Mapping[str, Any]) -> Decompositions:
    """Return Inductor's decompositions under these settings, with our rows for the edges of numbers on top."""
    from torch import _inductor
    from torch._inductor.decomposition import select_decomp_table

    with _inductor.config.patch(dict(patches)):
        table = select_decomp_table()
    return Decompositions(with_our_rows(table))


def settings(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the Inductor settings for a mode and options. Raises UnknownSetting for those that do not exist."""
    from torch import _inductor

    config: Any = _inductor.config
    known = config.get_config_copy()
    patches: dict[str, Any] = {"custom_partitioner_fn": for_inductor()}
    if mode not in (None, "default"):
        modes = _inductor.list_mode_options()
        if mode not in modes:
            raise UnknownSetting(f"Inductor has no mode {mode!r}{nearest(mode, modes)}")
        patches.update(modes[mode])
    for name, value in (options or {}).items():
        key = name.replace("-", "_")
        if key not in known:
            more = "torch._inductor.list_options() has them all"
            raise UnknownSetting(f"Inductor has no option {name!r}{nearest(key, known) or ';'} {more}")
        kind = config.get_type(key)
        if isinstance(kind, type) and not isinstance(value, kind):  # unions and the like are not checked
            raise UnknownSetting(f"Inductor's option {name!r} is of type {kind.__name__}, and {value!r} is not")
        patches[key] = value
    users = patches.get(PRE_PASS, known[PRE_PASS])
    if users is None:  # a user's own pass may rely on the unchanged graph
        patches[PRE_PASS] = before_inductors()
    return patches
