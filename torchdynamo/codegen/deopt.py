"""Deoptimize: where a graph raises or an assertion fails, run the frame from its start as it was written.

Then all that the frame does before the error is done first. A graph may rest on assertions
(capture/speculate/assertions.py), which are checked after it has run. If the frame itself raises nothing, a branch goes
both ways after all, or sizes differ (capture/speculate/unify_sizes.py): the frame is compiled again without assertions,
unless it must be one graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch.fx

from torchdynamo import _native
from torchdynamo.backends.preserve import Contents, RandomState, mutated_positions, tensors_at
from torchdynamo.backends.run import GraphFailure
from torchdynamo.bytecode.instruction import Instruction, Item, Label
from torchdynamo.capture.capture import Capture
from torchdynamo.core.learned import record
from torchdynamo.core.reasons import explained
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
    """Emits the deoptimization of one entry, which runs the frame as written when the graph returns None."""

    only_here = ""  # why another process cannot make the same from the entry's code and graph; "" if it can

    def __init__(self, emit: CodeEmitter, capture: Capture) -> None:
        self.begin(capture.code, capture.machine.may_raise, capture.machine.sizes_fit)
        self.rerun_items = self.as_written(emit)

    def begin(self, code: CodeType, warned: bool, assumes_sizes: bool) -> None:
        self.code = weakref.ref(code)  # weak, because the code owns this object
        self.error = ""  # text of the graph's last error
        self.warned = warned  # a warning was shown, or none is needed: the graph may well raise
        self.assumes_sizes = assumes_sizes  # sizes were assumed equal: the graph may raise where the frame does not
        self.final = False  # whole-graph mode: it cannot be compiled in another way

    @classmethod
    def again(cls, code: CodeType, warned: bool, assumes_sizes: bool) -> Bailout:
        """Return the object of an entry whose code is known already."""
        made = cls.__new__(cls)
        made.begin(code, warned, assumes_sizes)
        return made

    def raised(self, error: Exception) -> None:
        """Note the error that the graph raised; the frame, run as written, will raise its own."""
        self.error = f"{type(error).__name__}: {error}"

    # -- the code that is run instead ---------------------------------------------------------------------------------
    def as_written(self, emit: CodeEmitter) -> list[Item]:
        """Return instructions that run the frame's own code, uncompiled, on its own arguments."""
        kept, emit.items = emit.items, []
        emit.function(_native.AsWritten(emit.capture.code))
        emit.op("CALL", (0, ()))
        emit.function(self.after_rerun)
        emit.op("CALL", (0, ()))
        emit.op("POP")
        made, emit.items = emit.items, kept
        return made

    def branch_on_results(self, rest: list[Item], position: Any) -> list[Item]:
        """Wrap `rest`, with the graph's results on the stack, in a branch: None runs the frame as written.

        That side comes last and joins the rest at its return: decompilers read such code as an `if` with an `else`.
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
            *self.rerun_items,
            end,
            Instruction("RETURN", None, position),
        ]

    def after_rerun(self) -> None:
        """React to a frame that ran as written and did not raise: warn, or have it compiled without assertions."""
        error, self.error = self.error, ""
        code = self.code()
        if error and not self.assumes_sizes:
            if not self.warned:
                text = f"a compiled graph raised {error}; the function ran eagerly instead"
                warn_user(explained(text, "graph failed"), FallbackWarning)
            self.warned = True
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
        """Compile the graph; the result returns None if the frame is to run as it was written.

        stops: nodes after which assertions must be checked before the graph goes on.
        """
        return compile_part(gm, examples)


class CheckedRun(Bailout):
    """Emits the deoptimization of an entry whose graph rests on assertions, and the checks of these."""

    only_here = "its graph rests on assertions"

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
        return self.leaving_no_trace(run or self.at_once(compile_part(gm, examples), outputs), gm)

    def at_once(self, fn: Run, outputs: Sequence[torch.fx.Node]) -> Run:
        """Return a function that runs the whole graph, then checks the assertions."""
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
        """Return a function that runs the graph in stages and checks assertions in between.

        Each stage is compiled when a call first gets to it.
        """
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
        """Return the assertions on values that a stage computes."""
        return [(node, truth) for node, truth in self.checks if node.name in stage.results]

    def leaving_no_trace(self, run: Run, gm: torch.fx.GraphModule) -> Run:
        """Wrap a run of the graph so that one that returns None leaves no trace.

        It restores random number generators, modes and the contents of inputs that were written to. An exception counts
        as None.
        """
        random, switches, written = effects_of(gm).random, changes_modes(gm), mutated_positions(gm)

        def attempt(*args: Any) -> Any:
            state = RandomState() if random else None
            modes = Modes.now() if switches else None
            contents = Contents(tensors_at(written, args)) if written else None
            try:
                results = run(*args)
            except (TorchDynamoError, STOP_RECOMPUTING):
                raise
            except Exception as error:  # the program's or the backend's: the frame, run as written, will show which
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
