"""Conditions on numbers that exist when the frame begins and vary: decided by what they are now, and guarded.

The graph computes with a float that varies as with a number nobody knows. Where Python has to know whether it is below
another (`if rate < 0.1`, `min(rate, 1.0)`), the condition is a formula over floats and integers of the frame's inputs;
each later call checks the formula, so there is a version for each side, not for each float.

Some optimizers update in one way in their first steps and in another afterwards. In their code a formula may also be
over step counters: tensors which only the optimizer adds one to.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.capture import policy
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import Graphed, Symbol
from torchdynamo.guards.kinds.numbers import FUNCTIONS, holds_one

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
    operator.floordiv: (operator.floordiv, [("floordiv", None)]),
    operator.mod: (operator.mod, [("mod", None)]),
    operator.neg: (operator.neg, MINUS),
    abs: (abs, [("abs", None)]),
    round: (round, [("round", None)]),
    torch.sym_float: (float, [("to_float", None)]),
    torch.sym_int: (int, [("trunc", None)]),
    math.trunc: (math.trunc, [("trunc", None)]),
    math.floor: (math.floor, [("floor", None)]),
    math.ceil: (math.ceil, [("ceil", None)]),
    math.isnan: (math.isnan, [("to_float", None), ("abs", None), ("float", math.inf), ("le", None), ("not", None)]),
    math.isinf: (math.isinf, [("to_float", None), ("abs", None), ("float", math.inf), ("eq", None)]),
    math.isfinite: (math.isfinite, [("to_float", None), ("abs", None), ("float", math.inf), ("lt", None)]),
    **{getattr(math, name): (getattr(math, name), [(name, None)]) for name in FUNCTIONS},
    **{
        getattr(torch, f"_sym_{name}"): (getattr(math, name), [(name, None)])
        for name in FUNCTIONS
        if hasattr(torch, f"_sym_{name}")
    },
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
    """More than arithmetic on numbers at entry goes into it."""


class Formula:
    """One condition: its value now, and the guard program that computes it in another call."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.sources: list[Source] = []
        self.program: Program = []
        self.counting = policy.in_optimizer(vm.frames)  # what step counters hold may be read
        self.boxes = {value.node: value.source for value in vm.boxes if value.source}
        unknown = vm.builder.numbers.unknown  # where the user has said that a size decides nothing
        self.integers = {each.node: each.source for each in vm.numbers_in if each.source and not unknown(each.fake)}

    def read(self, what: Any) -> Any:
        """Return the value of a node or constant; add to the program what it takes to compute it again."""
        if type(what) in (int, float):
            self.program.append((type(what).__name__, what))
            return what
        if not isinstance(what, Node) or what.kwargs:
            raise NoFormula
        if what in self.integers:
            return self.load(self.integers[what], self.integers[what].load(self.vm.roots))
        if what.target in ITEM:
            (tensor,) = what.all_input_nodes
            return self.unboxed(tensor) if tensor in self.boxes else self.counter(tensor, what)
        if what.target not in OPERATIONS:
            raise NoFormula
        fn, steps = OPERATIONS[what.target]
        args = [self.counter(arg, what) if self.counts(arg, what) else self.read(arg) for arg in what.args]
        self.program += steps
        return fn(*args)

    def load(self, source: Source, now: Any) -> Any:
        """Add an input to the program; return what it is now."""
        if source not in self.sources:
            self.sources.append(source)
        self.program.append(("load", self.sources.index(source)))
        return now

    def unboxed(self, box: Node) -> float:
        """Return a float of the frame's inputs, which travels in a tensor (varying.py)."""
        return float(self.load(Source("method", self.boxes[box], "__float__"), self.vm.input_objects[box].item()))

    def counts(self, tensor: Any, comparison: Node) -> bool:
        """Return whether this is a counter of integers that is compared with one itself, and rounds nothing."""
        real = self.vm.input_objects.get(tensor) if isinstance(tensor, Node) and self.counting else None
        integers = isinstance(real, torch.Tensor) and not (real.is_floating_point() or real.is_complex())
        return integers and comparison.target in COMPARISONS and type(comparison.args[1]) is int

    def counter(self, tensor: Any, reader: Node) -> Any:
        """Return what a counter holds where it is read: what it held at entry, and what has been added."""
        if not self.counting:
            raise NoFormula
        added = sum(increment(tensor, user) for user in tensor.users if user < reader)
        real = self.vm.input_objects.get(tensor)
        if real is None:
            return self.read(float(made_as(tensor) + added))
        source = next(value.source for value in self.vm.inputs if value.node is tensor)
        if source is None or real.numel() != 1 or real.is_complex() or real.device.type != "cpu":
            raise NoFormula
        self.load(Source("method", source, "item" if real.is_floating_point() else "__int__"), None)
        self.program += [("int", added), ("add", None)]
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
    """Return the truth of a condition on numbers at entry, guarded; None where it is another kind of condition."""
    formula = Formula(vm)
    try:
        answer = bool(formula.read(condition.node))
    except (NoFormula, ArithmeticError, TypeError, ValueError):
        return None
    if formula.sources:
        sources, program = (
            tuple(formula.sources),
            tuple(formula.program if answer else [*formula.program, ("not", None)]),
        )
        if not holds_one(program, sources, vm.roots):  # more than guards compute with
            return None
        vm.guard(Source("globals"), "NUMBERS", (sources, (program,)))
    return answer
