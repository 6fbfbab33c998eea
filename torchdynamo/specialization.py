"""In what manner a frame is captured, and which other is tried where that leads to a break.

Sizes and numbers vary, as far as they have been seen to. Where an operator fails on symbols (it has been asked by what
sizes are now as well), nothing is presumed of layouts; then all operators are asked by what sizes are now; then what
asks for a value is a constant. Where all that leads to a break, and versions before this one were whole, the numbers
are constants once more: some whole graphs are better than pieces. But only a few times: a number that has led to some
versions will lead to more, so the graph ends where its value is asked for, and what follows goes for all its values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from torchdynamo import config
from torchdynamo.cache.dynamic_sources import MANY
from torchdynamo.capture.speculate import tensor_constants
from torchdynamo.core.signals import Assumption, Break
from torchdynamo.core.source import Roots, Source
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.guards.kind import read

ASKS_FOR_VALUES = ("data-dependent value", "data-dependent branch", "unknown fact", "error that is caught")
BY_TORCH = re.compile(r"^[LG]\['(\w+)'\]")  # torch.compile's way to name a local and a global
MOST_WHOLE = 3  # versions with numbers as constants
MOST_WHOLE_IF_ASKED = 4  # of a function that was given to `compile`
MOST_WASTED = 3  # of those, versions that no call has come back for


class CompilerSettings(Protocol):
    """What a user has asked for, as a `pipeline.Compiler` holds it."""

    dynamic: bool | None
    fullgraph: bool
    buckets: Mapping[str, Any]
    backend_name: str
    owner_id: int


class Specialization:
    """How numbers are treated in the next try."""

    def __init__(
        self,
        compiler: CompilerSettings,
        roots: Roots,
        varying: frozenset[Source],
        drawn: frozenset[Source],
        settling: bool,
        whole: bool,
    ) -> None:
        self.compiler, self.roots = compiler, roots
        self.settling = settling  # what asks for a value makes a constant of it
        self.varying = varying | drawn
        self.drawn = drawn  # known at a break to be others in each call, and never constants
        self.whole = whole and compiler.dynamic is None  # versions so far were, and there may be more like them
        self.dropped: frozenset[Assumption] = frozenset()  # not presumed any more
        self.by_value = False  # operators are answered by what sizes are now
        self.passed, self.schedules = False, True  # small tensors of a caller's are constants; learning rates vary
        self.told: Break | None = None  # what a whole graph failed for before they were
        self.fixed = False  # numbers are constants
        self.tried: Break | None = None  # what another manner than this led to
        self.counted: frozenset[Source] = frozenset()  # numbers that the frame itself changes
        self.asked: Break | None = None  # what floats became constants for
        self.spared: frozenset[Source] = frozenset()  # these floats; and for good, where that was in vain

    def builder(self) -> GraphBuilder:
        """Return what the next try is captured with."""
        compiler = self.compiler
        made = GraphBuilder(
            scalars=compiler.fullgraph or config.capture_scalar_outputs,
            shapes=compiler.fullgraph or config.capture_dynamic_output_shape_ops,
            varying=self.varying,
        )
        made.may_end = not compiler.fullgraph
        numbers = made.numbers
        numbers.always = compiler.dynamic is True or (compiler.dynamic is None and config.dynamic_shapes)
        numbers.never = compiler.dynamic is False or self.fixed
        numbers.passed, numbers.schedules, numbers.settling = self.passed, self.schedules, self.settling
        numbers.dropped, numbers.bucketed = self.dropped, compiler.buckets
        numbers.named = [BY_TORCH.sub(r"\1", name.strip()) for name in config.dynamic_sources.split(",")]
        return made

    def other(self, end: Break, builder: GraphBuilder, beginning: bool) -> Break | None:
        """Choose another specialization and return None; else return the break that remains."""
        numbers, tries_operators = builder.numbers, end.reason == "unsupported operator"
        if self.fixed:
            return self.back()
        if numbers.sliced and Assumption.SLICES not in self.dropped:
            self.dropped |= {Assumption.SLICES}
            return None
        if tries_operators and numbers.presumed():
            self.dropped |= {Assumption.LAYOUTS}
            return None
        if tries_operators and self.tried is None and numbers.entries:
            self.tried, self.by_value = end, True
            empty = {source for source in self.varying if source.how == "size" and read(source, self.roots) == 0}
            self.varying = self.varying - empty
            return None
        if self.tried is not None and self.by_value:
            end, self.by_value = self.tried, False
        if self.asked is not None and self.asked.restart == end.restart and not self.compiler.fullgraph:
            self.varying, self.schedules, self.asked = self.varying | self.spared, True, None
            return end
        constants = {source for source in self.varying - self.drawn if self.may_be_constant(source)} - self.spared
        if end.reason in ASKS_FOR_VALUES and (constants or numbers.scheduled):
            self.asked, self.spared = end, self.spared | constants
            self.varying, self.schedules = self.varying - constants, False
            return None
        if end.reason in ASKS_FOR_VALUES and self.compiler.fullgraph and not self.passed:
            self.told, self.passed = end, True
            return None
        found = {source for source, _ in numbers.entries.values()}
        if self.whole and beginning and found and found <= self.varying:
            self.tried, self.fixed = self.told or end, True
            return None
        return self.told or end

    def drop(self, presumption: Assumption) -> None:
        """Capture without a presumption from now on."""
        assert presumption not in self.dropped, f"{presumption} was dropped before"
        self.dropped |= {presumption}

    def counts(self, numbers: Iterable[Source]) -> bool:
        """Return whether this is tried again because the frame changes these numbers itself, which it took for
        constants.
        """
        new = frozenset(numbers) - self.counted
        if not new or len(new) > MANY or self.compiler.dynamic is False or self.fixed:
            return False
        self.counted |= new
        self.varying |= new
        return True

    def back(self) -> Break:
        """Return the break that remains where making numbers constants has not helped."""
        self.fixed, self.whole = False, False
        assert self.tried is not None
        return self.tried

    def may_be_constant(self, source: Source) -> bool:
        """Return whether what varies is taken for a constant all the same if a value is asked of it: a float that is
        given, and in whole graphs what is read from a tensor, rather than none.
        """
        if tensor_constants.is_reading(source):
            return self.compiler.fullgraph
        return self.settling and type(read(source, self.roots)) is float
