"""Conditions on what step counters hold, and on settings that vary: decided by what they are now, which each later call
checks before it runs.

Some optimizers update in one way in their first steps and in another afterwards. A counter is a tensor, which only the
optimizer adds one to; so the condition is a formula over what counters hold when the frame begins. A momentum that a
scheduler changes is only asked whether there is one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.capture.source import Source
from torchdynamo.capture.value import Graphed, Symbol

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

Node = torch.fx.Node
Program = list[tuple[str, Any]]
MINUS: Program = [("int", -1), ("mul", None)]
OPERATIONS: dict[Any, tuple[Callable[..., Any], Program]] = {
    operator.add: (operator.add, [("add", None)]),
    operator.sub: (operator.sub, [*MINUS, ("add", None)]),
    operator.mul: (operator.mul, [("mul", None)]),
    operator.truediv: (operator.truediv, [("truediv", None)]),
    operator.pow: (operator.pow, [("pow", None)]),
    operator.neg: (operator.neg, MINUS),
    operator.gt: (operator.gt, [("gt", None)]),
    operator.lt: (operator.lt, [("lt", None)]),
    operator.ge: (operator.ge, [("ge", None)]),
    operator.le: (operator.le, [("le", None)]),
    operator.eq: (operator.eq, [("eq", None)]),
    operator.ne: (operator.ne, [("ne", None)]),
}
COMPARISONS = frozenset({operator.gt, operator.lt, operator.ge, operator.le, operator.eq, operator.ne})
ITEM = frozenset({torch.Tensor.item, "item"})
READERS = ITEM | OPERATIONS.keys()


class NoFormula(Exception):
    """More than arithmetic on counters goes into it."""


class Formula:
    """One condition: what it gives now, and the program that says it of another time."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.sources: list[Source] = []
        self.program: Program = []

    def read(self, what: Any) -> Any:
        """The value of a node or constant; what it takes to compute it again is added to the program."""
        if type(what) in (int, float):
            self.program.append((type(what).__name__, what))
            return what
        if not isinstance(what, Node) or what.kwargs:
            raise NoFormula
        if what.target in ITEM:
            return self.counter(what.all_input_nodes[0], what)
        if what.target not in OPERATIONS:
            raise NoFormula
        fn, steps = OPERATIONS[what.target]
        args = [self.counter(arg, what) if self.counts(arg, what) else self.read(arg) for arg in what.args]
        self.program += steps
        return fn(*args)

    def counts(self, tensor: Any, comparison: Node) -> bool:
        """Whether this is a counter of integers that is compared with one itself, and rounds nothing."""
        real = self.vm.input_objects.get(tensor) if isinstance(tensor, Node) else None
        integers = isinstance(real, torch.Tensor) and not (real.is_floating_point() or real.is_complex())
        return integers and comparison.target in COMPARISONS and type(comparison.args[1]) is int

    def counter(self, tensor: Any, reader: Node) -> Any:
        """What a counter holds where it is read: what it held at entry, and what has been added."""
        added = sum(increment(tensor, user) for user in tensor.users if user < reader)
        real = self.vm.input_objects.get(tensor)
        if real is None:
            return self.read(float(made_as(tensor) + added))
        boxes = {value.node: value.source for value in self.vm.boxes}
        source = boxes.get(tensor) or next(value.source for value in self.vm.inputs if value.node is tensor)
        if source is None or real.numel() != 1 or real.is_complex() or real.device.type != "cpu":
            raise NoFormula
        read = "__float__" if tensor in boxes else "item" if real.is_floating_point() else "__int__"
        held = Source("method", source, read)
        if held not in self.sources:
            self.sources.append(held)
        self.program += [("load", self.sources.index(held)), ("int", added), ("add", None)]
        return real.item() + added


def increment(tensor: Node, user: Node) -> int:
    """How much this use of a counter adds to it."""
    if user.target in READERS:
        return 0
    amount, scale = user.args[1] if len(user.args) == 2 else None, user.kwargs.get("alpha", 1)
    if isinstance(amount, Node) and not amount.users.keys() - {user}:
        amount = made_as(amount)
    if user.target in (operator.iadd, "add_", torch._foreach_add_) and amount == 1 and scale == 1:
        return 1
    raise NoFormula


def made_as(tensor: Node) -> float:
    """The one number that a new tensor is made of."""
    value = tensor.args[0] if tensor.target is torch.tensor and len(tensor.args) == 1 else None
    if type(value) not in (int, float):
        raise NoFormula
    return value  # type: ignore[return-value]


def decide(vm: Machine, condition: Symbol | Graphed) -> bool | None:
    """The truth of a condition on counters and settings, guarded; None where it is another kind of condition."""
    formula = Formula(vm)
    try:
        answer = bool(formula.read(condition.node))
    except (NoFormula, ArithmeticError, TypeError):
        return None
    if formula.sources:
        program = formula.program if answer else [*formula.program, ("not", None)]
        vm.guard(Source("globals"), "NUMBERS", (tuple(formula.sources), (tuple(program),)))
    return answer
