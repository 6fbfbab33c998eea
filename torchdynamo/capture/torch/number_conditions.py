"""Decide conditions on symbols that have a value at entry by that value, and guard them.

The graph computes with a float that varies as with a number nobody knows. Where Python has to know whether it is below
another (`if rate < 0.1`, `min(rate, 1.0)`), the condition is a formula over floats and integers of the frame's inputs;
each later call checks the formula, so there is a version for each side, not for each float.

Some optimizers update in one way in their first steps and in another afterwards. In their code a formula may also be
over step counters: tensors which only the optimizer adds one to.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.core import policy
from torchdynamo.core.number_programs import FUNCTIONS, Program, run
from torchdynamo.core.source import Source
from torchdynamo.core.value import Symbol, TensorNode

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Node = torch.fx.Node
MINUS: Program = (("int", -1), ("mul", None))
SAME_NAME = "add mul truediv floordiv mod pow gt lt ge le eq ne".split()
OPERATIONS: dict[Any, Program] = {
    **{getattr(operator, name): ((name, None),) for name in SAME_NAME},
    operator.sub: (*MINUS, ("add", None)),
    operator.neg: MINUS,
    abs: (("abs", None),),
    round: (("round", None),),
    torch.sym_float: (("to_float", None),),
    torch.sym_int: (("trunc", None),),
    **{getattr(math, name): ((name, None),) for name in ("trunc", "floor", "ceil", *FUNCTIONS)},
    **{getattr(torch, f"_sym_{name}"): ((name, None),) for name in FUNCTIONS if hasattr(torch, f"_sym_{name}")},
    math.isnan: (("to_float", None), ("abs", None), ("float", math.inf), ("le", None), ("not", None)),
    math.isinf: (("to_float", None), ("abs", None), ("float", math.inf), ("eq", None)),
    math.isfinite: (("to_float", None), ("abs", None), ("float", math.inf), ("lt", None)),
}
EXTREMES: dict[Any, Program] = {torch.sym_max: (("max", None),), torch.sym_min: (("min", None),)}
COMPARISONS = frozenset({operator.gt, operator.lt, operator.ge, operator.le, operator.eq, operator.ne})
ITEM = frozenset({torch.Tensor.item, "item"})
READERS = ITEM | OPERATIONS.keys()


class NoFormula(Exception):
    """Raised where more than arithmetic on numbers at entry goes into a condition."""


class Formula:
    """One condition as a program for a guard, with the numbers that it is about as they are now."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.inputs: dict[Source, Any] = {}
        self.program: list[tuple[str, Any]] = []
        self.counting = policy.in_optimizer(vm.frames)  # what step counters hold may be read
        self.boxes = {value.node: value.source for value in vm.boxes if value.source}
        unknown = vm.builder.numbers.unknown  # where the user has said that a size decides nothing
        self.integers = {each.node: each.source for each in vm.numbers_in if each.source and not unknown(each.fake)}

    def read(self, what: Any) -> None:
        """Add to the program what it takes to compute a node or constant."""
        if type(what) in (int, float):
            self.program.append((type(what).__name__, what))
        elif not isinstance(what, Node) or what.kwargs:
            raise NoFormula
        elif what in self.integers:
            self.load(self.integers[what], self.integers[what].load(self.vm.roots))
        elif what.target in ITEM:
            (tensor,) = what.all_input_nodes
            if tensor in self.boxes:  # a float, which travels in a tensor: float_inputs.py
                self.load(contents(self.boxes[tensor]), self.vm.input_objects[tensor].item())
            else:
                self.count(tensor, what)
        elif what.target in EXTREMES:
            for arg in what.args:
                self.read(arg)
            mixed = what.meta["example_value"].__class__ is torch.SymFloat  # torch's makes a float of either
            self.program += (*EXTREMES[what.target], *((("to_float", None),) if mixed else ()))
        elif what.target in OPERATIONS:
            for arg in what.args:
                if self.counts(arg, what):
                    self.count(arg, what)
                else:
                    self.read(arg)
            self.program += OPERATIONS[what.target]
        else:
            raise NoFormula

    def load(self, source: Source, now: Any) -> None:
        """Add an input, which is `now` what is given, to the program."""
        self.inputs.setdefault(source, now)
        self.program.append(("load", list(self.inputs).index(source)))

    def counts(self, tensor: Any, comparison: Node) -> bool:
        """Return whether a tensor is a counter of integers that is compared with one itself, and rounds nothing."""
        real = self.vm.input_objects.get(tensor) if isinstance(tensor, Node) and self.counting else None
        integers = isinstance(real, torch.Tensor) and not (real.is_floating_point() or real.is_complex())
        return integers and comparison.target in COMPARISONS and type(comparison.args[1]) is int

    def count(self, tensor: Any, reader: Node) -> None:
        """Add what a counter holds where it is read: what it held at entry, and what has been added."""
        if not self.counting:
            raise NoFormula
        added = sum(increment(tensor, user) for user in tensor.users if user < reader)
        real = self.vm.input_objects.get(tensor)
        if real is None:
            self.read(float(made_as(tensor) + added))
            return
        source = next(value.source for value in self.vm.inputs if value.node is tensor)
        if source is None or real.numel() != 1 or real.is_complex() or real.device.type != "cpu":
            raise NoFormula
        self.load(Source("method", source, "item" if real.is_floating_point() else "__int__"), real.item())
        self.program += [("int", added), ("add", None)]


def contents(source: Source) -> Source:
    """Return where guards find a float as a number: what a scalar of NumPy holds is asked for as one already."""
    return source if source.how == "method" and source.arg == "item" else Source("method", source, "__float__")


def increment(tensor: Node, user: Node) -> int:
    """Return how much a use of a counter adds to it: 0 or 1. Raises NoFormula for other uses."""
    if user.target in READERS:
        return 0
    amount, scale = user.args[1] if len(user.args) == 2 else None, user.kwargs.get("alpha", 1)
    if isinstance(amount, Node) and not amount.users.keys() - {user}:
        amount = made_as(amount)
    if user.target in (operator.iadd, "add_", torch._foreach_add_) and amount == 1 and scale == 1:
        return 1
    raise NoFormula


def made_as(tensor: Node) -> float:
    """Return the one number that a node makes a tensor of. Raises NoFormula for other nodes."""
    value = tensor.args[0] if tensor.target is torch.tensor and len(tensor.args) == 1 else None
    if type(value) not in (int, float):
        raise NoFormula
    return value  # type: ignore[return-value]


def decide(vm: Machine, condition: Symbol | TensorNode) -> bool | None:
    """Return the truth of a condition on numbers at entry, guarded; None where it is another kind of condition."""
    formula = Formula(vm)
    try:
        formula.read(condition.node)
        answer = bool(run(formula.program, list(formula.inputs.values())))
    except (NoFormula, ArithmeticError, ValueError, TypeError):
        return None
    if formula.inputs:
        program = tuple(formula.program if answer else [*formula.program, ("not", None)])
        vm.guard(Source("globals"), "NUMBERS", (tuple(formula.inputs), (program,)))
    return answer
