"""Decide which numbers are symbols in a capture, and what to try next after a break.

Sizes and numbers that were seen to change are symbols. If an operator fails on symbols (also when asked about the
current sizes), no layouts are assumed; then all operators are answered by the current sizes; then a number whose value
is asked for becomes a constant. If all that still breaks the graph, and earlier entries were whole graphs, numbers are
constants again: a few whole graphs are better than pieces. That is limited, because a number that has led to several
entries will lead to more: then the graph ends where its value is asked for, and the continuation serves all values.
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
BY_TORCH = re.compile(r"^[LG]\['(\w+)'\]")  # torch.compile's names of a local and a global
MOST_WHOLE = 3  # entries with numbers as constants
MOST_WHOLE_IF_ASKED = 4  # such entries of a function that was passed to `compile`
MOST_WASTED = 3  # such entries that served no further call


class CompilerSettings(Protocol):
    """The user's settings, as a `pipeline.Compiler` holds them."""

    @property
    def dynamic(self) -> bool | None: ...

    fullgraph: bool
    buckets: Mapping[str, Any]
    backend_name: str
    owner_id: int
    recompile_limit: int | None
    exporting: bool  # the graph is for `torchdynamo.export`


class Specialization:
    """The treatment of numbers in the next try to capture a frame."""

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
        self.settling = settling  # a number becomes a constant where its value is asked for
        self.varying = varying | drawn  # sources that become symbols
        self.drawn = drawn  # sources known at a break to differ in each call, which are never constants
        self.whole = whole and compiler.dynamic is None  # earlier entries were whole graphs, and more are allowed
        self.dropped: frozenset[Assumption] = frozenset()  # assumptions that are not made any more
        self.by_value = False  # operators are answered by the current sizes
        self.passed, self.schedules = False, True  # a caller's small tensors are constants; learning rates are symbols
        self.before_passed: Break | None = None  # the break of a whole graph before small tensors became constants
        self.fixed = False  # all numbers are constants
        self.tried: Break | None = None  # the break of an earlier try with symbols
        self.counted: frozenset[Source] = frozenset()  # numbers that the frame itself changes
        self.asked: Break | None = None  # the break for which floats became constants
        self.spared: frozenset[Source] = frozenset()  # these floats; they are not tried again as constants

    def builder(self) -> GraphBuilder:
        """Return the graph builder for the next try."""
        compiler = self.compiler
        made = GraphBuilder(
            scalars=compiler.fullgraph or config.capture_scalar_outputs,
            shapes=compiler.fullgraph or config.capture_dynamic_output_shape_ops,
            varying=self.varying,
        )
        made.branches = config.capture_branches
        made.may_end, made.exporting = not compiler.fullgraph, compiler.exporting
        numbers = made.numbers
        numbers.always = compiler.dynamic is True
        numbers.never = compiler.dynamic is False or self.fixed
        numbers.passed, numbers.schedules, numbers.settling = self.passed, self.schedules, self.settling
        numbers.dropped, numbers.bucketed = self.dropped, compiler.buckets
        numbers.named = [BY_TORCH.sub(r"\1", name.strip()) for name in config.dynamic_sources.split(",")]
        return made

    def other(self, end: Break, builder: GraphBuilder, beginning: bool) -> Break | None:
        """Choose another specialization and return None; return the break if there is none left to try."""
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
            self.before_passed, self.passed = end, True
            return None
        found = {source for source, _ in numbers.entries.values()}
        if self.whole and beginning and found and found <= self.varying:
            self.tried, self.fixed = self.first(end), True
            return None
        return self.first(end)

    def first(self, end: Break) -> Break:
        """Return the break to tell of: the one before small tensors became constants, unless the program raises."""
        return end if end.raises or self.before_passed is None else self.before_passed

    def drop(self, presumption: Assumption) -> None:
        """Drop an assumption from the next tries."""
        assert presumption not in self.dropped, f"{presumption} was dropped before"
        self.dropped |= {presumption}

    def counts(self, numbers: Iterable[Source]) -> bool:
        """Return whether to try again with these numbers as symbols, because the frame itself changes them."""
        new = frozenset(numbers) - self.counted
        if not new or len(new) > MANY or self.compiler.dynamic is False or self.fixed:
            return False
        self.counted |= new
        self.varying |= new
        return True

    def back(self) -> Break:
        """Return the break that remains if making numbers constants has not helped."""
        self.fixed, self.whole = False, False
        assert self.tried is not None
        return self.tried

    def may_be_constant(self, source: Source) -> bool:
        """Return whether a dynamic number may become a constant where its value is asked for.

        Floats that the program passes may; in whole graphs also numbers read from tensors, which otherwise break the
        graph.
        """
        if tensor_constants.is_reading(source):
            return self.compiler.fullgraph
        return self.settling and type(read(source, self.roots)) is float
