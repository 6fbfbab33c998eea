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
from torchdynamo.bytecode.instruction import Instruction, Item, Label
from torchdynamo.capture.capture import Capture
from torchdynamo.codegen.checked_graph import CheckedGraph, CheckedPlan
from torchdynamo.core.learned import record
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph.passes.stages import cut
from torchdynamo.hook.user_warnings import warn_user

if TYPE_CHECKING:
    from torchdynamo.codegen.emit import CodeEmitter

Run = Callable[..., Any]


class Bailout:
    """Emits the deoptimization of one entry, which runs the frame as written when the graph returns None."""

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
        stages = cut(gm, [node.name for node in stops]) if stops else ()
        run = CheckedGraph(CheckedPlan.of(gm, stages, outputs, self.checks), compile_part, self.raised)
        if not stages:
            run.compile_first(examples)
        return run
