"""Follow the backward of a custom `autograd.Function`, by a machine and into a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import torch

from torchdynamo.capture.functions.torch_autograd_contexts import FILLED_BY_METHODS
from torchdynamo.capture.functions.torch_autograd_facts import TextOfProgram, default_dtype_read
from torchdynamo.capture.functions.torch_autograd_objects import copy_into
from torchdynamo.capture.interpreter import directly_called
from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ITERATE, Emitter, ends_graph, models, rebuilds
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Guard
from torchdynamo.core.value import NONE, Known, Lazy, Object, Symbol, TensorNode, Value, is_none
from torchdynamo.graph.custom_backward import BackwardVariant
from torchdynamo.graph.deopt_safety import stages


class BackwardContext(torch.autograd.function.FunctionCtx):
    """Stand for `ctx`, the context of a custom function."""


@rebuilds(BackwardContext)
def rebuild_context(emit: Emitter, entity: Entity) -> None:
    """Restart the capture before the call: a context that outlives it would have to be the real one."""
    raise Restart(entity.born - 1)


@models(BackwardContext, ".saved_tensors")
def saved_tensors(vm: Machine, ctx: Object) -> Value:
    return vm.entity(ctx).attrs.get("to_save", Known(()))


for _name in {*dir(torch._C._FunctionBase)} - {*dir(BackwardContext)} - {"saved_tensors", "needs_input_grad"}:
    models(BackwardContext, "." + _name)(ends_graph("unsupported attribute", name=_name, type="ctx"))


class Call(NamedTuple):
    """Describe a call of `apply` whose forward has been inlined."""

    name: str
    cls: Value
    args: Sequence[Value]
    results: Sequence[Value]
    context: Object

    def unfollowed(self) -> Break:
        """Return the Break for a backward that cannot be captured."""
        return Break("autograd function", name=self.name)


class UsersBackward(NamedTuple):
    """Describe the function that autograd would call: what it is given first, and whether it can be differentiated."""

    fn: Value
    first: tuple[Value, ...]
    once: bool


class BackwardInliner:
    """Inline the backward of one call, by a machine and into a graph of its own."""

    def __init__(
        self, vm: Machine, call: Call, saved: Sequence[TensorNode], there: Sequence[bool], grad: bool | None
    ) -> None:
        self.outer, self.call, self.grad = vm, call, grad  # the grad mode it is for; None: either
        self.builder = vm.builder.inner()
        self.vm: Machine = type(vm)(self.builder, vm.roots)
        self.vm.may_begin_again = True  # as it was written
        self.vm.backwards = (*vm.backwards, vm.known(call.cls, "class"))
        self.saved: dict[int, Value] = {}  # by stand-in: what `saved_tensors` gives
        self.moved: dict[int, Value] = {}  # by stand-in or number of the frame: what it is among the attributes
        self.brought: dict[int, Value] = {}  # by reference in the frame: copies of objects
        self.given = count()
        self.places: dict[torch.fx.Node, int] = {}
        self.kept: list[TensorNode | Symbol] = []
        self.facts: dict[Any, Guard] = {}  # what the backward has read that may change before it runs
        self.there = tuple(there)
        own = iter(there)
        self.grads: list[Value] = [
            self.gradient(each, next(own)) if isinstance(each, TensorNode) else NONE for each in call.results
        ]
        for each in saved:
            self.saved[id(each.fake)] = self.enter(each, "saved")
        self.context = self.vm.new(BackwardContext)
        attrs = vm.entity(call.context).attrs
        given = {name: self.bring(value) for name, value in attrs.items() if name not in FILLED_BY_METHODS}
        if "to_save" in attrs:
            given["to_save"] = self.vm.make_tuple([self.bring_saved(each) for each in vm.iterate(attrs["to_save"])])
        self.vm.effects.write_all(self.vm.entity(self.context), given)

    def gradient(self, result: TensorNode, there: bool) -> Value:
        """Return the gradient of one result as an argument of the backward, or None if it is missing."""
        if there:
            given = self.enter(result, "grad", True)
            if self.grad and isinstance(given, TensorNode):  # where gradients may have histories of their own
                given.fake.requires_grad_()
            return given
        next(self.given)
        return NONE

    def enter(self, value: TensorNode | Symbol, hint: str, gradient: bool = False) -> Value:
        """Make an argument of the graph of the backward, like a value of the frame."""
        node = self.builder.argument(hint, value.fake, gradient)
        self.places[node] = next(self.given)
        if gradient or self.is_result(value):
            self.vm.later_histories.add(node)
        return type(value)(node, node.meta["example_value"], value.pytype)

    def is_result(self, value: TensorNode | Symbol) -> bool:
        """Return whether a tensor is a result: autograd makes another object of one that was saved."""
        return any(isinstance(each, TensorNode) and each.fake is value.fake for each in self.call.results)

    def bring_saved(self, value: Value) -> Value:
        """Return what `saved_tensors` gives for what was saved, a tensor or None."""
        return self.saved[id(value.fake)] if isinstance(value, TensorNode) else self.bring(value)

    def bring(self, value: Value) -> Value:
        """Return what the forward stored on the context as a value of the backward, which must find it as it is now."""
        if isinstance(value, (TensorNode, Symbol)):
            known = self.moved.get(id(value.fake))
            if known is None:
                self.kept.append(value)
                known = self.enter(value, "kept")
                if not self.is_result(value):
                    known = self.saved.get(id(value.fake), known)
                self.moved[id(value.fake)] = known
            return known
        if isinstance(value, Known):
            return value
        if isinstance(value, Lazy):
            return self.bring(self.outer.look(value))
        if isinstance(value, Object):
            return self.bring_object(value)
        raise self.call.unfollowed()

    def bring_object(self, value: Object) -> Value:
        """Return an object that the forward stored, as it is; one that was there before the frame can only be moved."""
        entity = self.outer.entity(value)
        if value.ref in self.brought:
            return self.brought[value.ref]
        if issubclass(value.pytype, tuple):
            items = [self.bring(item) for item in ITERATE[tuple](self.outer, value)]
            return self.brought.setdefault(value.ref, self.vm.new(value.pytype, items))
        if entity.source is not None:
            return Lazy(value.pytype, entity.source)
        unusual = id(value.pytype) in self.outer.made_classes
        if not unusual and all(each.value.ref != value.ref for each in self.outer.mortals):
            copied = copy_into(self.vm, entity, self.bring, self.brought)
            if copied is not None:
                return copied
        raise self.call.unfollowed()

    def follow(self, backward: UsersBackward) -> BackwardVariant:
        """Inline the backward into a graph."""
        vm, call = self.vm, self.call
        vm.grad_mode_unknown = self.grad is None
        mark = vm.effects.mark()
        with torch.set_grad_enabled(bool(self.grad)), torch._C._DisableAutocast():
            try:
                answer = vm.call(backward.fn, [*backward.first, self.context, *self.grads], {})
                read = any((vm.inputs, vm.boxes, vm.numbers_in, vm.objects_in))
                acts = read or bool(vm.effects.net(mark, (EffectKind.ASSUMPTION,)))
            except Break as why:
                why.inner = directly_called(self.outer)  # frames of the backward are none to stop in
                raise
            finally:
                vm.effects.leave_process()
        items = list(vm.iterate(answer)) if issubclass(answer.pytype, tuple) else [answer]
        if acts or vm.may_raise or stages(self.builder.graph, vm.checks):
            raise call.unfollowed()
        self.rest_on()
        return self.finish(items)

    def rest_on(self) -> None:
        """Give the frame the guards of the backward that are about code; the others are for when it runs."""
        if self.vm.told_apart:
            raise self.call.unfollowed()
        text = TextOfProgram(self.vm)
        for key, guard in self.vm.guards.items():
            facts = self.outer.guards if text.has(guard) else self.facts
            facts.setdefault(key, guard)

    def place(self, value: TensorNode | Symbol) -> int:
        """Return the position of a value that attributes of the context lead to among the values kept."""
        return next(index for index, each in enumerate(self.kept) if each.fake is value.fake)

    def finish(self, items: list[Value]) -> BackwardVariant:
        """Close the graph of the backward, given its results: one gradient for each argument of `apply`."""
        args = self.call.args
        wanted, more = items[: len(args)], items[len(args) :]
        fits = len(wanted) == len(args) and all(map(is_none, more))
        if not fits or not all(map(may_be_gradient, args, wanted)):
            raise self.call.unfollowed()
        conditions = [check.value.node for check in self.vm.checks]
        pairs = [grad for arg, grad in zip(args, wanted) if isinstance(arg, TensorNode)]
        outputs = [grad.node for grad in pairs if isinstance(grad, TensorNode)]
        numbers = count()
        gives = tuple(next(numbers) if isinstance(grad, TensorNode) else -1 for grad in pairs)
        body = self.builder.as_body([*outputs, *conditions], own_leaves=True)
        if body is None:
            raise self.call.unfollowed()
        for guard in default_dtype_read(body.graph):
            self.facts[guard.source, guard.kind] = guard
        takes = tuple(self.places[node] for node in body.graph.find_nodes(op="placeholder"))
        truths = tuple(check.truth for check in self.vm.checks)
        return BackwardVariant(there=self.there, grad=self.grad, body=body, takes=takes, gives=gives, truths=truths)


def may_be_gradient(arg: Value, grad: Value) -> bool:
    """Return whether a value can be the gradient of this argument."""
    return is_none(grad) or (isinstance(grad, TensorNode) and isinstance(arg, TensorNode))
