"""Say what the steps on scores mean for `scaled_dot_product_attention`: one scale, masks, biases, rows without keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.passes.attention.bounds import bound, largest, levels, rounded
from torchdynamo.graph.passes.attention.calls import example, is_float, read
from torchdynamo.graph.passes.attention.form import Bias, Cap, Fill, Miss, Scale, ScoreStep
from torchdynamo.graph.passes.attention.masks import (
    LEAST_FILL,
    Evaluator,
    Proof,
    keeps_where_false,
    keeps_where_true,
    keeps_zeros,
)

Node = torch.fx.Node

ABSORBING = -1e9
"""Scores vanish in the rounding of a bias of this or less: where all keys have one, their weights are equal."""
LEARNED = 1e6
"""Bound on an added tensor with a gradient in training: it is learned, and no mask."""
NAN, MEAN, ZERO = "nan", "mean", "zero"  # results of a row all of whose keys are masked


@dataclass
class Arguments:
    """The arguments of the operator, before they are nodes."""

    scale: float = 1.0
    inner: float | None = None  # scale before a tanh, if there is one
    factors: list[Scale] = field(default_factory=list)  # tensors to scale queries with
    fills: list[Fill] = field(default_factory=list)
    biases: list[Bias] = field(default_factory=list)
    causal: bool = False
    rows: str = ""  # what rows without keys give; "" if there are none
    infinite: bool = False  # biases may be -inf, and for all keys of a row
    absorbs: bool = False  # biases may be so low for all keys of a row that scores do not matter
    even: bool = False  # and are then the same for all of them
    proven_by: frozenset[Node] = frozenset()  # inputs whose contents prove some of this

    def described(self) -> str:
        """Return in a few words what masks the operator gets."""
        given = [*(["is_causal"] if self.causal else []), *(["a mask"] if self.fills else [])]
        given += ["a bias"] if self.biases else []
        name = "scaled_dot_product_attention" if self.inner is None else "flex_attention with a cap,"
        return f"{name} with {' and '.join(given) or 'no mask'}"


def lowered(
    steps: Sequence[ScoreStep], sizes: tuple[Any, Any], evaluator: Evaluator, *, emptied: str, train: bool
) -> Arguments:
    """Return the operator's arguments for these steps on scores of (queries, keys). Raises Miss.

    emptied: what sets the weights of rows without keys to zero (`empties`). train: gradients are asked for.
    """
    found = Arguments()
    for step in steps:
        if isinstance(step, Scale):
            scale_by(step, found)
        elif isinstance(step, Bias):
            if any(math.isfinite(each.value) for each in found.fills):
                raise Miss("something is added after a mask has filled in a finite value", step.tensor)
            found.biases.append(step)
        elif isinstance(step, Fill):
            found.fills.append(step)
        elif isinstance(step, Cap):
            if found.inner is not None or found.biases or found.fills:
                raise Miss("the scores go through a tanh twice, or after they were masked")
            found.inner, found.scale = found.scale, 1.0
    for fill in found.fills:
        if not fill.value <= LEAST_FILL:
            raise Miss(f"a mask fills in {fill.value:g}, which has weight in a softmax", fill.mask)
    simplify(found, sizes, evaluator)
    if found.absorbs and train and largest_sum(found.biases, evaluator, LEARNED) < -ABSORBING:
        found.absorbs = False
    if found.absorbs:
        found.even = are_even(found.biases, evaluator)
        learned = any(example(each.tensor).requires_grad for each in found.biases)
        if train and (not found.even or learned or found.inner is not None):
            raise Miss("what is added may leave no key of a row, and the operator has other gradients there")
    if emptied == "nan" and found.rows == MEAN:
        if found.infinite:
            raise Miss("NaN is replaced after a mask has filled in a finite value")
        return found
    if emptied == "mask" and found.infinite:
        raise Miss("the weights are masked, and may be NaN elsewhere")
    if found.rows and emptied:
        if found.rows == NAN and train:
            raise Miss("rows without keys become zero after they were NaN, and have NaN for gradients")
        found.rows = ZERO
    return found


def scale_by(step: Scale, found: Arguments) -> None:
    """Scale all that was done to the scores before."""
    if isinstance(step.by, Node):
        if found.biases or found.fills or found.inner is not None:
            raise Miss("scores are scaled by a tensor after they were masked or capped", step.by)
        found.factors.append(step)
        return
    if found.fills and step.by <= 0:
        raise Miss("masked scores are scaled by a factor that is not positive")
    found.scale *= step.by
    found.biases = [Bias(each.lead, each.tensor, each.factor * step.by) for each in found.biases]
    found.fills = [Fill(each.lead, each.mask, each.value * step.by, each.keeps) for each in found.fills]


def simplify(found: Arguments, sizes: tuple[Any, Any], evaluator: Evaluator) -> None:
    """Leave out masks that keep everything, use `is_causal`, and find out what rows without keys give. Raises Miss."""
    masks: list[tuple[Fill | Bias, Proof]] = []
    given: list[Fill | Bias] = [*found.fills, *found.biases]
    for each in given:
        proof = proof_of(each, sizes, evaluator)
        if proof.keeps_all:
            found.proven_by |= proof.inputs
        else:
            masks.append((each, proof))
    causal = [proof for _, proof in masks if proof.causal]
    if causal and len(causal) == len(masks):
        found.causal, found.fills, found.biases = True, [], []
        found.proven_by = found.proven_by.union(*(proof.inputs for proof in causal))
        return
    found.fills = [each for each, _ in masks if isinstance(each, Fill)]
    found.biases = [each for each, _ in masks if isinstance(each, Bias)]
    proven = [proof.keeps_some and not proof.inputs for _, proof in masks]
    finite = are_finite(found.biases, evaluator)
    if not masks or (len(masks) == 1 and proven[0]):
        return
    found.absorbs = not found.fills and largest_sum(found.biases, evaluator) >= -ABSORBING
    if not found.fills and finite:
        return
    if len(found.fills) == 1 and finite and proven[0]:
        return
    values = {each.value for each in found.fills}
    if len(values) > 1:
        raise Miss("masks fill in different values")
    value = values.pop() if values else -math.inf
    found.infinite = not finite
    found.rows = MEAN if math.isfinite(value) else NAN


def proof_of(mask: Fill | Bias, sizes: tuple[Any, Any], evaluator: Evaluator) -> Proof:
    """Return what is known of a mask or bias."""
    if isinstance(mask, Fill):
        return evaluator.proof(mask.mask, keeps_where_true if mask.keeps else keeps_where_false, *sizes)
    if mask.factor <= 0 or mask.factor < 1e-3:
        return Proof()
    return evaluator.proof(mask.tensor, keeps_zeros, *sizes)


def are_finite(biases: Sequence[Bias], evaluator: Evaluator) -> bool:
    """Return whether the sum of biases has no infinite values, as far as is known."""
    most = min((largest(example(each.tensor).dtype) for each in biases if is_float(each.tensor)), default=math.inf)
    return largest_sum(biases, evaluator) <= most


def are_even(biases: Sequence[Bias], evaluator: Evaluator) -> bool:
    """Return whether biases that absorb the scores of all keys of a row are proved to be the same for all of them.

    So it is where masks with a few known values are added, of which one at most is so low, and what else is added
    vanishes beside it.
    """
    known: frozenset[float] | None = frozenset({0.0})
    rest = 0.0
    dtype = torch.float32
    for tensor, factor in (term for each in biases for term in terms(each.tensor, each.factor)):
        found, dtype = levels(tensor, evaluator), torch.promote_types(dtype, example(tensor).dtype)
        if found is None:
            rest += bound(tensor, evaluator) * abs(factor)
        elif known is not None:
            known = rounded({one + factor * two for one in known for two in found}, dtype)
    if known is None or not math.isfinite(rest):
        return False
    low = [each for each in known if each - rest <= ABSORBING]
    return len(low) < 2 and all(rest <= abs(each) * torch.finfo(dtype).eps / 4 < math.inf for each in low)


def terms(node: Node, factor: float) -> Iterator[tuple[Node, float]]:
    """Yield the tensors that a tensor is the sum of, with their factors."""
    call = read(node)
    if call is not None and call.name in ("add", "sub") and call["alpha"] is None:
        one, two = call["input"], call["other"]
        if isinstance(one, Node) and isinstance(two, Node):
            yield from terms(one, factor)
            yield from terms(two, factor if call.name == "add" else -factor)
            return
    yield node, factor


def largest_sum(biases: Sequence[Bias], evaluator: Evaluator, learned: float = math.inf) -> float:
    """Return a number that the sum of biases does not exceed in size. learned: that for terms with a gradient."""
    return sum(
        abs(factor) * (min(found, learned) if example(tensor).requires_grad else found)
        for each in biases
        for tensor, factor in terms(each.tensor, each.factor)
        for found in [bound(tensor, evaluator)]
    )
