"""Pad dynamic sizes up to a few buckets, where the user asks for it and results are seen not to change.

`options={"buckets": {"x": {0: (64, 128)}}}` makes dimension 0 of the argument `x` 64 or 128 for the backend. The
padding is zero, which means "not there" in a mask, and must not influence results. That is checked on the first padded
inputs: with zeros, with nan, without padding, and with inverted integers, which may be masks. If results differ, the
graph is not padded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph.concretize import NumberPlace, Values, at_sizes, put_in, value_of
from torchdynamo.graph.mutation import changes_modes, effects_of
from torchdynamo.graph.sizes import Sizes
from torchdynamo.hook.user_warnings import warn_user

Buckets = Mapping[str, Mapping[int, Sequence[int]]]
Fill = Callable[[torch.Tensor, int, int], torch.Tensor]


def buckets_in(options: Mapping[str, Any] | None) -> tuple[Buckets, Mapping[str, Any] | None]:
    """Split options into the buckets and the backend's own options. Raises TypeError for malformed buckets."""
    if not options or "buckets" not in options:
        return {}, options
    given = options["buckets"]
    complaint = 'buckets are {name of a tensor: {dimension: sizes}}, such as {"x": {0: (64, 128)}}, and not '
    if not isinstance(given, Mapping) or not all(isinstance(dims, Mapping) for dims in given.values()):
        raise TypeError(f"{complaint}{given!r}")
    for dim, sizes in (pair for dims in given.values() for pair in dims.items()):
        whole = isinstance(sizes, Sequence) and all(type(size) is int and size > 0 for size in sizes)
        if type(dim) is not int or dim < 0 or not whole:
            raise TypeError(f"{complaint}{given!r}")
    return given, {name: value for name, value in options.items() if name != "buckets"} or None


def zeros(tensor: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    """Return `count` zero slices to append to dimension `dim` of a tensor."""
    shape = list(tensor.shape)
    shape[dim] = count
    return tensor.new_zeros(shape)


def nans(tensor: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    """Return `count` slices to append to dimension `dim`: nan in floating-point tensors, else zero."""
    more = zeros(tensor, dim, count)
    return more.fill_(float("nan")) if more.is_floating_point() else more


def opposite(tensor: torch.Tensor) -> torch.Tensor:
    """Return the inverted integers or truth values of a tensor."""
    return ~tensor


class PaddingPlan(NamedTuple):
    """Describes which inputs are padded at given sizes, and how results are cut back."""

    padded: tuple[int, ...]  # sizes after padding, in the order of the graph's symbols
    wider: tuple[tuple[int, int, int], ...]  # (input, dimension, size after padding)
    results: tuple[Any, ...]  # for each result (size, stride) of a tensor, or a constant

    def inputs(self, args: Sequence[Any], fill: Fill = zeros) -> list[Any]:
        given = list(args)
        for position, dim, size in self.wider:
            tensor = given[position]
            more = fill(tensor, dim, size - tensor.size(dim))
            given[position] = torch.cat([tensor, more], dim)
        return given

    def cut(self, result: Any) -> Any:
        leaves, spec = pytree.tree_flatten(result)
        return pytree.tree_unflatten([cut(*each) for each in zip(leaves, self.results, strict=True)], spec)


def cut(leaf: Any, what: Any) -> Any:
    """Return a result without its padding; `what` is its real (size, stride), or its value if it is no tensor."""
    if not isinstance(leaf, torch.Tensor):
        return what
    size, stride = what
    for dim, length in enumerate(size):
        leaf = leaf.narrow(dim, 0, length) if leaf.size(dim) != length else leaf
    if tuple(leaf.stride()) != stride:
        leaf = leaf.new_empty_strided(size, stride).copy_(leaf)
    return leaf


UNKNOWN = object()


def expected(leaf: Any, values: Values) -> Any:
    """Return a result's (size, stride) or value at these sizes; UNKNOWN if it depends on anything else."""
    if not isinstance(leaf, torch.fx.Node):
        return leaf
    example = leaf.meta.get("example_value")
    if not isinstance(example, torch.Tensor):
        number = value_of(example, values)
        return UNKNOWN if number is None else number
    size, stride = (tuple(value_of(n, values) for n in part) for part in (example.size(), example.stride()))
    return UNKNOWN if None in (*size, *stride) else (size, stride)


def same(a: Any, b: Any, exactly: bool) -> bool:
    """Return whether two results are equal, to the bit if `exactly`, else within rounding."""
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    near = 0.0 if exactly else None
    try:
        torch.testing.assert_close(a, b, rtol=near, atol=near, equal_nan=True)
    except AssertionError:
        return False
    return True


def all_same(some: Sequence[Any] | None, others: Sequence[Any] | None, exactly: bool) -> bool:
    """Return whether both runs succeeded and all of their results are equal (see `same`)."""
    return some is not None and others is not None and all(map(functools.partial(same, exactly=exactly), some, others))


def shares_memory(results: Sequence[Any], args: Sequence[Any]) -> bool:
    """Return whether any result shares memory with an input."""
    memory = {each.untyped_storage()._cdata for each in args if isinstance(each, torch.Tensor)}
    return any(isinstance(each, torch.Tensor) and each.untyped_storage()._cdata in memory for each in results)


def rounded_up(size: int, buckets: Sequence[int]) -> int:
    """Return the smallest bucket that holds a size; the size itself if there is none."""
    return next((bucket for bucket in buckets if bucket >= size), size)


class Padding:
    """Decides for one graph which inputs are padded, and remembers which paddings were seen to be harmless."""

    def __init__(self, gm: torch.fx.GraphModule, sizes: Sizes, places: Mapping[Any, NumberPlace], buckets: Any) -> None:
        self.gm = gm
        self.sizes = sizes
        self.places = places
        self.buckets: dict[Any, tuple[int, ...]] = buckets  # by symbol
        self.layouts = [sizes.layouts.get(node.name) for node in gm.graph.find_nodes(op="placeholder")]
        self.tried: dict[Any, bool] = {}  # (padded sizes, padded dimensions) -> results did not change
        self.plans: dict[tuple[int, ...], PaddingPlan | None] = {}

    @staticmethod
    def of(
        gm: torch.fx.GraphModule, sizes: Sizes, places: Mapping[Any, NumberPlace], buckets: Buckets
    ) -> Padding | None:
        """Return the padding of a graph; None where no bucket applies, or the graph has side effects."""
        found: dict[Any, tuple[int, ...]] = {}
        for symbol, (source, _) in sizes.numbers.entries.items():
            given = buckets.get(str(source.base), {}).get(source.arg, ()) if source.how == "size" else ()
            expr = sizes.numbers.env.replace(symbol)
            if given and expr.is_Symbol:
                found[expr] = tuple(sorted({*found.get(expr, ()), *given}))
        if not found or not effects_of(gm).repeatable or changes_modes(gm):
            return None
        return Padding(gm, sizes, places, found)

    def plan(self, key: tuple[int, ...], args: Sequence[Any]) -> PaddingPlan | None:
        """Return how inputs of these sizes are padded; None to run them as they are."""
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            return None
        if key not in self.plans:
            if len(self.plans) > 4096:
                self.plans.clear()
            self.plans[key] = self.planned(key)
        plan = self.plans[key]
        if plan is None or (plan.wider and not self.changes_nothing(plan, args)):
            return None
        return plan

    def planned(self, key: tuple[int, ...]) -> PaddingPlan | None:
        values = dict(zip(self.places, key, strict=True))
        rounded = {symbol: rounded_up(value, self.buckets.get(symbol, ())) for symbol, value in values.items()}
        replaced = {symbol: self.sizes.numbers.env.replace(symbol) for symbol in values}
        padded = {
            symbol: int(put_in(expr, rounded)) if expr != symbol else rounded[symbol]
            for symbol, expr in replaced.items()
        }
        if not all(bool(put_in(guard.expr, padded)) for guard in self.sizes.numbers.env.guards):
            return None  # the program would have taken another branch at the padded size
        wider = [
            (position, dim, value_of(now, padded))
            for position, layout in enumerate(self.layouts)
            for dim, now in enumerate(layout.size if layout is not None else ())
            if value_of(now, padded) != value_of(now, values)
        ]
        leaves = pytree.tree_leaves(self.gm.graph.output_node().args[0])
        results = [expected(leaf, values) for leaf in leaves]
        if any(each is UNKNOWN for each in results):
            return None
        return PaddingPlan(tuple(padded.values()), tuple(wider), tuple(results))

    def changes_nothing(self, plan: PaddingPlan, args: Sequence[Any]) -> bool:
        """Return whether padding leaves the results unchanged, whatever it contains; tried once per padded size."""
        question = plan.padded, plan.wider
        known = self.tried.get(question)
        if known is None and any(args[position].size(dim) < 2 for position, dim, _ in plan.wider):
            return False  # a size of 1 broadcasts, and would prove nothing
        if known is None:
            with torch.no_grad():
                known = self.tried[question] = self.tried_out(plan, args)
            if not known:
                names = ", ".join(sorted({str(self.source(position)) for position, _, _ in plan.wider}))
                text = f"{names} cannot be padded to a bucket: what lies beyond its size shows in what is computed"
                text = f"{text}; it is compiled at its own sizes"
                warn_user(explained(text, "bucket not possible"), FallbackWarning)
        return known

    def tried_out(self, plan: PaddingPlan, args: Sequence[Any]) -> bool:
        wide = at_sizes(self.gm, dict(zip(self.places, plan.padded, strict=True)))
        plainly = self.results(self.gm, args)
        if plainly is None or shares_memory(plainly, args):
            return False
        padded, otherwise = (self.results(wide, plan.inputs(args, fill), plan) for fill in (zeros, nans))
        if not all_same(padded, otherwise, exactly=True) or not all_same(plainly, padded, exactly=False):
            return False
        for position in {position for position, _, _ in plan.wider if not args[position].is_floating_point()}:
            other = [opposite(each) if i == position else each for i, each in enumerate(args)]
            plainly = self.results(self.gm, other)  # None for indices: inverted, they are out of bounds
            if plainly and not all_same(plainly, self.results(wide, plan.inputs(other), plan), exactly=False):
                return False
        return True

    def results(
        self, gm: torch.fx.GraphModule, args: Sequence[Any], plan: PaddingPlan | None = None
    ) -> list[Any] | None:
        """Return the flat results of a graph; None if an operator rejects these inputs."""
        try:
            result = gm.forward(*args)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        return pytree.tree_leaves(result if plan is None else plan.cut(result))

    def source(self, position: int) -> Any:
        """Return the path of an input's source, as in `self.weight`."""
        return self.gm.graph.find_nodes(op="placeholder")[position].meta["source"].path
