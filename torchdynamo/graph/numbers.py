"""Numbers of a graph that have no value while it is made: sizes that may vary, values read from tensors.

Each is a torch.SymInt, SymFloat or SymBool of the ShapeEnv that the fake tensors live with. Only integers are computed
with symbolically: sums of floats depend on their order, and nan is not itself, so whatever is computed from a float
that is read from a tensor is one more number nobody knows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
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
SHAPED = frozenset({"size", "stride"})  # how numbers are found that describe tensors
PYTHON: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


class Numbers:
    """The numbers of one graph."""

    def __init__(self, scalars: bool, shapes: bool, varying: Collection[Any] = ()) -> None:
        self.scalars = scalars  # values read from tensors may be numbers of the graph
        self.shapes = shapes  # and so may be sizes that depend on values
        self.entries: dict[Any, tuple[Source, int]] = {}  # by symbol: where it is found at entry, and what it was
        self.varying = varying  # where numbers and sizes are that are not the same in every call
        self.where: Any = None  # called for the line of the program that is being followed
        self.dropped: Collection[Assumption] = ()  # what this capture does not presume
        self.sliced = False  # there is a slice of which nobody knows how much it takes
        self.always = self.never = False  # all sizes may vary; none may
        self.settling = True  # numbers of the program's may become constants, of a version each
        self.passed = False  # small tensors that a caller passes may be read, and are constants then
        self.named: Collection[str] = ()  # sources that the user has named as varying
        self.bucketed: Mapping[str, Collection[int]] = {}  # and dimensions of tensors, by the tensor's
        self.schedules, self.scheduled = True, False  # what a scheduler changes varies; there was such a number

    @cached_property
    def env(self) -> ShapeEnv:
        """What torch knows about them."""
        made = shape_env.make_shape_env(self.scalars, self.shapes)
        made.where = self.where  # type: ignore[attr-defined]
        return made

    def closed(self) -> None:
        """Note that the program has been followed: no line of it asks what is asked from now on."""
        self.where = None
        if "env" in self.__dict__:
            self.env.where = None  # type: ignore[attr-defined]

    def places(self) -> dict[Any, Any]:
        """Return, for each fact, the line of the program that asked for it."""
        return self.env.places if "env" in self.__dict__ else {}  # type: ignore[attr-defined]

    def bounds(self, number: Any) -> tuple[int | None, int | None]:
        """Return the least and the largest value of an input; None where there is no bound."""
        if number.node.expr.is_number:
            return int(number.node.expr), int(number.node.expr)
        known = self.env.bound_sympy(number.node.expr)  # an expression, where a fact says what the input is
        least = int(known.lower) if known.lower.is_Integer and int(known.lower) > -(1 << 63) else None
        most = int(known.upper) if known.upper.is_Integer and int(known.upper) < (1 << 63) - 1 else None
        if most is not None and least == 1 and any(fact.expr == (number == 1).node.expr for fact in self.env.guards):
            most = 1  # torch keeps a symbol that is known to be 1
        return least, most

    def at_entry(
        self, value: int, source: Source, least: int | None = None, most: int | None = None, blind: bool = False
    ) -> torch.SymInt:
        """Make a symbol for a number that is there when the frame begins. Nothing is assumed of it but what it can be
        at `least`.

        `blind`: what it is now may decide nothing, as if it were read from a tensor.
        """
        if blind:
            number, symbol = shape_env.blind_symbol(self.env, least, most)
        else:
            number, symbol = shape_env.new_symbol(self.env, value, str(source), least, most)
        self.entries[symbol] = source, value
        return number

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.entries) or self.drawn() > 0

    def drawn(self) -> int:
        """Return how many numbers nobody knows there are so far."""
        known = self.__dict__.get("env")
        return 0 if known is None else len(known.pending_fresh_unbacked_symbols)

    def presumed(self) -> int:
        """Return how often an operator was told that sizes are neither 0 nor 1, without a fact to guard."""
        known = self.__dict__.get("env")
        return 0 if known is None else known.presumed

    def assumed_since(self, known: shape_env.Snapshot) -> list[Any]:
        """Return the facts about unknown numbers that have been assumed, not decided, since so much was known.

        What is assumed only of numbers drawn since then is no assumption: it is true of a result.
        """
        if self.env.num_deferred_runtime_asserts == known.count:
            return []
        before = {id(each) for rows in known.asserts.values() for each in rows}
        facts = [each for rows in self.env.deferred_runtime_asserts.values() for each in rows]
        born = set(self.env.pending_fresh_unbacked_symbols[known.drawn :])
        news = [each.expr for each in facts if id(each) not in before]
        return [fact for fact in news if not shape_env.unbacked_symbols(fact) <= born]

    def equated(self, fact: Any) -> tuple[Any, ...]:
        """Return what a fact says is the same: the two terms; nothing of another."""
        return shape_env.equated(fact)

    def is_term(self, number: Any, term: Any) -> bool:
        """Return whether a number is this one."""
        return bool((number.node.expr if isinstance(number, torch.SymInt) else number) == term)

    def fixed(self, number: Any) -> Any:
        """Return the value of a number if it can be no other; else None."""
        expr = number.node.expr
        if expr.is_number or (expr.is_Boolean and not expr.free_symbols):
            return PYTHON[type(number)](expr)
        return None

    def unknown(self, number: Any) -> bool:
        """Return whether it depends on what a tensor holds, as against sizes and numbers that exist at entry."""
        return bool(shape_env.unbacked_symbols(number))

    def decide(self, number: Any) -> bool:
        """Return its truth. For numbers that exist at entry this is a fact to be guarded; others may be unknown."""
        trying.now = True
        try:
            return bool(number)
        except torch_compat.data_dependent_errors() as raised:
            raise UnknownBranch("bool", raised) from raised
        finally:
            trying.now = False

    def now(self, number: Any) -> int:
        """Return what a number that exists at entry is in this call. Nothing is guarded by that."""
        return shape_env.value_now(number)

    def settle(self, number: Any) -> Any:
        """Return its value, which is a fact to be guarded from now on. Raises UnknownValue where it may not
        become one.
        """
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
        """Return whether a number depends on one of the program's, as against sizes of tensors."""
        sources = [self.entries[symbol][0] for symbol in number.node.expr.free_symbols if symbol in self.entries]
        return any(source.how not in SHAPED for source in sources)

    @contextlib.contextmanager
    def letting_in(self) -> Iterator[None]:
        """Let values be read from tensors while this is open, whatever the settings say: they decide nothing."""
        before = self.env.settings
        shape_env.allow_all(self.env)
        try:
            yield
        finally:
            self.env.settings = before

    def learn(self, condition: Any) -> None:
        """Learn a condition that the graph will check before it goes on."""
        torch._check(condition)

    def fresh(self, pytype: type) -> Any:
        """Make a symbol that nothing is known about."""
        if pytype is float:
            return self.env.create_unbacked_symfloat()
        return self.env.create_unbacked_symbool() if pytype is bool else self.env.create_unbacked_symint()

    def is_about_values(self, raised: BaseException) -> bool:
        """Return whether this was raised because a value is not known, and not by the program."""
        return isinstance(raised, torch_compat.data_dependent_errors())


def has_numbers(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph computes with numbers that are not known before it runs."""
    return any(isinstance(node.meta.get("example_value"), SYMBOLIC) for node in gm.graph.nodes)
