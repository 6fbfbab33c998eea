"""`while` loops on tensors' values captured as one operator, on request (`config.capture_branches`).

The loop's test stands before it and once more at the end of its body, or at its top alone, and each turn comes back to
it: that depends on the Python. So what is carried from turn to turn is the truth that the test gave, and the variables
that a turn binds. These have to be tensors that keep their metadata, without gradients. A loop that takes no turn
leaves variables as they are, so its results are copies as branches.py has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch

from torchdynamo.bytecode.flow import Loop, loop_at, loops, reachable, rebound, successors
from torchdynamo.bytecode.instruction import Code
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import run_up_to
from torchdynamo.capture.speculate.branches import (
    NotAnOperator,
    as_condition,
    followed_apart,
    go_both_ways,
    is_unknown,
    layout,
    results_of,
)
from torchdynamo.core.signals import Assumption, Break, Raised
from torchdynamo.core.value import ABSENT, Lazy, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


class ValueLoop(NamedTuple):
    """A `while` loop: the first instruction of its body, the test that ends each turn, and what follows the loop."""

    start: int
    test: int
    after: int
    bound: frozenset[str]  # variables that a turn binds


def loop_behind(code: Code, at: int, start: int, after: int) -> ValueLoop | None:
    """Return the loop that a branch enters at `start`, or else goes on after it; None if it enters none."""
    loop = loop_at(code, start)
    found = repeating_test(code, loop, after) if loop is not None and at not in loop.body else None
    around = [each for each in loops(code) if at in each.body]
    if found is not None or not around:
        return found
    return coming_back(code, min(around, key=lambda each: len(each.body)), at, start, after)


def repeating_test(code: Code, loop: Loop, after: int) -> ValueLoop | None:
    """Return a loop whose test stands before it and once more at its end; None if it has no such."""
    test, leaving = test_of(code, loop)
    if test is None:
        return None
    ways = successors(code)
    if leaving != after and after not in reachable([leaving], lambda each: ways[each][:1]):
        return None
    return ValueLoop(loop.start, test, after, bound_in(code, loop))


def coming_back(code: Code, loop: Loop, at: int, start: int, after: int) -> ValueLoop | None:
    """Return a loop whose turns come back to one test in it; None if it goes on elsewhere than from there."""
    if start not in loop.body or after in loop.body:
        return None
    ways = successors(code)
    others = [to for index in loop.body - {at} for to in ways[index] if to not in loop.body]
    outside = reachable(others, ways.__getitem__)  # ways that raise do not count
    if any(index in loop.body or code.instructions[index].op == "RETURN" for index in outside):
        return None
    return ValueLoop(start, at, after, bound_in(code, loop))


def bound_in(code: Code, loop: Loop) -> frozenset[str]:
    """Return the variables that a loop binds."""
    stored = {each.arg for index, each in enumerate(code.instructions) if index in loop.body and each.op in BINDING}
    return frozenset(stored & rebound(code))


def test_of(code: Code, loop: Loop) -> tuple[int | None, int]:
    """Return the test at the end of a loop, which goes on if true, and what follows the loop; None if it has no such.

    The test is a branch back, or a branch out of the loop before a jump back.
    """
    last, before = code.instructions[loop.end], code.instructions[loop.end - 1]
    if last.op == "BRANCH" and last.arg[0] == "true" and code.targets[last.arg[1]] == loop.start:
        return loop.end, loop.end + 1
    if loop.start == loop.end or last.op != "JUMP" or before.op != "BRANCH" or before.arg[0] != "false":
        return None, loop.end + 1
    return loop.end - 1, code.targets[before.arg[1]]


BINDING = ("STORE_FAST", "DELETE_FAST")


def capture_branch(vm: Machine, frame: Frame, value: Value, condition: str, target: int) -> int | None:
    """Capture a branch with all that comes of it, if that was asked for and the value is not known; else return None.

    Returns the instruction to go on at, or FINISHED. Raises Break if more than tensors would have to be computed.
    """
    asked = vm.builder.branches and condition in ("true", "false") and type(frame.locals) is dict
    if not asked or not is_unknown(vm, value):
        return None
    starts = (target, frame.pc + 1) if condition == "true" else (frame.pc + 1, target)
    try:
        loop = loop_behind(frame.code, frame.pc, *starts)
        return go_both_ways(vm, frame, value, starts) if loop is None else go_round(vm, frame, value, loop)
    except (NotAnOperator, Raised, Break):
        raise Break("data-dependent branch", type="TensorVariable") from None


def go_round(vm: Machine, frame: Frame, value: Value, loop: ValueLoop) -> int:
    """Capture a loop, and bind the variables that it binds. Return what follows it. Raises NotAnOperator."""
    if Assumption.COPIES in vm.builder.numbers.dropped:
        raise NotAnOperator
    code = frame.code
    names = sorted(loop.bound & (live_locals(code, loop.start) | live_locals(code, loop.after)))
    first = {name: tensor_in(vm, frame, name) for name in names}
    asked = as_condition(vm, value)
    if not isinstance(asked, TensorNode):
        raise NotAnOperator
    given = [asked, *first.values()]
    standing = [vm.emit("call_method", "clone", [each], {}) for each in given]
    if not all(isinstance(each, TensorNode) and not each.fake.requires_grad for each in standing):
        raise NotAnOperator
    stand = [each for each in standing if isinstance(each, TensorNode)]
    again = vm.emit("call_method", "clone", [stand[0]], {})
    assert isinstance(again, TensorNode)

    def turn() -> Value:
        frame.locals.update(zip(names, stand[1:]))
        result = run_up_to(vm, frame, loop.test)
        if result is not ABSENT:
            raise NotAnOperator
        return as_condition(vm, frame.stack.pop())

    depth = len(frame.stack)
    nodes, truth, there, stack = followed_apart(vm, frame, loop.start, turn)
    assert isinstance(truth, TensorNode)
    made = [truth, *(tensor_of(there, name) for name in names)]
    fits = all(layout(a.fake) == layout(b.fake) for a, b in zip(made, given))
    if len(stack) != depth or not fits or any(each.fake.requires_grad for each in made):
        raise NotAnOperator
    results, _ = results_of(vm, nodes, made)
    parts = [([again.node], [again.node]), (nodes, results)]
    position = vm.position()
    node, examples = vm.builder.repeat([each.node for each in given], [each.node for each in stand], parts, position)
    vm.ops += 1
    for at in range(1, len(examples)):
        item, example = vm.builder.getitem(node, at)
        frame.locals[names[at - 1]] = TensorNode(item, example, torch.Tensor)
        vm.copies[id(example)] = (example, given[at].fake)
    return loop.after


def tensor_in(vm: Machine, frame: Frame, name: str) -> TensorNode:
    """Return the tensor that a variable holds. Raises NotAnOperator if it is anything else."""
    value = frame.locals.get(name, ABSENT)
    return tensor_of({name: vm.look(value) if isinstance(value, Lazy) else value}, name)


def tensor_of(values: Mapping[str, Value], name: str) -> TensorNode:
    """Return a plain tensor among values. Raises NotAnOperator if there is anything else."""
    value = values.get(name, ABSENT)
    if not isinstance(value, TensorNode) or value.pytype is not torch.Tensor:
        raise NotAnOperator
    return value
