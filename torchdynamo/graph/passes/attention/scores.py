"""Follow scores from a softmax up to the product that they come from: a rule for each operation on the way.

To teach an operation, add a rule: a function from its call to the nodes that may be the scores before it, each with the
step that leads from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.passes.attention.calls import NamedCall, example, is_float, read
from torchdynamo.graph.passes.attention.form import Bias, Cap, Fill, Miss, Product, Scale, ScoreStep
from torchdynamo.graph.passes.attention.masks import Evaluator
from torchdynamo.graph.passes.attention.products import NAMES, same, scores_of, sizes

Node = torch.fx.Node
Before = tuple[Any, "ScoreStep | None"]
Rule = Callable[[NamedCall, tuple[Any, ...], Evaluator], Iterator[Before]]
DEEPEST = 40


def number(value: Any) -> float | None:
    """Return a number that is a constant; None for anything else."""
    return float(value) if type(value) in (int, float) else None


def is_per_head(value: Any) -> bool:
    """Return whether a factor is the same for all queries and keys."""
    found = example(value)
    if isinstance(found, torch.Tensor):
        return found.dim() == 0 or (found.dim() >= 2 and tuple(found.shape[-2:]) == (1, 1))
    return isinstance(found, (torch.SymInt, torch.SymFloat))


def times(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    for one, two in ((call["input"], call["other"]), (call["other"], call["input"])):
        factor = number(two)
        if factor is not None or is_per_head(two):
            yield one, Scale(lead, two if factor is None else factor)


def over(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    divisor = number(call["other"])
    if divisor:
        yield call["input"], Scale(lead, 1.0 / divisor)
    elif divisor is None and is_per_head(call["other"]):
        yield call["input"], Scale(lead, call["other"], divides=True)


def plus(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    alpha = number(1 if call["alpha"] is None else call["alpha"])
    one, two = call["input"], call["other"]
    if alpha is not None and isinstance(two, Node):
        yield one, Bias(lead, two, alpha)
    if alpha == 1 and isinstance(one, Node):
        yield two, Bias(lead, one, 1.0)
    if number(one) is not None or number(two) is not None:
        yield (two if number(two) is None else one), None  # the same for all keys: softmax does not see it


def minus(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    alpha = number(1 if call["alpha"] is None else call["alpha"])
    if alpha is not None and isinstance(call["other"], Node):
        yield call["input"], Bias(lead, call["other"], -alpha)


def negative(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    yield call["input"], Scale(lead, -1.0)


def filled(call: NamedCall, lead: tuple[Any, ...], evaluator: Evaluator) -> Iterator[Before]:
    value = uniform(call["value"], evaluator)
    if value is not None and isinstance(call["mask"], Node):
        yield call["input"], Fill(lead, call["mask"], value, keeps=False)


def chosen(call: NamedCall, lead: tuple[Any, ...], evaluator: Evaluator) -> Iterator[Before]:
    for scores, fill, keeps in ((call["input"], call["other"], True), (call["other"], call["input"], False)):
        value = uniform(fill, evaluator)
        if value is not None and isinstance(call["condition"], Node):
            yield scores, Fill(lead, call["condition"], value, keeps)


def capped(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    yield call["input"], Cap(lead)


def unchanged(call: NamedCall, lead: tuple[Any, ...], _: Evaluator) -> Iterator[Before]:
    yield call["input"], None


RULES: dict[str, Rule] = {
    "mul": times,
    "div": over,
    "add": plus,
    "sub": minus,
    "neg": negative,
    "masked_fill": filled,
    "where": chosen,
    "tanh": capped,
    "cast": unchanged,
    "same": unchanged,
    "reshape": unchanged,
}


def uniform(value: Any, evaluator: Evaluator) -> float | None:
    """Return the one value of a number or constant tensor; None if there is not one."""
    known = number(value)
    if known is not None or not isinstance(value, Node):
        return known
    found = evaluator.constant(value)
    if found is None or found.numel() == 0:
        return None
    first = float(found.flatten()[0])
    same = bool((found == first).all()) if not math.isnan(first) else False
    return first if same else None


def climb(
    node: Any, evaluator: Evaluator, readers: frozenset[Node], depth: int = 0
) -> tuple[Node, Product, list[ScoreStep], list[Node]]:
    """Follow scores up: return their product's node, the product, the steps in order, and all nodes on the way.

    readers: who may read the scores. Raises Miss.
    """
    call = read(node)
    if call is None or depth > DEEPEST or not is_float(node):
        raise Miss("what is added to the scores, or comes before, is not known here", node, depth)
    if not readers.issuperset(node.users):
        raise Miss("the scores are used a second time", node, depth)
    rank, lead = example(node).dim(), sizes(node)[:-2]
    if rank < 2:
        raise Miss("the scores have one dimension", node, depth)
    if call.name in NAMES:
        return node, scores_of(call, node), started(call, node, lead), [node]
    if call.name not in RULES:
        raise Miss(f"`{call.name}` is applied to the scores", node, depth)
    furthest = Miss(f"`{call.name}` is applied to the scores in a way that is not known here", node, depth)
    for before, step in RULES[call.name](call, lead, evaluator):
        kept = slice(-2, None) if call.name == "reshape" else slice(None)
        if not is_float(before) or not same(sizes(before)[kept], sizes(node)[kept]):
            continue
        try:
            found, product, steps, inner = climb(before, evaluator, frozenset({node}), depth + 1)
        except Miss as miss:
            furthest = max(furthest, miss, key=lambda each: each.depth)
            continue
        return found, product, [*steps, step] if step is not None else steps, [*inner, node]
    raise furthest


def started(call: NamedCall, node: Node, lead: tuple[Any, ...]) -> list[ScoreStep]:
    """Return the steps that the product itself does: `baddbmm` scales it and adds a tensor."""
    if call.name != "baddbmm":
        return []
    beta, alpha = (number(1 if call[name] is None else call[name]) for name in ("beta", "alpha"))
    if beta is None or alpha is None:
        raise Miss("baddbmm with factors that are no constants", node)
    scaled: list[ScoreStep] = [Scale(lead, alpha)] if alpha != 1 else []
    return [*scaled, Bias(lead, call["start"], beta)] if beta else scaled
