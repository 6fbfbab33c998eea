"""Run a graph that rests on assertions: in stages, with checks in between. A run that fails leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch.fx

from torchdynamo.backends.preserve import Contents, RandomState, mutated_positions, tensors_at
from torchdynamo.backends.run import GraphFailure
from torchdynamo.errors import TorchDynamoError
from torchdynamo.graph.generators import GeneratorStates, is_generator
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import changes_modes, effects_of
from torchdynamo.graph.passes.stages import GraphStage
from torchdynamo.graph.torch_compat import STOP_RECOMPUTING

Run = Callable[..., Any]


class CheckedPlan(NamedTuple):
    """How a graph is run that rests on assertions. Values are known by the names of their nodes."""

    inputs: Sequence[str]
    stages: Sequence[GraphStage]
    outputs: Sequence[str]
    checks: Sequence[tuple[str, bool]]
    """Values, with what each must be as a bool."""
    random: bool
    switches: bool
    """True if it changes modes."""
    written: tuple[int, ...]
    """Positions of inputs that it writes to."""
    generators: tuple[int, ...] = ()
    """Positions of inputs that are generators of random numbers."""

    @classmethod
    def of(
        cls,
        gm: torch.fx.GraphModule,
        stages: Sequence[GraphStage],
        outputs: Sequence[torch.fx.Node],
        checks: Sequence[tuple[torch.fx.Node, bool]],
    ) -> CheckedPlan:
        """Return the plan for a graph. stages: none for a graph that is run at once."""
        inputs, names = inputs_of(gm), [node.name for node in outputs]
        examples = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
        return cls(
            inputs,
            stages or [GraphStage(gm, inputs, names)],
            names,
            [(node.name, truth) for node, truth in checks],
            *(effects_of(gm).random, changes_modes(gm), mutated_positions(gm)),
            tuple(at for at, example in enumerate(examples) if is_generator(example)),
        )


def inputs_of(gm: torch.fx.GraphModule) -> list[str]:
    """Return the names of a graph's inputs."""
    return [node.name for node in gm.graph.find_nodes(op="placeholder")]


class CheckedGraph:
    """A compiled graph that returns None where an assertion fails, or where it raises, and has left no trace then.

    It restores generators of random numbers, modes and the contents of inputs that were written to.
    """

    def __init__(
        self,
        plan: CheckedPlan,
        compile_part: Callable[[torch.fx.GraphModule, Sequence[Any]], Run],
        raised: Callable[[Exception], object],
    ) -> None:
        """Make the graph. compile_part: compiles a stage for inputs; a stage is compiled when a call first gets there.

        raised: called with the error of a graph that raises.
        """
        self.plan = plan
        self.compile_part = compile_part
        self.raised = raised
        self.compiled: list[Run | None] = [None] * len(plan.stages)

    def compile_first(self, examples: Sequence[Any]) -> None:
        """Compile the first stage."""
        self.compiled[0] = self.compile_part(self.plan.stages[0].module, examples)

    def __call__(self, *args: Any) -> Any:
        plan = self.plan
        state = RandomState() if plan.random else None
        modes = Modes.now() if plan.switches else None
        contents = Contents(tensors_at(plan.written, args)) if plan.written else None
        generators = GeneratorStates(args[at] for at in plan.generators) if plan.generators else None
        try:
            results = self.in_stages(args)
        except (TorchDynamoError, STOP_RECOMPUTING):
            raise
        except Exception as error:  # the program's or the backend's: the frame, run as written, will show which
            self.raised(error.original if isinstance(error, GraphFailure) else error)
            results = None
        if results is None:
            for before in (state, modes, contents, generators):
                if before is not None:
                    before.restore()
        return results

    def in_stages(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Run the stages one after the other; None if an assertion fails."""
        known = dict(zip(self.plan.inputs, args, strict=True))
        for at, stage in enumerate(self.plan.stages):
            given = [known[name] for name in stage.inputs]
            fn = self.compiled[at]
            if fn is None:
                fn = self.compiled[at] = self.compile_part(stage.module, given)
            known.update(zip(stage.results, fn(*given), strict=True))
            if not all(bool(known[name]) is truth for name, truth in self.plan.checks if name in stage.results):
                return None
        return tuple(known[name] for name in self.plan.outputs)
