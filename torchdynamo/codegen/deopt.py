"""Where a graph raises, the frame runs from its start as it was written: what it does before comes first then.

A graph that rests on checks (capture/speculate/assertions.py) has them looked at, and if one fails it is the same. A
frame in which nothing is raised then has a branch that goes both ways after all, or sizes that differ
(capture/speculate/unify_sizes.py): it is compiled anew, without checks, unless it has to be one graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch.fx

from torchdynamo import _native
from torchdynamo.backends.preserve import Contents, RandomState, mutated_positions, tensors_at
from torchdynamo.backends.run import GraphFailure
from torchdynamo.bytecode.instruction import Instruction, Item, Label
from torchdynamo.capture.capture import Capture
from torchdynamo.core.learned import record
from torchdynamo.errors import FallbackWarning, TorchDynamoError
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import changes_modes, effects_of
from torchdynamo.graph.passes.stages import GraphStage, cut
from torchdynamo.graph.torch_compat import STOP_RECOMPUTING
from torchdynamo.hook.user_warnings import warn_user

if TYPE_CHECKING:
    from torchdynamo.codegen.emit import CodeEmitter

Run = Callable[..., Any]


class Bailout:
    """Of one entry: the frame as it was written, which runs where the graph gives None."""

    def __init__(self, emit: CodeEmitter, capture: Capture) -> None:
        self.code = weakref.ref(capture.code)  # which owns us
        self.error = ""
        self.told = capture.machine.may_raise  # that the graph itself raised; where that may be, nobody need know
        self.taken = capture.machine.sizes_fit  # so it may have raised what the frame does not
        self.final = False  # whole-graph mode: there is no compiling it otherwise
        self.instead = self.as_written(emit)

    def raised(self, error: Exception) -> None:
        """Emit the raise of what the graph raised, eagerly too."""
        self.error = f"{type(error).__name__}: {error}"

    # -- the code that is run instead -----------------------------------------------------------------------------
    def as_written(self, emit: CodeEmitter) -> list[Item]:
        """Run the frame's own code with its own arguments, for what that returns. Nothing is compiled."""
        kept, emit.items = emit.items, []
        emit.function(_native.AsWritten(emit.capture.code))
        emit.op("CALL", (0, ()))
        emit.function(self.nothing_was_raised)
        emit.op("CALL", (0, ()))
        emit.op("POP")
        made, emit.items = emit.items, kept
        return made

    def looking(self, rest: list[Item], position: Any) -> list[Item]:
        """Emit the choice, with the graph's results on the stack: go on with them, or run the frame as it was written.

        That comes last, and joins the rest where it returns: decompilers take such code for an `if` and its `else`.
        """
        instead, end = Label(), Label()
        if isinstance(rest[-1], Instruction) and rest[-1].op == "RETURN":
            rest = [*rest[:-1], Instruction("JUMP", end, rest[-1].position)]
        return [
            Instruction("COPY", 1, position),
            Instruction("BRANCH", ("none", instead), position),
            *rest,
            instead,
            Instruction("POP", None, position),
            *self.instead,
            end,
            Instruction("RETURN", None, position),
        ]

    def nothing_was_raised(self) -> None:
        """Emit the return of a frame that ran as it was written."""
        error, self.error = self.error, ""
        code = self.code()
        if error and not self.taken:
            if not self.told:
                text = f"a compiled graph raised {error}; the function ran eagerly instead"
                warn_user(text, FallbackWarning)
            self.told = True
        elif code is not None and not self.final:
            record(code).not_speculated = True
            _native.clear_code(code)

    def compile(
        self,
        gm: torch.fx.GraphModule,
        examples: Sequence[Any],
        compile_part: Callable[..., Run],
        outputs: Sequence[torch.fx.Node],
        stops: Sequence[torch.fx.Node],
    ) -> Run:
        """Return the graph, giving None if the frame is to run as it was written. `stops`: where it has to stop and
        look.
        """
        return compile_part(gm, examples)


class CheckedRun(Bailout):
    """Which results of its graph have to be what, too."""

    def __init__(self, emit: CodeEmitter, capture: Capture) -> None:
        self.checks = [(check.value.node, check.truth) for check in capture.machine.checks]
        for node, _ in self.checks:
            emit.outputs.setdefault(node, len(emit.outputs))
        super().__init__(emit, capture)

    def compile(
        self,
        gm: torch.fx.GraphModule,
        examples: Sequence[Any],
        compile_part: Callable[..., Run],
        outputs: Sequence[torch.fx.Node],
        stops: Sequence[torch.fx.Node],
    ) -> Run:
        run = self.in_stages(gm, compile_part, outputs, stops) if stops else None
        return self.undone(run or self.at_once(compile_part(gm, examples), outputs), gm)

    def at_once(self, fn: Run, outputs: Sequence[torch.fx.Node]) -> Run:
        """Return all of it, then the checks."""
        places = [(outputs.index(node), truth) for node, truth in self.checks]

        def run(*args: Any) -> Any:
            results = fn(*args)
            return results if all(bool(results[at]) is truth for at, truth in places) else None

        return run

    def in_stages(
        self,
        gm: torch.fx.GraphModule,
        compile_part: Callable[..., Run],
        outputs: Sequence[torch.fx.Node],
        stops: Sequence[torch.fx.Node],
    ) -> Run:
        """Return one stage after the other. Each is compiled when a call first gets to it."""
        stages = cut(gm, [node.name for node in stops])
        inputs = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        compiled: list[Run | None] = [None] * len(stages)

        def run(*args: Any) -> Any:
            known = dict(zip(inputs, args, strict=True))
            for at, stage in enumerate(stages):
                given = [known[name] for name in stage.inputs]
                fn = compiled[at]
                if fn is None:
                    fn = compiled[at] = compile_part(stage.module, given)
                known.update(zip(stage.results, fn(*given), strict=True))
                if not all(bool(known[node.name]) is truth for node, truth in self.checks_of(stage)):
                    return None
            return tuple(known[node.name] for node in outputs)

        return run

    def checks_of(self, stage: GraphStage) -> list[tuple[Any, bool]]:
        """Return those that the stage computes."""
        return [(node, truth) for node, truth in self.checks if node.name in stage.results]

    def undone(self, run: Run, gm: torch.fx.GraphModule) -> Run:
        """Return what gives None leaves no trace: random numbers, modes and what was written over are put back."""
        random, switches, written = effects_of(gm).random, changes_modes(gm), mutated_positions(gm)

        def attempt(*args: Any) -> Any:
            state = RandomState() if random else None
            modes = Modes.now() if switches else None
            contents = Contents(tensors_at(written, args)) if written else None
            try:
                results = run(*args)
            except (TorchDynamoError, STOP_RECOMPUTING):
                raise
            except Exception as error:  # the program's own, or the backend's: the program will tell
                self.raised(error.original if isinstance(error, GraphFailure) else error)
                results = None
            if results is None:
                if state is not None:
                    state.restore()
                if modes is not None:
                    modes.restore()
                if contents is not None:
                    contents.restore()
            return results

        return attempt
