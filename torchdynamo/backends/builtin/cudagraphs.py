"""Record the operators of AOTAutograd's graphs as CUDA graphs, and replay these, which saves the cost of launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.fx

from torchdynamo.backends.aot import aot_autograd, operator_by_operator
from torchdynamo.backends.cuda_graphs.device import device_of
from torchdynamo.backends.cuda_graphs.direct import called_directly
from torchdynamo.backends.cuda_graphs.seam import ledger_for, recorded_as_captured, recorded_operators, wanted_in
from torchdynamo.backends.preserve import is_for_eager, leaves_inputs_alone
from torchdynamo.backends.registry import register_backend
from torchdynamo.backends.settings import LOG, checked_by, nearest
from torchdynamo.backends.split_backward import split_into_parts
from torchdynamo.errors import UnknownSetting


def check(mode: str | None, options: Mapping[str, Any] | None) -> None:
    """Check options; a mode has no effect. Raises UnknownSetting for an option that there is not."""
    if mode is not None:
        LOG.warning("backend 'cudagraphs' has no modes, and ignores mode=%r", mode)
    for name in wanted_in(options)[1] or ():
        known = ("cudagraphs", "cudagraph_recordings")
        raise UnknownSetting(f"backend 'cudagraphs' has no option {name!r}{nearest(name, known)}")


@register_backend
@checked_by(check)
@leaves_inputs_alone
@split_into_parts
def cudagraphs(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any] | None:
    """Return the graph's operators, recorded at the third call of each size; None without a GPU that all inputs are on.

    options: "cudagraphs" and "cudagraph_recordings", as backend "inductor" has them.
    """
    wanted = wanted_in(options)[0]
    if device_of(example_inputs) is None and not wanted.required:
        return None
    ledger = ledger_for(gm, wanted)
    if is_for_eager(gm, example_inputs):
        return recorded_as_captured(gm, example_inputs, ledger)
    forward, backward = recorded_operators(operator_by_operator, ledger)
    compile_graph = aot_autograd(forward, backward, keep_inference_input_mutations=True, finish=called_directly)
    compiled: Callable[..., Any] | None = compile_graph(gm, example_inputs)
    return compiled
