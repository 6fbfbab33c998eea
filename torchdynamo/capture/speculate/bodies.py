"""Capture parts of a program as bodies of one operator: a side of a condition, an iteration of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch.fx

from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def follow_body(vm: Machine, run: Callable[[], Value], where: str) -> tuple[list[torch.fx.Node], Value]:
    """Execute what may do nothing but compute. Returns the nodes that it adds to the graph, and its result.

    Raises Break if it has side effects; `where` says in the message what it belongs to.
    """
    mark, brought = vm.effects.mark(), (len(vm.boxes), len(vm.numbers_in))
    sizes, checking = dict(vm.sizes), vm.may_begin_again
    vm.may_begin_again = False
    try:
        result = run()
    finally:
        vm.may_begin_again = checking
    vm.sizes = sizes
    if vm.effects.net(mark, (EffectKind.RANDOM,)) or (len(vm.boxes), len(vm.numbers_in)) != brought:
        raise Break("side effect not replayable", what=where)
    return vm.builder.added(mark.graph), result


def result_tensors(vm: Machine, value: Value) -> Iterator[TensorNode]:
    """Yield the tensors of a result, in lists, tuples and dicts too."""
    if isinstance(value, TensorNode):
        yield value
    elif isinstance(value, Object) and value.pytype in (list, tuple):
        for item in vm.iterate(value):
            yield from result_tensors(vm, item)
    elif isinstance(value, Object) and value.pytype is dict:
        for _, item in vm.dict_items(value):
            yield from result_tensors(vm, item)
    else:
        raise Break("unsupported argument", what="a tensor returned from torch.cond", type=value.pytype.__name__)


def like_result(vm: Machine, like: Value, made: Iterator[Any]) -> Value:
    """Return containers like those of a result, with other tensors in them."""
    if isinstance(like, TensorNode):
        return next(made)
    assert isinstance(like, Object)
    if like.pytype is dict:
        return vm.make_dict([(key, like_result(vm, item, made)) for key, item in vm.dict_items(like)])
    items = [like_result(vm, item, made) for item in vm.iterate(like)]
    return vm.make_tuple(items) if like.pytype is tuple else vm.new(list, items)
