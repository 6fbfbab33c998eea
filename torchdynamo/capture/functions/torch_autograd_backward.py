"""The backward of a custom `autograd.Function`, followed when its forward has been.

It runs later than the frame: by then globals, grad mode and gradients may be others. So a machine of its own follows
it, which knows nothing that the frame has read, and all that it came to rest on is looked at afterwards. If that may
have changed by the time it runs, it looks again then, and runs as it was written where something has. A backward that
acts on the program is not captured.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from itertools import count, product
from typing import Any, NamedTuple

import torch
from torch.autograd.function import Function, once_differentiable

from torchdynamo.capture.functions.torch_autograd_contexts import NotMadeAgain, lasting_fact, recipe_of
from torchdynamo.capture.functions.torch_autograd_objects import copy_into, note_objects
from torchdynamo.capture.interpreter import directly_called
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ITERATE, Emitter, ends_graph, models, rebuilds
from torchdynamo.capture.vm.wrap import class_attribute
from torchdynamo.core.naming import is_mortal
from torchdynamo.core.policy import is_code
from torchdynamo.core.signals import Break, Raised, Restart
from torchdynamo.core.source import Guard, Roots, Source, instance_attr
from torchdynamo.core.value import ABSENT, NONE, Known, Lazy, Object, Symbol, TensorNode, Value, is_none
from torchdynamo.graph.backward_as_written import BackwardAsWritten

ONCE = once_differentiable(lambda ctx: None).__code__
MAX_OPTIONAL = 2  # results whose gradients may be missing: each doubles the number of backwards


class BackwardContext(torch.autograd.function.FunctionCtx):
    """Stand for `ctx`, the context of a custom function."""


@rebuilds(BackwardContext)
def rebuild_context(emit: Emitter, entity: Entity) -> None:
    """Restart the capture before the call: a context that outlives it would have to be the real one."""
    raise Restart(entity.born - 1)


@models(BackwardContext, ".saved_tensors")
def saved_tensors(vm: Machine, ctx: Object) -> Value:
    return vm.entity(ctx).attrs.get("to_save", Known(()))


OURS = {"saved_tensors", "needs_input_grad"}


for _name in {*dir(torch._C._FunctionBase)} - {*dir(BackwardContext)} - OURS:
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


class TracedBackward(NamedTuple):
    """Hold the graph of a backward, which of the available values it takes, and which inputs it gives gradients."""

    body: Any
    takes: tuple[int, ...]
    gives: tuple[int, ...]


class BackwardInliner:
    """Inline the backward of one call, by a machine and into a graph of its own."""

    def __init__(
        self, vm: Machine, call: Call, saved: Sequence[TensorNode], there: Sequence[bool], grad: bool | None
    ) -> None:
        self.outer, self.call, self.grad = vm, call, grad  # the grad mode it is for; None: either
        self.builder = vm.builder.inner()
        self.vm: Machine = type(vm)(self.builder, vm.roots)
        self.moved: dict[int, Value] = {}  # by stand-in or number of the frame: what it is here
        self.brought: dict[int, Value] = {}  # by reference in the frame: copies of objects
        self.given = count()
        self.places: dict[torch.fx.Node, int] = {}
        self.kept: list[TensorNode | Symbol] = []
        self.facts: dict[Any, Guard] = {}  # what the backward has read that may change before it runs
        own = iter(there)
        self.grads: list[Value] = [
            self.gradient(each, next(own)) if isinstance(each, TensorNode) else NONE for each in call.results
        ]
        for each in saved:
            self.moved[id(each.fake)] = self.enter(each, "saved")

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
        if gradient or any(isinstance(each, TensorNode) and each.fake is value.fake for each in self.call.results):
            self.vm.later_histories.add(node)
        return type(value)(node, node.meta["example_value"], value.pytype)

    def bring(self, value: Value) -> Value:
        """Return what the forward stored on the context as a value of the backward, which must find it as it is now."""
        if isinstance(value, (TensorNode, Symbol)):
            known = self.moved.get(id(value.fake))
            if known is None:
                self.kept.append(value)
                known = self.moved[id(value.fake)] = self.enter(value, "kept")
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

    def follow(self, backward: UsersBackward) -> TracedBackward:
        """Inline the backward into a graph."""
        vm, call = self.vm, self.call
        vm.grad_mode_unknown = self.grad is None
        context = vm.new(BackwardContext)
        given = {name: self.bring(value) for name, value in self.outer.entity(call.context).attrs.items()}
        vm.effects.write_all(vm.entity(context), given)
        mark = vm.effects.mark()
        with torch.set_grad_enabled(bool(self.grad)), torch._C._DisableAutocast():
            try:
                answer = vm.call(backward.fn, [*backward.first, context, *self.grads], {})
                read = any((vm.inputs, vm.boxes, vm.numbers_in, vm.objects_in))
                acts = read or bool(vm.effects.net(mark))
            except Break as why:
                why.inner = directly_called(self.outer)  # frames of the backward are none to stop in
                raise
            finally:
                vm.effects.leave_process()
        items = list(vm.iterate(answer)) if issubclass(answer.pytype, tuple) else [answer]
        if acts:
            raise call.unfollowed()
        self.rest_on()
        return self.finish(items)

    def rest_on(self) -> None:
        """Give the frame the guards of the backward that are about code; the others are for when it runs."""
        if self.vm.told_apart:
            raise self.call.unfollowed()
        for key, guard in self.vm.guards.items():
            facts = self.outer.guards if is_about_code(guard, self.vm.roots) else self.facts
            facts.setdefault(key, guard)

    def place(self, value: TensorNode | Symbol) -> int:
        """Return the position of a value of the context among the tensors that were saved and the values kept."""
        moved = self.moved[id(value.fake)]
        assert isinstance(moved, (TensorNode, Symbol))
        return self.places[moved.node] - sum(isinstance(each, TensorNode) for each in self.call.results)

    def finish(self, items: list[Value]) -> TracedBackward:
        """Close the graph of the backward, given its results: one gradient for each argument of `apply`."""
        args = self.call.args
        wanted, more = items[: len(args)], items[len(args) :]
        fits = len(wanted) == len(args) and all(map(is_none, more))
        if not fits or not all(map(may_be_gradient, args, wanted)):
            raise self.call.unfollowed()
        pairs = [grad for arg, grad in zip(args, wanted) if isinstance(arg, TensorNode)]
        outputs = [grad.node for grad in pairs if isinstance(grad, TensorNode)]
        numbers = count()
        gives = tuple(next(numbers) if isinstance(grad, TensorNode) else -1 for grad in pairs)
        body = self.builder.as_body(outputs, own_leaves=True)
        if body is None:
            raise self.call.unfollowed()
        takes = tuple(self.places[node] for node in body.graph.find_nodes(op="placeholder"))
        return TracedBackward(body, takes, gives)


def may_be_gradient(arg: Value, grad: Value) -> bool:
    """Return whether a value can be the gradient of this argument."""
    return is_none(grad) or (isinstance(grad, TensorNode) and isinstance(arg, TensorNode))


def is_about_code(guard: Guard, roots: Roots) -> bool:
    """Return whether a guard is about a part of the program's text, as against a variable of the program."""
    if guard.kind in ("FUNCTION_MATCH", "NO_KEY"):
        return True
    if guard.kind == "TYPE_MATCH":
        return guard.arg is types.ModuleType or issubclass(guard.arg, type)
    if guard.kind == "ID_MATCH":
        return is_code(guard.arg) or guard.source.arg == "__mro__"
    if guard.kind == "CLASS_ATTR":
        return guard.arg[1] is ABSENT or is_code(guard.arg[1])
    if guard.kind in ("SAME_OBJECT", "LENGTH"):
        return guard.source.how == "globals" or guard.source.arg in ("__globals__", "__defaults__")
    return guard.kind == "EQUALS_MATCH" and is_part_of_text(guard.source, roots)


def is_part_of_text(source: Source, roots: Roots) -> bool:
    """Return whether a source leads to a constant of torch, a default argument, or a cell of torch's decorators."""
    if type(source.load(roots)) in (torch.dtype, torch.memory_format, torch.layout) and source.arg in vars(torch):
        return True
    if source.how == "contents" and source.base is not None:
        source = source.base
    base = source.base
    if source.how not in ("item", "key") or base is None or base.base is None:
        return False
    if base.arg == "__closure__":
        return str(base.base.load(roots).__globals__.get("__name__")).startswith("torch.")
    return base.arg in ("__defaults__", "__kwdefaults__")


class UsersBackward(NamedTuple):
    """Describe the function that autograd would call: what it is given first, and whether it can be differentiated."""

    fn: Value
    first: tuple[Value, ...]
    once: bool


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


def give_backward(vm: Machine, call: Call) -> list[Value]:
    """Return the results of a custom function as nodes that have its own backward."""
    attrs = vm.entity(call.context).attrs
    inputs = [arg for arg in call.args if isinstance(arg, TensorNode)]
    tensors = [each for each in call.results if isinstance(each, TensorNode)]
    saved = [each for each in passed_to_context(vm, attrs, "to_save") if isinstance(each, TensorNode)]
    dirty = positions(call, inputs, passed_to_context(vm, attrs, "dirty_tensors"))
    constant = positions(call, tensors, passed_to_context(vm, attrs, "non_differentiable"))
    check_histories(vm, call, inputs, tensors, dirty)
    zeros = vm.truth(attrs["materialize_grads"]) if "materialize_grads" in attrs else True
    backward = users_backward(vm, call)
    smooth = [is_differentiable(each) and index not in constant for index, each in enumerate(tensors)]
    if not zeros and sum(smooth) > MAX_OPTIONAL:
        raise call.unfollowed()
    ways: list[tuple[tuple[bool, ...], bool | None, TracedBackward]] = []
    kept: list[TensorNode | Symbol] = []
    facts: dict[Any, Guard] = {}
    read: dict[int, Value] = {}
    choices = [*product(*[(True,) if zeros else (True, False) if each else (False,) for each in smooth])]
    modes: Sequence[bool | None] = (False,) if backward.once else (None,)
    while choices:
        for grad in modes:
            follower = BackwardInliner(vm, call, saved, choices[0], grad)
            try:
                ways.append((choices[0], grad, follower.follow(backward)))
            except Raised:  # so it would if it came to that
                if grad or not ways:
                    raise call.unfollowed() from None
            except Break:
                if grad is not None or ways:
                    raise
                modes = (False, True)  # perhaps it asks for the mode: a body for each
                break
            kept = follower.kept
            facts.update(follower.facts)
            read.update(follower.brought)
        else:
            choices.pop(0)
    note_objects(vm, read)
    plan = (call.name, backward.once, zeros, dirty, constant)
    groups = [[each.node for each in group] for group in (inputs, tensors, saved, kept)]
    written = as_written(vm, call, follower.place, [*facts.values()]) if facts else None
    node, examples = vm.builder.with_backward(plan, ways, groups, written, vm.position())
    vm.ops += 1
    made = iter([result_of(vm, node, index) for index in range(len(examples))])
    return [next(made) if isinstance(each, TensorNode) else each for each in call.results]


def as_written(
    vm: Machine, call: Call, place: Callable[[TensorNode | Symbol], int], facts: list[Guard]
) -> BackwardAsWritten:
    """Return what runs where facts that the backward has read have changed. Raises Break if it cannot be made then."""
    cls, saved = vm.known(call.cls, "class"), passed_to_context(vm, vm.entity(call.context).attrs, "to_save")
    args, results = ([isinstance(each, TensorNode) for each in group] for group in (call.args, call.results))
    try:
        varies = vm.builder.may_end and bool(vm.builder.numbers.entries)  # pieces for compilers have fixed sizes
        if varies or vm.builder.exporting or is_mortal(cls):
            raise NotMadeAgain
        lasting = [lasting_fact(vm, fact) for fact in facts]
        return BackwardAsWritten(cls, args, results, recipe_of(vm, call.context, saved, place), lasting)
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


def positions(call: Call, among: list[TensorNode], values: list[Value]) -> tuple[int, ...]:
    """Return the positions of tensors in a list. Raises Break if one is not in it."""
    found = [
        next((i for i, each in enumerate(among) if isinstance(value, TensorNode) and each.fake is value.fake), None)
        for value in values
    ]
    if None in found:
        raise call.unfollowed()
    return tuple(index for index in found if index is not None)
