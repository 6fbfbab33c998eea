"""Numbers without a value: the environment that torch keeps of them, and what is asked of it.

Facts about versions of torch, as in `torch_compat.py`; importing these parts of it is slow as well, and is put off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch._guards
import torch.fx

from torchdynamo.graph import patches
from torchdynamo.graph.stored_facts import StoredFacts

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

VAST = 1 << 24
HOLDING = "what holds"


def make_shape_env(scalars: bool = False, shapes: bool = False) -> ShapeEnv:
    """Return an environment for numbers without a value. May they be read from tensors? Be sizes that values decide?"""
    made: ShapeEnv = shape_env_type()(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=shapes)
    return made


@cache
def shape_env_type() -> Any:
    """Return the class of such environments.

    Whether a tensor lies in one piece, and whether it is empty, operators ask all the time, and it is otherwise for
    sizes 0 and 1. What they compute is not. So where `presuming` is set, the answer is that of larger sizes, no fact is
    recorded, and `presumed` counts. A size that is computed from others (what a pooling leaves) may be 1 for large ones
    as well: then it is that of very large ones, where they agree.

    Where `presuming` is HOLDING, that is the answer if it is also the one for the sizes at hand; else these decide,
    with a fact to guard.
    """
    from sympy import And, Eq, Integer, Ne, Or, false, true  # type: ignore[import-untyped]
    from sympy.core.relational import Relational  # type: ignore[import-untyped]
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    patches.replace_for_good("torch.fx.experimental.sym_node._optimized_add", of_sums_that_are_sums)

    def about_layout(expr: Any) -> bool:
        if isinstance(expr, (And, Or)):
            return all(about_layout(arg) or (isinstance(arg, Relational) and arg.rhs == 0) for arg in expr.args)
        return isinstance(expr, (Eq, Ne)) or (isinstance(expr, Relational) and not border.isdisjoint(expr.args))

    def about_small(expr: Any) -> bool:
        """Return whether something is 0 or 1; a stride may be so many times that: `8 * n != 8`."""
        times, whole = expr.args[0].as_coeff_Mul()[0], expr.args[1]
        return not numbers.isdisjoint(expr.args) or (isinstance(expr, (Eq, Ne)) and whole != 0 and times == whole)

    border = {Integer(1), Integer(2)}  # `n > 1`, `n < 2`
    numbers = {Integer(0), *border}
    chosen = random.Random(0)

    class Environment(StoredFacts, ShapeEnv):
        presuming: bool | str = False
        presumed = 0
        where: Callable[[], Any] | None = None  # the line of the program that is being followed

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.places: dict[Any, Any] = {}  # by fact: the line that asked for it
            self.large: dict[Any, bool | None] = {}  # by condition: whether it holds of large sizes

        def of_large_sizes(self, expr: Any) -> bool | None:
            """Return whether a size is 0 or 1, or strides are the same, when all is large; None if that does
            not say.
            """
            if expr not in self.large:
                self.large[expr] = self._of_large_sizes(expr)
            return self.large[expr]

        def holds(self, expr: Any) -> Any:
            """Return what a condition is for the sizes at hand, where all of them are known."""
            return expr.xreplace(self.backed_var_to_val)

        def _of_large_sizes(self, expr: Any) -> bool | None:
            if isinstance(expr, (And, Or)):
                parts, either = [self.of_large_sizes(arg) for arg in expr.args], isinstance(expr, Or)
                return either if either in parts else None if None in parts else not either
            symbols = sorted(expr.free_symbols, key=str)
            ranges = [self.var_to_range.get(each) for each in symbols]
            if not symbols or unbacked_symbols(expr) or any(each is None or each.upper < VAST for each in ranges):
                return None
            points = [{each: Integer(chosen.randrange(VAST // 8, VAST)) for each in symbols} for _ in range(6)]
            found = {{true: True, false: False}.get(expr.xreplace(point)) for point in points}
            same = found == ({True} if isinstance(expr, Eq) else {False}) and isinstance(expr, (Eq, Ne))
            return found.pop() if same or (len(found) == 1 and about_small(expr)) else None

        def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
            general = kwargs.get("fallback_value") if self.presuming == HOLDING else None
            wanted = general is not None or (self.presuming and about_layout(orig_expr))
            if wanted and self._maybe_evaluate_static(orig_expr) is None:
                answer = self._maybe_evaluate_static(orig_expr, size_oblivious=True) if general is None else general
                answer = self.of_large_sizes(orig_expr) if answer is None else answer
                if answer is not None and (self.presuming != HOLDING or self.holds(orig_expr) == answer):
                    self.presumed += 1
                    return answer
            before = len(self.guards)
            try:
                return super().evaluate_expr(orig_expr, *args, **kwargs)
            finally:
                if self.where is not None:
                    self.places.update((guard.expr, self.where()) for guard in self.guards[before:])

    return Environment


class Snapshot:
    """What an environment has found out so far, to go back to."""

    HELD = ("guards", "replacements", "var_to_range", "divisible", "axioms")
    REMEMBERING = ("evaluate_expr", "_inner_evaluate_expr", "guard_or_defer_runtime_assert")

    def __init__(self, env: Any) -> None:
        self.env, self.held = env, {name: getattr(env, name, {}).copy() for name in self.HELD}
        self.drawn, self.count = len(env.pending_fresh_unbacked_symbols), env.num_deferred_runtime_asserts
        self.asserts = {symbol: list(facts) for symbol, facts in env.deferred_runtime_asserts.items()}

    def again(self) -> None:
        """Forget what was found out since a snapshot."""
        for name, held in self.held.items():
            setattr(self.env, name, held.copy())
        self.env.deferred_runtime_asserts = {symbol: list(facts) for symbol, facts in self.asserts.items()}
        self.env.num_deferred_runtime_asserts = self.count
        del self.env.pending_fresh_unbacked_symbols[self.drawn :]
        self.env._update_version_counter()  # which goes by how much there is of each
        for counter in ("_version_counter", "_replacements_version_counter"):
            setattr(self.env, counter, getattr(self.env, counter, 0) + 1)
        for name in self.REMEMBERING:  # an answer that is remembered makes no guard
            getattr(getattr(type(self.env), name, None), "cache_clear", bool)()


def of_sums_that_are_sums(add: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's way to add numbers, which is told of either whether it is a sum of symbols, by what it was when it
    was made. By now it may be something else (`a + b` is found to be 5), of which torch would lose all but the symbols.
    """

    def checked(left: Any, right: Any, left_is_sum: bool = False, right_is_sum: bool = False) -> Any:
        return add(left, right, left_is_sum and is_sum(left), right_is_sum and is_sum(right))

    def is_sum(expr: Any) -> bool:
        return bool(expr.is_Add) and all(each.is_symbol for each in expr._args)

    return checked


@contextlib.contextmanager
def presuming(env: Any, whether: bool | str) -> Iterator[None]:
    """Have, while this is open, operators' questions about layouts are answered as for sizes other than 0 and 1: all of
    them, or those whose answer is the same for the sizes at hand (HOLDING).
    """
    before, env.presuming = getattr(env, "presuming", False), whether
    try:
        yield
    finally:
        env.presuming = before


def allow_all(env: ShapeEnv) -> None:
    """Allow all that is in a captured graph, to whoever traces it again."""
    env.settings = dataclasses.replace(env.settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)


def new_symbol(env: ShapeEnv, value: int, name: str, least: int | None, most: int | None) -> tuple[torch.SymInt, Any]:
    """Return a symbol with this value now, and its expression."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = NamedSource(name)
    symbol = env.create_symbol(
        value, source, dynamic_dim=DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
    )
    if least is not None:
        keep_between(env, symbol, least, most)
    number = env.create_symintnode(symbol, hint=value, source=source)
    assert isinstance(number, torch.SymInt)
    return number, symbol


def blind_symbol(env: ShapeEnv, least: int | None, most: int | None) -> tuple[torch.SymInt, Any]:
    """Return a symbol whose value nobody may ask for, and its expression."""
    number = env.create_unbacked_symint()
    symbol = number.node.expr
    env.pending_fresh_unbacked_symbols.remove(symbol)  # no operator is to bring it
    keep_between(env, symbol, least or 0, most)
    return number, symbol


def value_now(number: torch.SymInt) -> int:
    """Return what a number is made of that has a value."""
    return int(number.node.hint)


def keep_between(env: ShapeEnv, symbol: Any, least: int, most: int | None) -> None:
    """Note that a symbol is a size between these bounds."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    env.var_to_range[symbol] = ValueRanges(least, int_oo if most is None or most >= (1 << 63) - 1 else most)
    env.size_like.add(symbol)


class NamedSource(torch._guards.Source):
    """Where a symbol comes from, in torch's terms: torch makes its name of this one."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_symbol_name", name)

    _symbol_name: str

    @property
    def _name_template(self) -> str:
        return self._symbol_name

    def __hash__(self) -> int:
        return hash(self._symbol_name)

    def __eq__(self, other: object) -> bool:
        return type(other) is NamedSource and other._symbol_name == self._symbol_name


def treating_sizes_alike(alike: bool = True) -> contextlib.AbstractContextManager[Any]:
    """Treat sizes 0 and 1 like any other, while this is open, wherever torch's rules can be had for both."""
    return patches.replaced({"torch.fx.experimental._config.backed_size_oblivious": alike})


def asking_rules_in_python() -> contextlib.AbstractContextManager[Any]:
    """Have operators made of others go by their parts in Python while this is open, which leave sizes open
    more often.
    """
    from torch._dispatch.python import enable_python_dispatcher

    opened: contextlib.AbstractContextManager[Any] = enable_python_dispatcher()
    return opened


def unbacked_symbols(number: Any) -> AbstractSet[Any]:
    """Return what of a number depends on the contents of tensors."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return free_unbacked_symbols(number)


def for_a_backend(env: ShapeEnv) -> ShapeEnv:
    """Return the environment that a graph was captured in, for tracing the graph once more.

    Whatever the graph reads from tensors may be read. Numbers that capture made belong to no operator of the tracer's.
    """
    allow_all(env)
    env.pending_fresh_unbacked_symbols.clear()
    return env


def is_symbolic(value: Any) -> bool:
    """Return whether there are symbolic numbers among these."""
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def undecided(raised: Exception) -> Any:
    """Return the condition on unknown numbers that this was raised about; None for anything else."""
    return getattr(raised, "cond", None)


def equated(condition: Any) -> tuple[Any, ...]:
    """Return the two sides of a condition that says that they are the same; nothing of any other."""
    from sympy import Eq

    return tuple(condition.args) if isinstance(condition, Eq) else ()


def as_python(condition: Any) -> str:
    """Return a condition as a programmer writes it."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(condition))
