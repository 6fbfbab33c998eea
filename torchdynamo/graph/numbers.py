"""Symbols of a graph: numbers without a value while it is built, such as dynamic sizes or values read from tensors.

Each is a torch.SymInt, SymFloat or SymBool of the shape environment of the graph's fake mode. Only integers are
computed with symbolically: sums of floats depend on their order, and nan does not equal itself, so every number
computed from a float that was read from a tensor is another unbacked symbol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.core.signals import Assumption
from torchdynamo.core.source import Source
from torchdynamo.graph import shape_env, torch_compat
from torchdynamo.graph.errors import UnknownBranch, UnknownValue
from torchdynamo.graph.quiet import trying

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

SYMBOLIC: tuple[type, ...] = (torch.SymInt, torch.SymFloat, torch.SymBool)
SHAPED = frozenset({"size", "stride"})  # kinds of sources that are shapes of tensors
PYTHON: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


class Numbers:
    """The symbols of one graph."""

    def __init__(self, scalars: bool, shapes: bool, varying: Collection[Any] = ()) -> None:
        self.scalars = scalars  # values read from tensors may become symbols
        self.shapes = shapes  # sizes that depend on values may become symbols
        self.entries: dict[Any, tuple[Source, int]] = {}  # symbol -> its source at entry, and its value there
        self.varying = varying  # sources of numbers and sizes that differ between calls
        self.where: Any = None  # returns the program's line that is being captured
        self.dropped: Collection[Assumption] = ()  # assumptions that this capture does not make
        self.sliced = False  # there is a slice of unknown size
        self.always = self.never = False  # make all sizes symbols; make none
        self.settling = True  # the program's numbers may be specialized, one entry for each value
        self.passed = False  # small tensors that a caller passes may be read as constants
        self.named: Collection[str] = ()  # sources that the user has marked as dynamic
        self.bucketed: Mapping[str, Collection[int]] = {}  # source of a tensor -> its dimensions with buckets
        self.schedules, self.scheduled = True, False  # make numbers that a scheduler changes symbols; there was one

    @cached_property
    def env(self) -> ShapeEnv:
        """torch's shape environment: what is known of the symbols."""
        made = shape_env.make_shape_env(self.scalars, self.shapes)
        made.where = self.where  # type: ignore[attr-defined]
        return made

    def closed(self) -> None:
        """Forget the program's position: capture has ended, and later guards come from no line."""
        self.where = None
        if "env" in self.__dict__:
            self.env.where = None  # type: ignore[attr-defined]

    def places(self) -> dict[Any, Any]:
        """Return, for each guard, the line of the program that asked for it."""
        return self.env.places if "env" in self.__dict__ else {}  # type: ignore[attr-defined]

    def bounds(self, number: Any) -> tuple[int | None, int | None]:
        """Return the bounds (least, most) of an input's symbol; None where there is no bound."""
        if number.node.expr.is_number:
            return int(number.node.expr), int(number.node.expr)
        known = self.env.bound_sympy(number.node.expr)  # an expression, if a guard equates the input with one
        least = int(known.lower) if known.lower.is_Integer and int(known.lower) > -(1 << 63) else None
        most = int(known.upper) if known.upper.is_Integer and int(known.upper) < (1 << 63) - 1 else None
        if most is not None and least == 1 and any(fact.expr == (number == 1).node.expr for fact in self.env.guards):
            most = 1  # torch keeps a symbol that is known to be 1
        return least, most

    def at_entry(
        self, value: int, source: Source, least: int | None = None, most: int | None = None, blind: bool = False
    ) -> torch.SymInt:
        """Create a symbol for a number that exists when the frame begins, and record its source.

        least, most: bounds that hold in every call. blind: the current value must not decide anything, as with numbers
        read from tensors.
        """
        if blind:
            number, symbol = shape_env.blind_symbol(self.env, least, most)
        else:
            number, symbol = shape_env.new_symbol(self.env, value, str(source), least, most)
        self.entries[symbol] = source, value
        return number

    def __bool__(self) -> bool:
        """Return whether there are any symbols."""
        return bool(self.entries) or self.drawn() > 0

    def drawn(self) -> int:
        """Return how many unbacked symbols have been created."""
        known = self.__dict__.get("env")
        return 0 if known is None else len(known.pending_fresh_unbacked_symbols)

    def presumed(self) -> int:
        """Return how many questions were answered as for sizes other than 0 and 1, without a guard."""
        known = self.__dict__.get("env")
        return 0 if known is None else known.presumed

    def assumed_since(self, known: shape_env.Snapshot) -> list[Any]:
        """Return the facts about unbacked symbols that have been assumed, rather than decided, since a snapshot.

        A fact only about symbols created since then does not count: it describes an operator's result.
        """
        if self.env.num_deferred_runtime_asserts == known.count:
            return []
        before = {id(each) for rows in known.asserts.values() for each in rows}
        facts = [each for rows in self.env.deferred_runtime_asserts.values() for each in rows]
        born = set(self.env.pending_fresh_unbacked_symbols[known.drawn :])
        news = [each.expr for each in facts if id(each) not in before]
        return [fact for fact in news if not shape_env.unbacked_symbols(fact) <= born]

    def equated(self, fact: Any) -> tuple[Any, ...]:
        """Return the two sides of an equation; () for any other condition."""
        return shape_env.equated(fact)

    def say_alike(self, numbers: Sequence[Any], terms: Sequence[Any]) -> bool:
        """Return whether two numbers are equal where two terms are, which may be what is left of them by a factor."""
        return shape_env.are_one_equation([*map(self.term, numbers)], terms)

    def is_term(self, number: Any, term: Any) -> bool:
        """Return whether a number is this expression."""
        return bool(self.term(number) == term)

    def term(self, number: Any) -> Any:
        """Return the expression of a number, or the number if it has none."""
        return number.node.expr if isinstance(number, torch.SymInt) else number

    def fixed(self, number: Any) -> Any:
        """Return the value of a number that can have no other; else None."""
        expr = number.node.expr
        if expr.is_number or (expr.is_Boolean and not expr.free_symbols):
            return PYTHON[type(number)](expr)
        return None

    def unknown(self, number: Any) -> bool:
        """Return whether a number depends on the contents of a tensor, rather than on sizes and numbers at entry."""
        return bool(shape_env.unbacked_symbols(number))

    def decide(self, number: Any) -> bool:
        """Return the truth of a number, guarded if it depends on entry values. Raises UnknownBranch
        if it is unbacked.
        """
        trying.now = True
        try:
            return bool(number)
        except torch_compat.data_dependent_errors() as raised:
            raise UnknownBranch("bool", raised) from raised
        finally:
            trying.now = False

    def now(self, number: Any) -> int:
        """Return the value of an entry number in this call, without a guard."""
        return shape_env.value_now(number)

    def settle(self, number: Any) -> Any:
        """Specialize a number: return its value and guard it. Raises UnknownValue where that is impossible."""
        fixed = self.fixed(number)
        if fixed is not None:
            return fixed
        kind = PYTHON[type(number)]
        if not self.settling and self.is_counted(number):
            raise UnknownValue(kind.__name__, "there is a version for each of some of its values already")
        trying.now = True
        try:
            return kind(number)
        except torch_compat.data_dependent_errors() as raised:
            raise UnknownValue(kind.__name__, raised) from raised
        finally:
            trying.now = False

    def is_counted(self, number: Any) -> bool:
        """Return whether a number depends on one of the program's own numbers, rather than only on sizes of tensors."""
        sources = [self.entries[symbol][0] for symbol in number.node.expr.free_symbols if symbol in self.entries]
        return any(source.how not in SHAPED for source in sources)

    @contextlib.contextmanager
    def values_allowed(self) -> Iterator[None]:
        """Allow symbols for values read from tensors inside of the block, whatever the settings say."""
        before = self.env.settings
        shape_env.allow_all(self.env)
        try:
            yield
        finally:
            self.env.settings = before

    def learn(self, condition: Any) -> None:
        """Assume a condition from now on, because the graph will check it."""
        torch._check(condition)

    def fresh(self, pytype: type) -> Any:
        """Create an unbacked symbol of a Python type."""
        if pytype is float:
            return self.env.create_unbacked_symfloat()
        return self.env.create_unbacked_symbool() if pytype is bool else self.env.create_unbacked_symint()

    def is_about_values(self, raised: BaseException) -> bool:
        """Return whether an exception was raised because a value is unknown, rather than by the program."""
        return isinstance(raised, torch_compat.data_dependent_errors())


def has_numbers(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph computes with symbols."""
    return any(isinstance(node.meta.get("example_value"), SYMBOLIC) for node in gm.graph.nodes)
