"""Branches on tensors' values captured as one operator with both ways in it, on request (`config.capture_branches`).

Each way is followed up to where the two meet, or to the frame's end. There a variable, or the result, that is another
tensor on one way than on the other becomes a result of `cond`. Ways that do more than compute tensors of the same
metadata leave the branch as it is: the graph ends there.

What a way leaves alone (`if found: x = x * 2`) is an object that existed, and a copy of it comes out of the operator.
So nobody may notice: where such a copy leaves the frame, is compared or a key, is asked for what only it has (place in
memory, attributes, history of gradients), or memory that it stands for is written to, the frame is captured again
without it (`Assumption.COPIES`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx

from torchdynamo.bytecode.flow import reachable, successors
from torchdynamo.bytecode.instruction import Code
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import FINISHED, run_up_to
from torchdynamo.capture.speculate import tensor_constants
from torchdynamo.capture.speculate.bodies import follow_body
from torchdynamo.capture.torch import symbols
from torchdynamo.core.policy import OWN
from torchdynamo.core.signals import Assumption
from torchdynamo.core.value import ABSENT, Known, Lazy, Object, Symbol, TensorNode, Value
from torchdynamo.graph.torch_compat import is_layered

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Node = torch.fx.Node
NO_MEETING = -1  # both ways return


class Way(NamedTuple):
    """One way, as it stands where the two meet: its nodes, live variables, stack, and what it returns if it does."""

    nodes: list[Node]
    locals: dict[str, Value]
    stack: list[Value]
    result: Value


class NotAnOperator(Exception):
    """Raised where a branch cannot become an operator."""


def go_both_ways(vm: Machine, frame: Frame, value: Value, starts: Sequence[int]) -> int:
    """Capture both ways of a branch, the one for true first.

    Returns the instruction at which they meet, FINISHED if both return. Raises NotAnOperator.
    """
    meeting = where_ways_meet(frame.code, frame.pc)
    if meeting is None:
        raise NotAnOperator
    asked = as_condition(vm, value)
    assert isinstance(asked, (TensorNode, Symbol))
    merged = merge(vm, asked, [follow_way(vm, frame, start, meeting) for start in starts])
    frame.locals.clear()
    frame.locals.update(merged.locals)
    frame.stack[:] = merged.stack
    if meeting == NO_MEETING:
        frame.result = merged.result
        return FINISHED
    return meeting


def is_unknown(vm: Machine, value: Value) -> bool:
    """Return whether a value is one truth, which only running the graph can tell."""
    if torch._C._are_functorch_transforms_active():
        return False
    if isinstance(value, Symbol):
        return value.pytype is bool and symbols.unknown(vm, value) and not symbols.follows(vm, value)
    if not isinstance(value, TensorNode) or value.pytype is not torch.Tensor:
        return False
    return value.fake.numel() == 1 and tensor_constants.evaluate(vm, value) is None


def as_condition(vm: Machine, value: Value) -> Value:
    """Return a truth value as operators take it: a bool, in a tensor without dimensions."""
    if isinstance(value, TensorNode) and value.fake.dtype is not torch.bool:
        value = vm.emit("call_method", "ne", [value, Known(0)], {})
    if isinstance(value, TensorNode) and value.fake.dim():
        value = vm.emit("call_method", "reshape", [value, Known(())], {})
    return value


def where_ways_meet(code: Code, at: int) -> int | None:
    """Return the first instruction that both ways of a branch come to; NO_MEETING if both return before.

    Ways that raise do not count. None if a way comes back to the branch, or yields.
    """
    known: dict[int, int | None] = code.analyses.setdefault("meetings", {})
    if at not in known:
        known[at] = find_meeting(code, at)
    return known[at]


def find_meeting(code: Code, at: int) -> int | None:
    """Return what `where_ways_meet` does, computed."""
    onward = successors(code)
    ends = {index for index, each in enumerate(code.instructions) if each.op == "RETURN"} | {at}
    ways = [reachable([start], onward.__getitem__, frozenset([at])) for start in onward[at]]
    meetings = []
    for each in ways[0] & ways[1]:
        between = reachable(onward[at], onward.__getitem__, frozenset([each]))
        if between.isdisjoint(ends):
            meetings.append((len(between), each, between))
    _, meeting, between = min(meetings, default=(0, NO_MEETING, ways[0] | ways[1]))
    if any(code.instructions[each].op == "YIELD" for each in between):
        return None
    comes_back = any(at in onward[each] for each in between)
    return None if meeting == NO_MEETING and comes_back else meeting


def follow_way(vm: Machine, frame: Frame, start: int, meeting: int) -> Way:
    """Execute a frame from one instruction to another, or to its end, and put it back. Raises NotAnOperator."""
    run = functools.partial(run_up_to, vm, frame, meeting)
    nodes, result, variables, stack = followed_apart(vm, frame, start, run)
    if (result is ABSENT) == (meeting == NO_MEETING):
        raise NotAnOperator
    live = live_locals(frame.code, meeting) if meeting != NO_MEETING else frozenset()
    there = {name: value for name, value in variables.items() if name in live}
    return Way(nodes, there, stack if meeting != NO_MEETING else [], result)


def followed_apart(
    vm: Machine, frame: Frame, start: int, run: Callable[[], Value]
) -> tuple[list[Node], Value, dict[str, Value], list[Value]]:
    """Execute a frame from an instruction on, and put it back. Raises NotAnOperator.

    Returns the nodes that were added, what `run` has returned, and the variables and the stack as they were then.
    """
    before = dict(frame.locals), list(frame.stack), dict(frame.cells), list(frame.handling), dict(frame.loops)
    here = frame.pc, len(frame.path), vm.step, frame.level, vm.repeats
    frame.level, frame.pc, vm.repeats = -1, start, None
    try:
        nodes, result = follow_body(vm, run, "in one way of a branch")
        if frame.cells != before[2] or frame.handling != before[3]:
            raise NotAnOperator
        return nodes, result, dict(frame.locals), list(frame.stack)
    finally:
        frame.pc, length, vm.step, frame.level, vm.repeats = here
        del frame.path[length:]
        frame.locals.clear()
        frame.locals.update(before[0])
        frame.stack[:], frame.cells, frame.handling, frame.loops = before[1:]


def merge(vm: Machine, asked: TensorNode | Symbol, ways: Sequence[Way]) -> Way:
    """Put one operator in place of two ways. Return how the frame stands after it. Raises NotAnOperator."""
    yes, no = ways
    if yes.locals.keys() != no.locals.keys() or len(yes.stack) != len(no.stack):
        raise NotAnOperator
    for name, a, b in [(name, yes.locals[name], no.locals[name]) for name in yes.locals]:
        if Lazy in (a.__class__, b.__class__) and a is not b:  # only one way has looked at it
            yes.locals[name], no.locals[name] = (vm.look(each) if each.__class__ is Lazy else each for each in (a, b))
    pairs = [*zip(yes.stack, no.stack), *((yes.locals[name], no.locals[name]) for name in yes.locals)]
    pairs.append((yes.result, no.result))
    differing: dict[tuple[int, int], tuple[TensorNode, TensorNode]] = {}
    for a, b in pairs:
        differing |= {(id(x), id(y)): (x, y) for x, y in that_differ(vm, a, b)}
    made: dict[tuple[int, int], Value] = {}
    if differing:
        sides = [results_of(vm, way.nodes, [pair[at] for pair in differing.values()]) for at, way in enumerate(ways)]
        parts = [(way.nodes, nodes) for way, (nodes, _) in zip(ways, sides)]
        node, _ = vm.builder.choose(asked.node, parts, vm.position())
        vm.ops += 1
        for at, (key, (a, b)) in enumerate(differing.items()):
            item, example = vm.builder.getitem(node, at)
            if layout(example) != layout(a.fake):
                raise NotAnOperator
            made[key] = TensorNode(item, example, torch.Tensor)
            if any(copied[at] for _, copied in sides):
                vm.copies[id(example)] = (example, a.fake, b.fake)
    else:
        for way in reversed(ways):
            for node in reversed(way.nodes):
                vm.builder.graph.erase_node(node)
    names = {name: one(vm, yes.locals[name], no.locals[name], made) for name in yes.locals}
    stack = [one(vm, a, b, made) for a, b in zip(yes.stack, no.stack)]
    return Way([], names, stack, one(vm, yes.result, no.result, made))


def that_differ(vm: Machine, a: Value, b: Value) -> Iterator[tuple[TensorNode, TensorNode]]:
    """Yield the tensors, also in tuples, that differ between two values. Raises NotAnOperator for other differences."""
    if a is b or (a.__class__ is Known and b.__class__ is Known and vm.identical(a, b)):
        return
    if isinstance(a, TensorNode) and isinstance(b, TensorNode):
        if a.fake is b.fake:
            return
        if layout(a.fake) != layout(b.fake) or a.pytype is not torch.Tensor or b.pytype is not torch.Tensor:
            raise NotAnOperator
        yield a, b
    elif isinstance(a, Object) and isinstance(b, Object) and a.pytype is b.pytype is tuple:
        first, second = list(vm.iterate(a)), list(vm.iterate(b))
        if len(first) != len(second):
            raise NotAnOperator
        for x, y in zip(first, second):
            yield from that_differ(vm, x, y)
    elif not (isinstance(a, Object) and isinstance(b, Object) and a.ref == b.ref):
        raise NotAnOperator


def one(vm: Machine, a: Value, b: Value, made: Mapping[tuple[int, int], Value]) -> Value:
    """Return the value that stands for two which differ in nothing but the tensors that were made for these."""
    if isinstance(a, Object) and isinstance(b, Object) and a.ref != b.ref:
        return vm.make_tuple([one(vm, x, y, made) for x, y in zip(vm.iterate(a), vm.iterate(b))])
    return made.get((id(a), id(b)), a)


def chosen(vm: Machine, op: str, item: Value, best: Value) -> Value | None:
    """Return `item if item op best else best` of tensors with one element, a copy of either.

    None where they differ in more than their values, have gradients, or something has told such a copy.
    """
    if not isinstance(item, TensorNode) or not isinstance(best, TensorNode):
        return None
    if item.fake is best.fake or Assumption.COPIES in vm.builder.numbers.dropped:
        return None
    if is_layered((item.fake, best.fake)) or item.fake.device.type == "meta":  # an error of torch's
        return None
    try:
        like = layout(item.fake)
        plain = item.pytype is best.pytype is torch.Tensor and like == layout(best.fake)
    except NotAnOperator:
        return None
    if not plain or item.fake.requires_grad or item.fake.dim() or item.fake.storage_offset():
        return None
    made = vm.emit("call_function", OWN.where, [vm.binary(op, item, best), item, best], {})
    assert isinstance(made, TensorNode)
    vm.copies[id(made.fake)] = (made.fake, item.fake, best.fake)
    return made


def results_of(vm: Machine, nodes: list[Node], values: Sequence[TensorNode]) -> tuple[list[Node], list[bool]]:
    """Return the nodes that are a way's results, and which of them are copies: of what was there, or is one already.

    Copies are added to the nodes of the way.
    """
    inside, seen = set(nodes), {id(None)}
    outside = [each.meta["example_value"] for node in nodes for each in node.all_input_nodes if each not in inside]
    seen |= {memory(each) for each in outside if isinstance(each, torch.Tensor)}
    results, copied = [], []
    for value in values:
        copied.append(value.node not in inside or memory(value.fake) in seen)
        if copied[-1]:
            if Assumption.COPIES in vm.builder.numbers.dropped:
                raise NotAnOperator
            copy = vm.emit("call_method", "clone", [value], {})
            assert isinstance(copy, TensorNode)
            nodes.append(copy.node)
            results.append(copy.node)
        else:
            results.append(value.node)
        seen.add(memory(value.fake))
    return results, copied


def layout(fake: Any) -> tuple[Any, ...]:
    """Return what has to be the same of two tensors."""
    if fake.layout is not torch.strided or fake.is_conj() or fake.is_neg() or type(fake).__torch_dispatch__ is None:
        raise NotAnOperator
    sizes = (*map(str, fake.shape), *map(str, fake.stride()), str(fake.storage_offset()))
    return fake.dtype, fake.device, fake.requires_grad, sizes


def memory(fake: Any) -> int:
    """Return a key of the memory of a fake tensor."""
    return int(fake.untyped_storage()._cdata)


def were_noticed(vm: Machine, outputs: Sequence[Node]) -> bool:
    """Return whether a copy leaves the frame beside what it stands for, or that may have been written to."""
    if any(vm.builder.record.wrote_to(each.untyped_storage()) for group in vm.copies.values() for each in group):
        return True
    stands = {memory(group[0]): [memory(each) for each in group[1:]] for group in vm.copies.values()}
    given = {memory(each) for each in tensors(vm.builder.graph.find_nodes(op="placeholder"))}
    seen = set[int]()
    for leaving in {memory(each) for each in tensors(outputs)}:
        found = reachable([leaving], lambda each: stands.get(each, ()))
        if leaving in stands and not found.isdisjoint(given | seen):
            return True
        if not found.isdisjoint(seen):
            return True
        seen |= found
    return False


def tensors(nodes: Iterable[Node]) -> Iterator[Any]:
    """Yield the fake tensors among what nodes give."""
    examples = (node.meta.get("example_value") for node in nodes)
    return (each for each in examples if isinstance(each, torch.Tensor) and each.layout is torch.strided)
