"""Compile graphs with parameters as constants, where Inductor's option "freezing" says that they stay as they are.

Inductor folds what is computed of them alone: batch norms into convolutions, layouts, padding. Each call compares their
identity, address and version; after a change the graph is compiled for what they are then, a few times, and after that
with parameters as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.ensemble.constants import FrozenRun, count_bytes
from torchdynamo.backends.ensemble.requirements import no_inference_parameters, no_writes
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.rewrites import forget_outcome, pass_on
from torchdynamo.graph import torch_compat
from torchdynamo.graph.passes.found import Found
from torchdynamo.graph.passes.padded_columns import pad_columns
from torchdynamo.hook.install import Compiled

OPTION = "freezing"
MOST_REBUILDS = 3  # after changes of the constants
REQUIRES = (no_writes, no_inference_parameters)

Run = Callable[..., Any]
Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Run]
"""Compiles a graph for inputs; what its module owns are constants."""


def freezable(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Subgraph | None:
    """Return the graph with the inputs that can be constants; None if there are none."""
    if torch_compat.has_fakes(inputs):
        return None
    subgraph = Subgraph(gm, inputs, constants=True)
    return subgraph if subgraph.static and not any(each(subgraph) for each in REQUIRES) else None


class WithConstants:
    """Calls a graph that is compiled for certain constants, and compiles it again for others.

    compile: used for the graph with constants. otherwise: for the graph whose parameters are inputs.
    """

    __slots__ = ("__weakref__", "compile", "gm", "otherwise", "rebuilds", "run")

    def __init__(self, subgraph: Subgraph, compile: Compile, otherwise: Compile) -> None:
        self.gm, self.compile, self.otherwise = subgraph.gm, compile, otherwise
        self.rebuilds = 0
        self.run: Run = self.built(subgraph)

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def built(self, subgraph: Subgraph) -> Run:
        """Compile with constants, of which what is known is compared in each call."""
        frozen = subgraph.frozen()
        padded = pad_columns(frozen.module.graph)
        frozen.module.recompile()
        forget_outcome(frozen.module)
        with torch.no_grad():
            made = FrozenRun(self.compile(frozen.module, frozen.inputs), subgraph, self.changed)
        size = count_bytes(subgraph) / 2**20
        constants = Found("parameters", None, f"{len(subgraph.static)} constants, {size:.1f} MiB")
        pass_on(self.gm, frozen.module, [constants, *padded])
        return made

    def changed(self, *args: Any) -> Any:
        """Compile for the constants that these arguments have; without any, if they have changed too often."""
        return Compiled(self.renew, None)(args)(*args)  # no frame of the compiler is captured

    def renew(self, args: Sequence[Any]) -> Run:
        """Compile once more, and return what serves calls from now on."""
        subgraph = freezable(self.gm, args) if self.rebuilds < MOST_REBUILDS else None
        self.rebuilds += 1
        self.run = self.otherwise(self.gm, args) if subgraph is None else self.built(subgraph)
        return self.run
