"""torch.distributed: synchronous collectives, said again by operators that return what others have sent.

What is sent and received is the same, in the same order. A result is copied to where the program wants it; as in eager
with gloo, a gather or scatter moves the version counter there, and a reduction or exchange does not. Where a graph
could be told from eager, it ends: if autograd has a part in it, if nobody waits, and if PyTorch raises or warns.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.capture.functions.distributed import asked, default_group
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ends_graph, function
from torchdynamo.core.signals import Break
from torchdynamo.core.value import FALSE, NONE, Known, TensorNode, Value
from torchdynamo.graph.recording import address_of

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


# -- what the operators do, in Python that is inlined -----------------------------------------------------------------
def misfit() -> None:
    """Leave it to PyTorch to say that sizes do not fit."""


function(misfit)(ends_graph("unsupported operator", name="a collective", what="sizes do not fit"))


def is_coalescing() -> bool:
    """Return whether collectives are put off, to be issued together."""
    return len(dist.distributed_c10d._world.pg_coalesce_state) > 0


def all_reduce_steps(tensor: Any, op: str, name: str) -> None:
    reduced = torch.ops._c10d_functional.all_reduce(tensor, op, name)
    tensor.data.copy_(torch.ops._c10d_functional.wait_tensor(reduced))


def all_gather_single_steps(output: Any, input: Any, size: int, name: str) -> None:
    if input.dim() == 0 or output.shape != (input.shape[0] * size, *input.shape[1:]):
        misfit()
    gathered = torch.ops._c10d_functional.all_gather_into_tensor(input, size, name)
    output.detach().copy_(torch.ops._c10d_functional.wait_tensor(gathered))


def all_gather_steps(outputs: list[Any], input: Any, size: int, name: str) -> None:
    if len(outputs) != size:
        misfit()
    for output in outputs:
        if output.shape != input.shape:
            misfit()
    gathered = torch.ops._c10d_functional.all_gather_into_tensor(input.view(-1), size, name)
    parts = torch.ops._c10d_functional.wait_tensor(gathered).view((size, *input.shape))
    for output, part in zip(outputs, parts.unbind(0)):
        output.detach().copy_(part)


def reduce_scatter_steps(output: Any, input: Any, op: str, size: int, name: str) -> None:
    if output.dim() == 0 or input.shape != (output.shape[0] * size, *output.shape[1:]):
        misfit()
    scattered = torch.ops._c10d_functional.reduce_scatter_tensor(input, op, size, name)
    output.detach().copy_(torch.ops._c10d_functional.wait_tensor(scattered))


def all_to_all_steps(output: Any, input: Any, receives: Any, sends: Any, size: int, name: str) -> None:
    if output.dim() == 0 or input.dim() == 0 or output.shape[1:] != input.shape[1:]:
        misfit()
    if receives is None:
        receives = [output.shape[0] // size] * size
    if sends is None:
        sends = [input.shape[0] // size] * size
    if len(receives) != size or len(sends) != size:
        misfit()
    if sum(receives) != output.shape[0] or sum(sends) != input.shape[0]:
        misfit()
    received = torch.ops._c10d_functional.all_to_all_single(input, receives, sends, name)
    output.data.copy_(torch.ops._c10d_functional.wait_tensor(received))


# -- what has to be so ------------------------------------------------------------------------------------------------
def name_of(group: Any) -> str | None:
    """Return the name of a group that operators find it by; None for one that was destroyed."""
    return str(group.group_name) if group in dist.distributed_c10d._world.pg_map else None


class Collective:
    """A call of a collective that is about to be put into the graph. Raises Break if it cannot."""

    def __init__(self, vm: Machine, fn: Callable[..., Any], group: Value, async_op: Value) -> None:
        importlib.import_module("torch.distributed._functional_collectives")  # how fake tensors go through operators
        self.vm = vm
        self.fn = fn
        if vm.known(async_op, "async_op"):
            raise self.no("async_op=True")
        self.group = default_group(vm, group)
        self.name = Known(asked(vm, self.group, name_of, fn))
        if vm.truth(vm.inline(Known(is_coalescing), [], {})):
            raise self.no("collectives that are issued together")
        self.size = vm.call_method(self.group, "size")

    def no(self, what: str) -> Break:
        return Break("unsupported operator", name=self.fn.__name__, what=what)

    def op(self, op: Value) -> Value:
        """Return the name of a reduction."""
        given = self.vm.known(op, "op")
        for each in REDUCTIONS:
            if given == getattr(dist.ReduceOp, each.upper()) and type(given) is not dist.ReduceOp:
                return Known(each)
        raise self.no(f"{given} as a reduction")

    def check(self, written: list[Value], read: list[Value]) -> None:
        """Raise Break for tensors that eager treats otherwise than the operators of the graph."""
        if torch._C._are_functorch_transforms_active():
            raise self.no("inside of torch.func")
        dtypes = set()
        for value in (*written, *read):
            if not isinstance(value, TensorNode) or value.pytype not in PLAIN:
                raise self.no(f"a {value.pytype.__name__}")
            fake = value.fake
            if fake.layout is not torch.strided or fake.is_complex() or not fake.is_contiguous():
                raise self.no("tensors that are complex, sparse or not contiguous")
            if fake.requires_grad:
                raise self.no("tensors that require gradients")
            dtypes.add(fake.dtype)
        if len(dtypes) > 1:
            raise self.no("tensors of several dtypes")
        if any(may_be_saved(self.vm, value) for value in written if isinstance(value, TensorNode)):
            raise self.no("a tensor that autograd may have saved")

    def inline(self, steps: Callable[..., None], *args: Value) -> Value:
        return self.vm.inline(Known(steps), list(args), {})


REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


class SavedMemory:
    """The memory of what operators of a graph that autograd follows were given and have made."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.last = weakref.ref(graph._root)  # what comes after it has not been looked at
        self.addresses: set[int | None] = set()

    def look(self) -> None:
        """Add what operators have touched since the last look."""
        last = self.last()
        node = last.next if last is not None else None
        while node is not None and node.op != "root":
            self.last = weakref.ref(node)
            if node.op.startswith("call_") and any(each.requires_grad for each in tensors_of(node)):
                near = (node, *node.all_input_nodes)
                self.addresses.update(address_of(each) for one in near for each in tensors_of(one))
            node = node.next


_saved: weakref.WeakKeyDictionary[torch.fx.Graph, SavedMemory] = weakref.WeakKeyDictionary()


def may_be_saved(vm: Machine, tensor: TensorNode) -> bool:
    """Return whether an operator of the graph that autograd follows may have saved what is in a tensor's memory."""
    graph = vm.builder.graph
    saved = _saved.get(graph)
    last = None if saved is None else saved.last()
    if saved is None or last is None or last._erased:
        saved = _saved[graph] = SavedMemory(graph)
    saved.look()
    return address_of(tensor.fake) in saved.addresses


def tensors_of(node: torch.fx.Node) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(node.meta.get("example_value")) if isinstance(each, torch.Tensor)]


# -- the functions ----------------------------------------------------------------------------------------------------
def model_all_reduce(fn: Any) -> None:
    def row(vm: Machine, tensor: Value, op: Value = SUM, group: Value = NONE, async_op: Value = FALSE) -> Value:
        call = Collective(vm, fn, group, async_op)
        call.check([tensor], [])
        return call.inline(all_reduce_steps, tensor, call.op(op), call.name)

    function(fn)(row)


def model_all_gather_single(fn: Any) -> None:
    def row(
        vm: Machine, output_tensor: Value, input_tensor: Value, group: Value = NONE, async_op: Value = FALSE
    ) -> Value:
        call = Collective(vm, fn, group, async_op)
        call.check([output_tensor], [input_tensor])
        return call.inline(all_gather_single_steps, output_tensor, input_tensor, call.size, call.name)

    function(fn)(row)


def model_all_gather(fn: Any) -> None:
    def row(vm: Machine, tensor_list: Value, tensor: Value, group: Value = NONE, async_op: Value = FALSE) -> Value:
        call = Collective(vm, fn, group, async_op)
        if tensor_list.pytype is not list:
            raise call.no(f"a {tensor_list.pytype.__name__}")
        call.check(list(vm.iterate(tensor_list)), [tensor])
        return call.inline(all_gather_steps, tensor_list, tensor, call.size, call.name)

    function(fn)(row)


def model_reduce_scatter(fn: Any) -> None:
    def row(
        vm: Machine, output: Value, input: Value, op: Value = SUM, group: Value = NONE, async_op: Value = FALSE
    ) -> Value:
        call = Collective(vm, fn, group, async_op)
        call.check([output], [input])
        return call.inline(reduce_scatter_steps, output, input, call.op(op), call.size, call.name)

    function(fn)(row)


def model_all_to_all(fn: Any) -> None:
    def row(
        vm: Machine,
        output: Value,
        input: Value,
        output_split_sizes: Value = NONE,
        input_split_sizes: Value = NONE,
        group: Value = NONE,
        async_op: Value = FALSE,
    ) -> Value:
        call = Collective(vm, fn, group, async_op)
        call.check([output], [input])
        splits = (output_split_sizes, input_split_sizes)
        return call.inline(all_to_all_steps, output, input, *splits, call.size, call.name)

    function(fn)(row)


if dist.is_available():
    SUM = Known(dist.ReduceOp.SUM)
    for _name, _model in {
        "all_reduce": model_all_reduce,
        "all_gather_into_tensor": model_all_gather_single,
        "all_gather_single": model_all_gather_single,
        "all_gather": model_all_gather,
        "reduce_scatter_tensor": model_reduce_scatter,
        "reduce_scatter_single": model_reduce_scatter,
        "all_to_all_single": model_all_to_all,
    }.items():
        if hasattr(dist, _name):  # some versions do not have all of them
            _model(getattr(dist, _name))
