"""Create and query torch's shape environment, which keeps what is known of symbols.

It holds facts about versions of torch, as `torch_compat.py` does; imports of these parts of torch are slow and put off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
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
    """Return a shape environment. scalars: allow symbols for values read from tensors; shapes: for sizes that depend on
    values.
    """
    made: ShapeEnv = shape_env_type()(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=shapes)
    return made


@functools.cache
def shape_env_type() -> Any:
    """Return our class of shape environments.

    Operators ask all the time whether a tensor is contiguous or empty, and the answer differs for sizes 0 and 1, while
    the values that they compute do not. So where `presuming` is set, the answer is that for larger sizes, no guard is
    made, and `presumed` counts. A size computed from others (a pooled one) may be 1 for large ones as well: then the
    answer is that for very large sizes, where samples of these agree.

    Where `presuming` is HOLDING, that answer is given if it also holds for the current sizes; otherwise the current
    sizes decide, with a guard.
    """
    from sympy import And, Eq, Integer, Ne, Or, false, true  # type: ignore[import-untyped]
    from sympy.core.relational import Relational  # type: ignore[import-untyped]
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP, ShapeEnv

    patches.replace_for_good("torch.fx.experimental.sym_node._optimized_add", checking_sums)

    def about_layout(expr: Any) -> bool:
        if isinstance(expr, (And, Or)):
            return all(about_layout(arg) or (isinstance(arg, Relational) and arg.rhs == 0) for arg in expr.args)
        return isinstance(expr, (Eq, Ne)) or (isinstance(expr, Relational) and not border.isdisjoint(expr.args))

    def about_small(expr: Any) -> bool:
        """Return whether a condition asks if something is 0 or 1; a stride may be a multiple of that: `8 * n != 8`."""
        times, whole = expr.args[0].as_coeff_Mul()[0], expr.args[1]
        return not numbers.isdisjoint(expr.args) or (isinstance(expr, (Eq, Ne)) and whole != 0 and times == whole)

    border = {Integer(1), Integer(2)}  # `n > 1`, `n < 2`
    numbers = {Integer(0), *border}
    chosen = random.Random(0)
    greatest, least = (lambda *each, of=of: functools.reduce(of, each) for of in (torch.sym_max, torch.sym_min))

    class Environment(StoredFacts, ShapeEnv):
        presuming: bool | str = False
        presumed = 0
        where: Callable[[], Any] | None = None  # returns the program's line that is being captured

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            if not hasattr(self, "backed_var_to_val"):
                self.backed_var_to_val = self.var_to_val  # as older versions of torch call it
            self.places: dict[Any, Any] = {}  # guard -> the line that asked for it
            self.large: dict[Any, bool | None] = {}  # condition -> its truth for large sizes, if that is clear

        def of_large_sizes(self, expr: Any) -> bool | None:
            """Return the truth of a condition about sizes 0 and 1 or equal strides for large sizes; None if unclear."""
            if expr not in self.large:
                self.large[expr] = self._of_large_sizes(expr)
            return self.large[expr]

        def holds(self, expr: Any) -> Any:
            """Return a condition with all backed symbols replaced by their current values."""
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

        def evaluate_symexpr(self, code: str) -> Any:
            """Return a stride that Inductor chose for a result of a forward, for all sizes.

            torch's own answer is that for the current sizes. AOTAutograd gives the backward's inputs these strides
            unless it knows that they have them already, which it does not where sizes 0 and 1 are like others.
            """
            known = self.backed_var_to_val.items()  # ragged sizes of nested tensors are no integers
            sizes = {symbol: value for symbol, value in known if symbol.is_integer and value.is_Integer}
            symbols = {str(symbol): self.create_symintnode(symbol, hint=int(value)) for symbol, value in sizes.items()}
            return eval(code, {**SYMPY_INTERP, "max": greatest, "min": least}, symbols)

    return Environment


class Snapshot:
    """Facts that an environment has found out about its symbols at one time, to go back to."""

    HELD = ("guards", "replacements", "var_to_range", "divisible", "axioms")
    REMEMBERING = ("evaluate_expr", "_inner_evaluate_expr", "guard_or_defer_runtime_assert")

    def __init__(self, env: Any) -> None:
        self.env, self.held = env, {name: getattr(env, name, {}).copy() for name in self.HELD}
        self.drawn, self.count = len(env.pending_fresh_unbacked_symbols), env.num_deferred_runtime_asserts
        self.asserts = {symbol: list(facts) for symbol, facts in env.deferred_runtime_asserts.items()}

    def again(self) -> None:
        """Restore the snapshot: forget what was found out since."""
        for name, held in self.held.items():
            setattr(self.env, name, held.copy())
        self.env.deferred_runtime_asserts = {symbol: list(facts) for symbol, facts in self.asserts.items()}
        self.env.num_deferred_runtime_asserts = self.count
        del self.env.pending_fresh_unbacked_symbols[self.drawn :]
        self.env._update_version_counter()  # detects changes by the sizes of the containers
        for counter in ("_version_counter", "_replacements_version_counter"):
            setattr(self.env, counter, getattr(self.env, counter, 0) + 1)
        for name in self.REMEMBERING:  # a cached answer would make no guard
            getattr(getattr(type(self.env), name, None), "cache_clear", bool)()


def checking_sums(add: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap torch's addition of expressions, which is told for each whether it is a sum of symbols.

    That was decided when the expression was made. By now it may be something else (`a + b` is found to be 5), of which
    torch would keep only the symbols.
    """

    def checked(left: Any, right: Any, left_is_sum: bool = False, right_is_sum: bool = False) -> Any:
        return add(left, right, left_is_sum and is_sum(left), right_is_sum and is_sum(right))

    def is_sum(expr: Any) -> bool:
        return bool(expr.is_Add) and all(each.is_symbol for each in expr._args)

    return checked


@contextlib.contextmanager
def presuming(env: Any, whether: bool | str) -> Iterator[None]:
    """Answer operators' questions about layouts as for sizes other than 0 and 1, inside of the block.

    whether: True for all questions; HOLDING for those whose answer also holds for the current sizes; False for none.
    """
    before, env.presuming = getattr(env, "presuming", False), whether
    try:
        yield
    finally:
        env.presuming = before


def allow_all(env: ShapeEnv) -> None:
    """Allow everything that a captured graph may contain, so that it can be traced again."""
    env.settings = dataclasses.replace(env.settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)


def new_symbol(env: ShapeEnv, value: int, name: str, least: int | None, most: int | None) -> tuple[torch.SymInt, Any]:
    """Create a backed symbol with this value; return it as a SymInt and as an expression."""
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
    """Create a symbol for a size whose value is not to be used; return it as a SymInt and as an expression."""
    number = env.create_unbacked_symint()
    symbol = number.node.expr
    env.pending_fresh_unbacked_symbols.remove(symbol)  # it comes from an input, not from an operator
    keep_between(env, symbol, least or 0, most)
    return number, symbol


def value_now(number: torch.SymInt) -> int:
    """Return the current value of a backed symbol."""
    return int(number.node.hint)


def keep_between(env: ShapeEnv, symbol: Any, least: int, most: int | None) -> None:
    """Mark a symbol as a size with these bounds."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    env.var_to_range[symbol] = ValueRanges(least, int_oo if most is None or most >= (1 << 63) - 1 else most)
    env.size_like.add(symbol)


class NamedSource(torch._guards.Source):
    """The source of a symbol, with the interface that torch expects; torch derives the symbol's name from it."""

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


def sizes_zero_and_one_like_others(alike: bool = True) -> contextlib.AbstractContextManager[Any]:
    """Make torch's rules treat sizes 0 and 1 like others inside of the block, where they can."""
    return patches.replaced({"torch.fx.experimental._config.backed_size_oblivious": alike})


def rules_in_python() -> contextlib.AbstractContextManager[Any]:
    """Decompose operators in Python inside of the block, which specializes fewer sizes."""
    from torch._dispatch.python import enable_python_dispatcher

    opened: contextlib.AbstractContextManager[Any] = enable_python_dispatcher()
    return opened


def unbacked_symbols(number: Any) -> AbstractSet[Any]:
    """Return the symbols of an expression that depend on the contents of tensors."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return free_unbacked_symbols(number)


def for_a_backend(env: ShapeEnv) -> ShapeEnv:
    """Prepare a capture's environment for tracing the graph once more; return it.

    Everything that the graph reads from tensors is allowed, and the capture's unbacked symbols are no operator's.
    """
    allow_all(env)
    env.pending_fresh_unbacked_symbols.clear()
    return env


def is_symbolic(value: Any) -> bool:
    """Return whether there are symbols among these values."""
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def undecided(raised: Exception) -> Any:
    """Return the condition on unbacked symbols that an exception is about; None if there is none."""
    return getattr(raised, "cond", None)


def equated(condition: Any) -> tuple[Any, ...]:
    """Return the two sides of an equation; () for any other condition."""
    from sympy import Eq

    return tuple(condition.args) if isinstance(condition, Eq) else ()


def are_one_equation(pair: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two pairs of expressions differ by the same, but for a constant factor."""
    from sympy import sympify

    (_, one), (_, two) = (sympify(left - right).primitive() for left, right in (pair, other))
    return bool(one != 0 and one in (two, -two))


def as_python(condition: Any) -> str:
    """Return a condition as Python text."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(condition))
