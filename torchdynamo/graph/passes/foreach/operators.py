"""Operators on one tensor that have a form for lists of tensors with the same results to the bit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from torchdynamo.graph.passes.attention.calls import example
from torchdynamo.graph.passes.attention.form import Miss
from torchdynamo.graph.torch_compat import is_layered

Node = torch.fx.Node
DEVICES = {"cuda"}
"""Types of devices where a kernel for a list is faster than one for each tensor."""


class Operator(NamedTuple):
    """An operator on tensors of one shape: its arguments, and its forms for lists, out of place and in place."""

    parameters: str
    lists: Callable[..., Any] | None
    lists_in_place: Callable[..., Any]
    alpha: str | None = None  # the factor that is given by its name


OPERATORS: dict[str, Operator] = {
    "add": Operator("input other", torch._foreach_add, torch._foreach_add_, "alpha"),
    "sub": Operator("input other", torch._foreach_sub, torch._foreach_sub_, "alpha"),
    "mul": Operator("input other", torch._foreach_mul, torch._foreach_mul_),
    "div": Operator("input other", torch._foreach_div, torch._foreach_div_),
    "maximum": Operator("input other", torch._foreach_maximum, torch._foreach_maximum_),
    "pow": Operator("input exponent", torch._foreach_pow, torch._foreach_pow_),
    "lerp": Operator("input end weight", torch._foreach_lerp, torch._foreach_lerp_),
    "addcmul": Operator("input tensor1 tensor2", torch._foreach_addcmul, torch._foreach_addcmul_, "value"),
    "addcdiv": Operator("input tensor1 tensor2", torch._foreach_addcdiv, torch._foreach_addcdiv_, "value"),
    "sqrt": Operator("input", torch._foreach_sqrt, torch._foreach_sqrt_),
    "rsqrt": Operator("input", torch._foreach_rsqrt, torch._foreach_rsqrt_),
    "reciprocal": Operator("input", torch._foreach_reciprocal, torch._foreach_reciprocal_),
    "neg": Operator("input", torch._foreach_neg, torch._foreach_neg_),
    "abs": Operator("input", torch._foreach_abs, torch._foreach_abs_),
    "sign": Operator("input", torch._foreach_sign, torch._foreach_sign_),
    "copy": Operator("input src", None, torch._foreach_copy_),
    "zero": Operator("input", None, torch._foreach_copy_),  # of zeros
    "square": Operator("input", torch._foreach_mul, torch._foreach_mul_),  # of a tensor and itself
}
SPELLINGS: dict[Any, tuple[str, bool]] = {  # target of a node -> operator, and whether it is in place
    **{each: (each, False) for each, row in OPERATORS.items() if row.lists is not None},
    **{getattr(torch, each): (each, False) for each, row in OPERATORS.items() if row.lists is not None},
    **{f"{each}_": (each, True) for each in OPERATORS if hasattr(torch.Tensor, f"{each}_")},
    operator.add: ("add", False),
    operator.sub: ("sub", False),
    operator.mul: ("mul", False),
    operator.truediv: ("div", False),
    operator.pow: ("pow", False),
    operator.neg: ("neg", False),
    operator.iadd: ("add", True),
    operator.isub: ("sub", True),
    operator.imul: ("mul", True),
    operator.itruediv: ("div", True),
    operator.ipow: ("pow", True),
}
COMMUTATIVE = frozenset({"add", "mul"})
REFLECTED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sub": (torch._foreach_neg, torch._foreach_add),
    "div": (torch._foreach_reciprocal, torch._foreach_mul),
}
"""What a number minus or over a tensor is, as torch computes it."""
WITH_ONE_TENSOR = frozenset({"add", "sub", "mul", "div"})
"""Operators on a list and one tensor without dimensions."""


class UpdateStep(NamedTuple):
    """An operator on one tensor, and how its form for lists is called."""

    node: Node
    function: Callable[..., Any]
    writes: bool
    lists: tuple[Node | None, ...]  # what is a list, of one for each tensor, the written one first; None: of zeros
    shared: tuple[Any, ...]  # what is the same for all tensors: numbers, or one tensor without dimensions
    named: Mapping[str, Any]
    before: Callable[..., Any] | None = None  # applied to the first list

    @property
    def tensors(self) -> list[Node]:
        """Return the nodes of tensors that are read or written to."""
        return [each for each in (*self.lists, *self.shared) if isinstance(example(each), torch.Tensor)]

    @property
    def result(self) -> torch.Tensor:
        """Return the example of the result."""
        found: torch.Tensor = example(self.node)
        return found


def is_number(value: Any) -> bool:
    """Return whether an argument is a number, or a node that gives one."""
    return type(example(value)) in (int, float, torch.SymInt, torch.SymFloat)


def is_like(argument: Any, node: Node) -> bool:
    """Return whether an argument is a tensor of a node's shape."""
    found = example(argument)
    return isinstance(found, torch.Tensor) and found.shape == example(node).shape


def is_update(node: Any) -> bool:
    """Return whether a node is one of these operators, on floats of one of these devices, and keeps no history."""
    found = example(node)
    return (
        isinstance(node, Node)
        and node.op in ("call_function", "call_method")
        and node.target in SPELLINGS
        and isinstance(found, FakeTensor)
        and found.device.type in DEVICES
        and found.is_floating_point()
        and not is_layered(found)
        and keeps_no_history(found, SPELLINGS[node.target][1])
    )


def keeps_no_history(found: torch.Tensor, writes: bool) -> bool:
    """Return whether a result has no history. Who may write to a leaf that requires a gradient has gradients off."""
    if not writes:
        return not found.requires_grad
    base = found._base if found._is_view() else found
    return base is not None and base.is_leaf


def step_of(node: Node) -> UpdateStep:
    """Return how an update is called for lists. Raises Miss for one that cannot be."""
    name, writes = SPELLINGS[node.target]
    row = OPERATORS[name]
    parameters = row.parameters.split()
    given = dict(zip(parameters, node.args))
    named = dict(node.kwargs)
    factor = named.pop(row.alpha, 1) if row.alpha is not None else 1
    given.update(named)
    if len(node.args) > len(parameters) or given.keys() != set(parameters) or not is_number(factor):
        raise Miss("an argument has no form for lists", node)
    arguments = [given[each] for each in parameters]
    if writes and is_number(arguments[0]):
        raise Miss("a number comes before a tensor", node)
    if name in COMMUTATIVE and not writes and factor == 1 and not is_like(arguments[0], node):
        arguments.reverse()
    step = UpdateStep(node, row.lists_in_place if writes else row.lists or row.lists_in_place, writes, (), (), {})
    step = ARRANGED.get(name, of_tensors)(step, arguments, factor)
    check(step)
    return step


def of_tensors(step: UpdateStep, arguments: list[Any], factor: Any) -> UpdateStep:
    """Return a step all of whose arguments are tensors, with a factor after them."""
    return step._replace(lists=tuple(arguments), shared=() if factor == 1 and type(factor) is int else (factor,))


def of_pair(step: UpdateStep, arguments: list[Any], factor: Any) -> UpdateStep:
    """Return a step whose second argument may be a number, or one tensor for all."""
    first, second = arguments
    name = SPELLINGS[step.node.target][0]
    named = {} if factor == 1 and type(factor) is int else {"alpha": factor}
    if is_number(first):
        if name not in REFLECTED or named:
            raise Miss("a number comes before a tensor", step.node)
        before, function = REFLECTED[name]
        return step._replace(function=function, lists=(second,), shared=(first,), before=before)
    if is_number(second):
        if named:
            raise Miss("a number has a factor", step.node)
        return step._replace(lists=(first,), shared=(second,))
    if isinstance(second, Node) and example(second).dim() == 0 != step.result.dim():
        if name not in WITH_ONE_TENSOR or isinstance(factor, Node):
            raise Miss("one tensor is an argument of all", step.node)
        if name == "sub":
            function = torch._foreach_add_ if step.writes else torch._foreach_add
            step, named = step._replace(function=function), {"alpha": -factor}
        return step._replace(lists=(first,), shared=(second,), named=named)
    return step._replace(lists=(first, second), named=named)


def of_power(step: UpdateStep, arguments: list[Any], _: Any) -> UpdateStep:
    """Return a step whose second argument is a number."""
    if not is_number(arguments[1]):
        raise Miss("an exponent is a tensor", step.node)
    return step._replace(lists=(arguments[0],), shared=(arguments[1],))


def of_weight(step: UpdateStep, arguments: list[Any], _: Any) -> UpdateStep:
    """Return a step with a weight between two tensors, which for lists is rounded as `lerp` rounds small ones."""
    start, end, weight = arguments
    if type(weight) not in (int, float) or not abs(weight) < 0.5:
        raise Miss("a weight of lerp is no number below 0.5", step.node)
    return step._replace(lists=(start, end), shared=(weight,))


def of_zeros(step: UpdateStep, arguments: list[Any], _: Any) -> UpdateStep:
    """Return a step that copies zeros."""
    return step._replace(lists=(arguments[0], None))


def of_itself(step: UpdateStep, arguments: list[Any], _: Any) -> UpdateStep:
    """Return a step with a tensor as both arguments."""
    return step._replace(lists=(arguments[0], arguments[0]))


ARRANGED: dict[str, Callable[[UpdateStep, list[Any], Any], UpdateStep]] = {
    **dict.fromkeys(("add", "sub", "mul", "div"), of_pair),
    "pow": of_power,
    "lerp": of_weight,
    "zero": of_zeros,
    "square": of_itself,
}
"""What is made of the arguments; of others, `of_tensors`."""


def check(step: UpdateStep) -> None:
    """Raise Miss for tensors that differ in more than contents (dtype, device, shape), and for numbers that vary.

    Inductor's kernels for lists of tensors take no such numbers.
    """
    result = step.result
    for each in (*step.shared, *step.named.values()):
        if isinstance(each, Node) and not isinstance(example(each), torch.Tensor):
            raise Miss("a number varies", step.node)
    for each in step.lists:
        if each is not None and not isinstance(example(each), FakeTensor):
            raise Miss("an argument is no tensor", step.node)
    for node in step.tensors:
        found = example(node)
        if not isinstance(found, FakeTensor) or found.layout is not torch.strided or is_layered(found):
            raise Miss("a tensor is of another kind", step.node)
        if (found.dtype, found.device) != (result.dtype, result.device):
            raise Miss("dtypes or devices differ", step.node)
        if not all(type(size) is int for size in (*found.shape, *result.shape)):
            raise Miss("a size varies", step.node)
        if found.shape != result.shape and node not in step.shared:
            raise Miss("a tensor is broadcast", step.node)
