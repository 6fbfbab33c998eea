"""The backward of a custom `autograd.Function`, followed when its forward has been.

It runs later than the frame: by then globals, grad mode and gradients may be others. So a machine of its own follows
it, which knows nothing that the frame has read, and all that it came to rest on is looked at afterwards. If that may
have changed by the time it runs, it looks again then, and runs as it was written where something has, or where a branch
goes another way. A backward that acts on the program is not captured.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch.autograd.function import Function, once_differentiable

from torchdynamo.capture.functions.torch_autograd_contexts import (
    NotMadeAgain,
    check_made_once,
    lasting_fact,
    recipe_of,
)
from torchdynamo.capture.functions.torch_autograd_inliner import BackwardInliner, Call, UsersBackward
from torchdynamo.capture.functions.torch_autograd_objects import note_objects
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.wrap import class_attribute
from torchdynamo.core.naming import is_mortal
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Guard, Source, instance_attr
from torchdynamo.core.value import Known, TensorNode, Value
from torchdynamo.graph.backward_as_written import BackwardAsWritten
from torchdynamo.graph.custom_backward import BackwardPlan, BackwardVariant, give_own_backward, layout_of

ONCE = once_differentiable(lambda ctx: None).__code__
MOST_CHOICES = 4  # of gradients that are missing, for which backwards are captured


def users_backward(vm: Machine, call: Call) -> UsersBackward:
    """Return the function that autograd would call. A class method is given the class before the context."""
    cls = vm.known(call.cls, "class")
    name = "backward" if cls.vjp is Function.vjp else "vjp"
    fn = vm.getattr(call.cls, name)
    first: tuple[Value, ...] = ()
    raw = class_lookup(cls, name)
    if type(raw) is classmethod and type(raw.__func__) is types.FunctionType:
        fn, first = Known(raw.__func__, Source("attr", class_attribute(vm, cls, name), "__func__")), (call.cls,)
    if getattr(cls, "boxed_grads_call", False) or fn.__class__ is not Known:
        raise call.unfollowed()
    real, source = fn.obj, fn.source
    if type(real) is types.FunctionType and real.__code__ is ONCE and source is not None:
        vm.guard(source, "ID_MATCH", real)
        return UsersBackward(Known(vars(real)["__wrapped__"], instance_attr(source, "__wrapped__")), first, True)
    return UsersBackward(fn, first, False)


class FollowedBackward(NamedTuple):
    """Hold what was captured of a backward.

    ways: a variant for each choice of gradients that are there, and grad mode, if it asks for that. whole: all that may
    be asked for was captured. last: what followed it last. facts: what it has read. read: the objects that it reads.
    """

    ways: list[BackwardVariant]
    whole: bool
    last: BackwardInliner
    facts: dict[Any, Guard]
    read: dict[int, Value]

    def holds_always(self) -> bool:
        """Return whether what was captured holds whenever it runs."""
        return self.whole and not self.facts and not any(way.truths for way in self.ways)


def follow_backward(
    vm: Machine, call: Call, saved: Sequence[TensorNode], backward: UsersBackward, choices: Sequence[tuple[bool, ...]]
) -> FollowedBackward:
    """Capture a backward for choices of gradients that are there, at least for the first. Raises Break.

    One in which it is called itself is captured once: in there, it runs as it was written.
    """
    found = FollowedBackward([], False, BackwardInliner(vm, call, saved, choices[0], False), {}, {})
    if vm.known(call.cls, "class") in vm.backwards:
        return found

    def follow(there: tuple[bool, ...], grad: bool | None) -> None:
        nonlocal found
        last = BackwardInliner(vm, call, saved, there, grad)
        ways = [*found.ways, last.follow(backward)]
        found = found._replace(ways=ways, last=last, facts=found.facts | last.facts, read=found.read | last.brought)

    if not backward.once:
        with contextlib.suppress(Break, Raised):  # perhaps it asks for the mode: a body for each
            for there in choices:
                follow(there, None)
            return found._replace(whole=True)
        found = found._replace(ways=[], facts={})
    first, *others = product((False,) if backward.once else (False, True), choices)
    try:
        follow(first[1], first[0])
    except Raised:  # so it would if it came to that
        raise call.unfollowed() from None
    for grad, there in others:
        with contextlib.suppress(Break, Raised):
            follow(there, grad)
    return found._replace(whole=len(found.ways) == 1 + len(others))


def give_backward(vm: Machine, call: Call) -> list[Value]:
    """Return the results of a custom function as nodes that have its own backward."""
    attrs = vm.entity(call.context).attrs
    inputs = [arg for arg in call.args if isinstance(arg, TensorNode)]
    tensors = [each for each in call.results if isinstance(each, TensorNode)]
    saved = [each for each in passed_to_context(vm, attrs, "to_save") if isinstance(each, TensorNode)]
    dirty = positions(call, inputs, passed_to_context(vm, attrs, "dirty_tensors"))
    constant = positions(call, tensors, marked_results(vm, attrs, tensors))
    check_histories(vm, call, inputs, tensors, dirty)
    zeros = vm.truth(attrs["materialize_grads"]) if "materialize_grads" in attrs else True
    backward = users_backward(vm, call)
    smooth = [is_differentiable(each) and index not in constant for index, each in enumerate(tensors)]
    choices = [*product(*[(True,) if zeros else (True, False) if each else (False,) for each in smooth])]
    found = follow_backward(vm, call, saved, backward, choices[:MOST_CHOICES])
    note_objects(vm, found.read)
    written = None if found.holds_always() and len(choices) <= MOST_CHOICES else as_written(vm, call, found)
    groups = [[each.node for each in group] for group in (inputs, tensors, saved, found.last.kept)]
    plan = BackwardPlan(
        name=call.name,
        once=backward.once,
        zeros=zeros,
        dirty=dirty,
        constant=constant,
        formats=tuple(layout_of(each.node.meta["example_value"]) for each in tensors),
        written=written,
        ways=tuple(found.ways),
    )
    node, examples = give_own_backward(vm.builder, plan, groups, vm.position())
    vm.ops += 1
    made = iter([result_of(vm, node, index) for index in range(len(examples))])
    return [next(made) if isinstance(each, TensorNode) else each for each in call.results]


def as_written(vm: Machine, call: Call, found: FollowedBackward) -> BackwardAsWritten:
    """Return what runs where the captured backward does not hold. Raises Break if it could not be run then."""
    cls, saved = vm.known(call.cls, "class"), passed_to_context(vm, vm.entity(call.context).attrs, "to_save")
    args, results = ([isinstance(each, TensorNode) for each in group] for group in (call.args, call.results))
    try:
        varies = vm.builder.may_end and bool(vm.builder.numbers.entries)  # pieces for compilers have fixed sizes
        if varies or vm.builder.exporting or is_mortal(cls):
            raise NotMadeAgain
        facts = [lasting_fact(vm, fact) for fact in found.facts.values()]
        context = recipe_of(vm, call.context, saved, found.last.place)
        check_made_once(vm, context.objects)
        return BackwardAsWritten(cls, args, results, context, facts)
    except NotMadeAgain:
        raise call.unfollowed() from None


def result_of(vm: Machine, node: torch.fx.Node, index: int) -> TensorNode:
    """Return one result of a node, mostly the tensor that the forward returned, which has a history now."""
    item, example = vm.builder.getitem(node, index)
    value = vm.fakes[id(example)] = TensorNode(item, example, torch.Tensor)
    return value


def check_histories(
    vm: Machine, call: Call, inputs: list[TensorNode], tensors: list[TensorNode], dirty: tuple[int, ...]
) -> None:
    """Raise Break if a result is a tensor that the program held before: autograd changes its history in place."""
    for index in dirty:
        if inputs[index].node in vm.input_objects or all(each.fake is not inputs[index].fake for each in tensors):
            raise call.unfollowed()
    given = {id(each.fake) for each in inputs}
    if any(each.node in vm.input_objects and id(each.fake) not in given for each in tensors):
        raise call.unfollowed()


def is_differentiable(value: TensorNode) -> bool:
    """Return whether a tensor is of floating-point or complex numbers, and so may have a gradient."""
    smooth: bool = value.fake.is_floating_point() or value.fake.is_complex()
    return smooth


def passed_to_context(vm: Machine, attrs: dict[str, Value], name: str) -> list[Value]:
    """Return the values that were passed to a method of the context; none if it was not called."""
    return list(vm.iterate(attrs[name])) if name in attrs else []


def marked_results(vm: Machine, attrs: dict[str, Value], tensors: list[TensorNode]) -> list[Value]:
    """Return the results that are marked as not differentiable. Autograd takes no notice of other tensors there."""
    fakes = [each.fake for each in tensors]
    marked = passed_to_context(vm, attrs, "non_differentiable")
    return [each for each in marked if not isinstance(each, TensorNode) or any(each.fake is fake for fake in fakes)]


def positions(call: Call, among: list[TensorNode], values: list[Value]) -> tuple[int, ...]:
    """Return the positions of tensors in a list. Raises Break if one is not in it."""
    found = [
        next((i for i, each in enumerate(among) if isinstance(value, TensorNode) and each.fake is value.fake), None)
        for value in values
    ]
    if None in found:
        raise call.unfollowed()
    return tuple(index for index in found if index is not None)
