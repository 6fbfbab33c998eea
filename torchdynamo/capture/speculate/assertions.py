"""Capture a branch one side of which only raises: `if not valid.all(): raise ValueError(...)`, `assert ok.all()`.

Capture goes on the other side, and what decides is noted: it becomes an output of the graph. Where that says otherwise
in a call, what the graph computed is thrown away and the frame runs from its start as it was written, which raises what
it raises. That is right as long as nothing can be noticed of the graph's run, which is seen when all of the graph is
known (`graph/deopt_safety.py`). The effects of the frame on objects come after the graph anyway.
"""

from __future__ import annotations

import torch

from torchdynamo.bytecode.flow import reachable, successors
from torchdynamo.bytecode.instruction import Code
from torchdynamo.bytecode.percode import PerCode
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.speculate import tensor_constants
from torchdynamo.capture.speculate.unlikely import likely_truth
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import Symbol, TensorNode, Value
from torchdynamo.graph.deopt_safety import Assertion

fails_early: PerCode[bool] = PerCode()  # functions that skip the body of an `if`, unless their caller is to raise
RAISING = frozenset({"RAISE", "RERAISE"})
LEAVING = frozenset({"RETURN", "YIELD"})


def truth_to_go_on(vm: Machine, frame: Frame, value: Value, condition: str, target: int) -> bool | None:
    """Return the truth with which the frame does not raise, if only running the graph can tell it; else None.

    Also that with which it does not go a way that is seldom gone.
    """
    truth = not_raising(vm, frame, frame.pc, condition, target)
    if truth is None and vm.may_begin_again:
        truth = likely_truth(vm, frame, value, condition, target)
    return truth if truth is not None and expect(vm, value, truth) else None


def not_raising(vm: Machine, frame: Frame, at: int, condition: str, target: int) -> bool | None:
    """Return the truth with which a branch does not raise, if it raises with the other; else None."""
    if not vm.may_begin_again or condition not in ("true", "false"):
        return None
    jump, straight = only_raises(frame.code, target), only_raises(frame.code, at + 1)
    straight = straight or bool(fails_early.get(frame.raw))
    if jump == straight or any(map(is_caught, vm.frames[:-1])):
        return None
    return (condition == "true") != jump


def result_to_go_on(vm: Machine) -> bool | None:
    """Return the result of the pending call (`if not all(...): raise`) with which the next branch does not raise."""
    frame, at, negated = vm.frames[-1], vm.frames[-1].pc + 1, False
    instructions = frame.code.instructions
    while instructions[at].op == "UNARY" and instructions[at].arg == "not":
        at, negated = at + 1, not negated
    if instructions[at].op != "BRANCH":
        return None
    condition, label = instructions[at].arg
    truth = not_raising(vm, frame, at, condition, frame.code.targets[label])
    return None if truth is None else truth != negated


def expect(vm: Machine, value: Value, truth: bool) -> bool:
    """Rest the capture on a truth that only running the graph can tell. Return whether the value is such a truth."""
    if not decides(vm, value):
        return False
    assert isinstance(value, (TensorNode, Symbol))
    if isinstance(value, Symbol):
        vm.builder.numbers.learn(value.fake if truth else torch.sym_not(value.fake))
    vm.checks.append(Assertion(value, truth, vm.effects.is_level()))
    return True


def decides(vm: Machine, value: Value) -> bool:
    """Return whether a value is one truth value, which only running the graph can tell."""
    if isinstance(value, Symbol):
        if vm.backwards:  # the frame would know it, too, of a number that both have
            return False
        return value.pytype is bool and symbols.unknown(vm, value) and not symbols.follows(vm, value)
    if not isinstance(value, TensorNode) or value.source is not None or torch._C._are_functorch_transforms_active():
        return False
    one = all(type(size) is int and size == 1 for size in value.fake.shape)
    return one and tensor_constants.evaluate(vm, value) is None


def only_raises(code: Code, start: int) -> bool:
    """Return whether the frame ends with an exception whichever way it goes on from an instruction."""
    known: dict[int, bool] = code.analyses.setdefault("only raises", {})
    if start not in known:
        next_ones = successors(code)

        def onward(index: int) -> tuple[int, ...]:
            raising = code.instructions[index].op in RAISING
            return catchers(code, index) if raising else next_ones[index]

        ends = {code.instructions[index].op for index in reachable([start], onward)}
        known[start] = not ends.isdisjoint(RAISING) and ends.isdisjoint(LEAVING)
    return known[start]


def catchers(code: Code, index: int) -> tuple[int, ...]:
    """Return the handlers that an exception raised at an instruction goes to: one or none.

    Those of `with` do not count.
    """
    region = code.lookup(index)
    if region is None or any(inst.op == "WITH_EXIT" for inst in code.instructions[region.handler :][:3]):
        return ()
    return (region.handler,)


def is_caught(frame: Frame) -> bool:
    """Return whether a function has a handler that may end what is raised in what it calls now."""
    handlers = catchers(frame.code, frame.pc)
    return bool(handlers) and not only_raises(frame.code, handlers[0])
