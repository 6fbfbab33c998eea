"""Bound tensors by how they are computed: how large an element can be, and which few values elements can have.

The first proves that a bias is finite, the second that a row without keys has the same bias for each key.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.passes.attention.calls import NamedCall, example, read
from torchdynamo.graph.passes.attention.masks import Evaluator

Node = torch.fx.Node
Levels = frozenset[float]
DEEPEST = 40
MOST_LEVELS = 8
MADE: dict[Any, Callable[[Node], Any]] = {  # what makes a tensor -> its value
    torch.zeros: lambda node: 0,
    torch.zeros_like: lambda node: 0,
    torch.ones: lambda node: 1,
    torch.ones_like: lambda node: 1,
    torch.full: lambda node: node.args[1] if len(node.args) > 1 else node.kwargs.get("fill_value"),
    torch.tensor: lambda node: node.args[0],
}
TRIANGLES = (torch.triu, torch.tril)
"""Functions that keep some elements and make others zero."""
SAME = frozenset({"same", "reshape", "getitem", "expand", "transpose", "permute", "detach"})
"""Calls whose elements are those of their input."""


def largest(dtype: torch.dtype) -> float:
    """Return the largest finite number of a dtype."""
    return torch.finfo(dtype).max if dtype.is_floating_point else float(torch.iinfo(dtype).max)


# ---- how large elements are -----------------------------------------------------------------------------------------


def bound(node: Any, evaluator: Evaluator, depth: int = 0) -> float:
    """Return a number that no element exceeds in size; infinity if none is known."""
    if type(node) in (bool, int, float):
        return math.inf if math.isnan(node) else abs(float(node))
    fake = example(node)
    if not isinstance(node, Node) or not isinstance(fake, torch.Tensor) or depth > DEEPEST:
        return math.inf
    if fake.dtype == torch.bool:
        return 1.0
    known = evaluator.constant(node)
    if known is not None:
        size = float(known.abs().max()) if known.numel() else 0.0
        return math.inf if math.isnan(size) else size
    if fake.is_complex():
        return math.inf
    most = math.inf if fake.is_floating_point() else largest(fake.dtype)

    def of(value: Any) -> float:
        return bound(value, evaluator, depth + 1)

    made = MADE.get(node.target)
    if made is not None:
        return of(made(node))
    if node.target in TRIANGLES:
        return of(node.args[0])
    call = read(node)
    rule = BOUNDS.get(call.name) if call is not None else None
    if call is None or rule is None:
        return most
    found = rule(call, of)
    return found if found <= largest(fake.dtype) else most


def of_input(call: NamedCall, of: Callable[[Any], float]) -> float:
    return of(call["input"])


def of_sum(call: NamedCall, of: Callable[[Any], float]) -> float:
    alpha = call["alpha"]
    return of(call["input"]) + of(call["other"]) * (1.0 if alpha is None else of(alpha))


def of_product(call: NamedCall, of: Callable[[Any], float]) -> float:
    one, two = of(call["input"]), of(call["other"])
    return 0.0 if 0.0 in (one, two) and math.inf not in (one, two) else one * two


def of_fill(call: NamedCall, of: Callable[[Any], float]) -> float:
    return max(of(call["input"]), of(call["value"]))


def of_choice(call: NamedCall, of: Callable[[Any], float]) -> float:
    return max(of(call["input"]), of(call["other"]))


def of_one_less(call: NamedCall, of: Callable[[Any], float]) -> float:
    """Bound a difference; that of 1 and truth values is no larger than 1."""
    one, two = call["input"], call["other"]
    if one == 1 and is_truth(two):
        return 1.0
    return of_sum(call, of)


def of_running_sum(call: NamedCall, of: Callable[[Any], float]) -> float:
    size = example(call["input"]).shape[call["dim"]] if type(call["dim"]) is int else None
    return of(call["input"]) * size if type(size) is int else math.inf


def is_truth(node: Any) -> bool:
    """Return whether all elements are 0 or 1, as those of a boolean tensor in another dtype are."""
    call = read(node)
    while call is not None and (call.name in SAME or call.name == "cast"):
        node = call["input"]
        call = read(node)
    fake = example(node)
    return isinstance(fake, torch.Tensor) and fake.dtype == torch.bool


BOUNDS: dict[str, Callable[[NamedCall, Callable[[Any], float]], float]] = {
    **dict.fromkeys((*SAME, "cast", "neg"), of_input),
    "add": of_sum,
    "sub": of_one_less,
    "mul": of_product,
    "cumsum": of_running_sum,
    "masked_fill": of_fill,
    "where": of_choice,
}


# ---- which values elements have -------------------------------------------------------------------------------------


def levels(node: Any, evaluator: Evaluator, depth: int = 0) -> Levels | None:
    """Return the values that elements may have; None if they are not known, more than a few, or NaN."""
    if type(node) in (bool, int, float):
        return None if math.isnan(node) else frozenset({float(node)})
    fake = example(node)
    if not isinstance(node, Node) or not isinstance(fake, torch.Tensor) or depth > DEEPEST or fake.is_complex():
        return None
    if fake.dtype == torch.bool:
        return frozenset({0.0, 1.0})
    known = evaluator.constant(node)
    if known is not None:
        return rounded(torch.unique(known)[: MOST_LEVELS + 1].tolist(), fake.dtype)
    if node.target in MADE:
        found = [levels(MADE[node.target](node), evaluator, depth + 1)]
    elif node.target in TRIANGLES:
        found = [frozenset({0.0}), levels(node.args[0], evaluator, depth + 1)]
    else:
        call = read(node)
        parts = LEVELS.get(call.name) if call is not None else None
        if call is None or parts is None:
            return None
        found = [levels(call[each], evaluator, depth + 1) for each in parts]
        combine = COMBINED.get(call.name)
        if combine is not None and None not in found:
            alpha = 1 if call["alpha"] is None else call["alpha"]
            if type(alpha) not in (int, float):
                return None
            given = [each for each in found if each is not None]
            found = [frozenset(combine(*each, alpha) for each in itertools.product(*given))]
    if None in found:
        return None
    return rounded(itertools.chain.from_iterable(each for each in found if each is not None), fake.dtype)


def rounded(values: Iterable[float], dtype: torch.dtype) -> Levels | None:
    """Return values as a dtype has them; None for too many, for NaN, and for what an integer cannot be."""
    found = set(values)
    if len(found) > MOST_LEVELS or any(
        math.isnan(each) or (math.isinf(each) and not dtype.is_floating_point) for each in found
    ):
        return None
    return frozenset(float(torch.tensor(each, dtype=torch.float64).to(dtype)) for each in found)


LEVELS: dict[str, tuple[str, ...]] = {  # call -> the arguments whose values its elements come from
    **dict.fromkeys((*SAME, "cast", "neg"), ("input",)),
    **dict.fromkeys(("add", "sub", "mul", "where"), ("input", "other")),
    "masked_fill": ("input", "value"),
}
COMBINED: dict[str, Callable[..., float]] = {
    "neg": lambda one, _: -one,
    "add": lambda one, two, alpha: one + alpha * two,
    "sub": lambda one, two, alpha: one - alpha * two,
    "mul": lambda one, two, _: one * two,
}
