"""Capture the likely side of a branch: no factorization has failed, nothing is nan or infinite, nothing is warned of.

`L, info = torch.linalg.cholesky_ex(x)`, `if info.any():`; `if (variance < least).any(): warnings.warn(...)`. The
graph checks that the likely side was the right one, as it does for branches that only raise (assertions.py).

A way that does nothing but drop a tensor (`if not padding.any(): padding = None`) spares work that changes nothing.
Programs pad always or never: what holds in the call that is captured is expected of those after it.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.bytecode.instruction import CALLS, Code
from torchdynamo.capture.frame import Frame
from torchdynamo.core.value import Symbol, TensorNode, Value
from torchdynamo.graph.constants import run
from torchdynamo.graph.raising_operators import name_of

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Node = torch.fx.Node
# Operators, and which of their results says of each matrix where it failed: nowhere, if it is 0.
STATUS: Mapping[Any, int] = {
    torch.linalg.cholesky_ex: 1,
    torch.linalg.inv_ex: 1,
    torch.linalg.solve_ex: 1,
    torch.linalg.lu_factor_ex: 2,
    torch.linalg.ldl_factor_ex: 2,
}
# Operators that ask of each element whether it is a number, and what they usually give.
USUAL: Mapping[str, bool] = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}
# What is asked of a status on the way to a truth.
QUESTIONS = frozenset(
    "all any bool count_nonzero eq ge getitem gt item le logical_not lt max min ne nonzero not_ sum to".split()
)
MOST = 8  # questions in a row


def likely_truth(vm: Machine, frame: Frame, value: Value, condition: str, target: int) -> bool | None:
    """Return the truth with which a branch goes the way that is seldom left; None if nothing is known of its ways."""
    if condition not in ("true", "false"):
        return None
    success = truth_of_success(value)
    if success is not None:
        return success
    if drops(frame.code, target, frame.pc + 1) or drops(frame.code, frame.pc + 1, target):
        return truth_now(vm, value)
    jump, straight = warns(frame, target), warns(frame, frame.pc + 1)
    return None if jump == straight else (condition == "true") != jump


def drops(code: Code, at: int, other: int) -> bool:
    """Return whether one way of a branch sets a variable to None, and then goes on as the other does."""
    first, second = code.instructions[at : at + 2]
    if first.op != "LOAD_CONST" or first.arg is not None or second.op != "STORE_FAST":
        return False
    following = code.instructions[at + 2]
    return at + 2 == other or (following.op == "JUMP" and code.targets[following.arg] == other)


def truth_now(vm: Machine, value: Value) -> bool | None:
    """Return the truth of a value in the call that is captured; None if it takes more than a little to compute."""
    if not isinstance(value, TensorNode):
        return None
    real = vm.builder.evaluate(value.node, lambda node: given(vm, node))
    return bool(real) if real is not None and real.numel() == 1 else None


def given(vm: Machine, node: Node) -> torch.Tensor | None:
    """Return the tensor that an input is in the call that is captured."""
    real = vm.input_objects.get(node)
    return real if type(real) in (torch.Tensor, torch.nn.Parameter) else None


def warns(frame: Frame, at: int) -> bool:
    """Return whether a frame calls `warnings.warn` from an instruction on, before it branches or makes other calls."""
    space, instructions, found = frame.globals.real, frame.code.instructions, None
    for inst in instructions[at : at + FAR]:
        if inst.op == "LOAD_GLOBAL":
            found = space.get(inst.arg)
        elif inst.op in ("LOAD_ATTR", "LOAD_METHOD") and found is warnings:
            found = warnings.warn if inst.arg == "warn" else None
        if found is warnings.warn:
            return True
        if inst.op in ENDING:
            return False
    return False


FAR = 24  # instructions
ENDING = CALLS | {"BRANCH", "BRANCH_KEEP", "JUMP", "RETURN", "RAISE", "RERAISE", "FOR_ITER"}


def truth_of_success(value: Value) -> bool | None:
    """Return the truth of a value if all factorizations that it asks about succeed; None if it asks anything else."""
    if not isinstance(value, (TensorNode, Symbol)):
        return None
    known: dict[Node, Any] = {}
    waiting, asked = [value.node], [value.node]
    while waiting:
        node = waiting.pop()
        status = status_of(node)
        if status is not None:
            known[node] = status
        elif node.op not in ("call_function", "call_method") or name_of(node.target) not in QUESTIONS:
            return None
        else:
            waiting += node.all_input_nodes
            asked += node.all_input_nodes
        if len(asked) > MOST:
            return None
    if not known:
        return None
    for node in sorted(set(asked) - known.keys()):
        known[node] = run(node, known)
    return bool(known[value.node])


def status_of(node: Node) -> torch.Tensor | None:
    """Return the status of a factorization that succeeded, or of elements that are numbers, if a node gives one."""
    usual = USUAL.get(name_of(node.target)) if node.op in ("call_function", "call_method") else None
    if usual is not None:
        found = node.meta["example_value"]
        return torch.full([1] * found.dim(), usual) if isinstance(found, torch.Tensor) else None
    made = node.args[0] if node.target is operator.getitem else None
    if not isinstance(made, Node) or made.op != "call_function" or STATUS.get(made.target) != node.args[1]:
        return None
    fake = node.meta["example_value"]
    known = all(type(size) is int and size for size in fake.shape)  # of no matrices, questions may raise
    return torch.zeros([*fake.shape], dtype=fake.dtype) if known else None
