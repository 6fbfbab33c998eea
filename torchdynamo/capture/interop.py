"""What user code and libraries already say to torch.compile, honoured: the one file that names `torch._dynamo`.

Marks are read where PyTorch leaves them (attributes on functions, registries), and only if it is loaded.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch._compile
import torch.compiler

from torchdynamo import marks
from torchdynamo.capture import model, policy
from torchdynamo.capture.naming import called
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import NONE, TRUE, Graphed, Known, Value
from torchdynamo.capture.wrap import wrap
from torchdynamo.hook.install import Compiled

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

Verdict = Callable[["Machine", Known, list[Value], dict[str, Value]], Value]


def disabled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch._dynamo puts this mark on some of torch's own functions; those we have a model of are followed.

    Its optimizers are, too: they are marked once torch.compile has been used.
    """
    meant = inspect.unwrap(fn.obj)
    row = model.FUNCTIONS.get(id(meant))
    if row is not None:
        return row(vm, *args, **kwargs)
    if meant.__module__.startswith("torch.optim."):
        if fn.source is not None:
            vm.guard(fn.source, "ID_MATCH", fn.obj)
        return vm.inline(Known(meant), args, kwargs)
    raise Break("disabled function", name=fn.obj.__qualname__)


@model.function(marks.graph_break)
def our_graph_break(vm: Machine) -> Value:
    raise Break("user graph break", name="graph_break")


@model.enters(Compiled)
def enter_compiled(vm: Machine, obj: Any, source: Source) -> Value:
    """A function somebody compiled, or disabled, with us."""
    vm.guard(source, "ID_MATCH", obj)
    return Known(obj, source)


def call_compiled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Inside a capture a compiled function is the function; a disabled one stays outside."""
    if fn.obj in marks.DISABLED or not fn.obj.callback:
        raise Break("disabled function", name=called(fn.obj))
    inner = vm.constant(fn.obj.fn) if fn.source is None else wrap(vm, fn.obj.fn, Source("attr", fn.source, "fn"))
    return vm.call(inner, args, kwargs)


def graph_break(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.optim asks for one around each step, for torch.compile's sake."""
    if policy.in_optimizer(vm.frames):
        return NONE
    raise Break("user graph break", name=fn.obj.__qualname__)


def scheduled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The next learning rate: followed, it would be a constant of each epoch."""
    raise Break("learning-rate schedule", name=fn.obj.__qualname__)


def what_was_compiled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Inside a capture, what torch.compile was given stands for what it gave back."""
    return vm.call(vm.getattr(fn, "_torchdynamo_orig_callable"), args, kwargs)


SCHEDULES = "torch.optim.lr_scheduler"
# PyTorch marks parts of itself without importing torch._dynamo: all such functions share this code.
LAZILY_DISABLED = torch._compile._disable_dynamo(lambda: None).__code__


def constant_true(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return TRUE


def nothing(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE


def no_context(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A context that only concerns torch._dynamo."""
    return vm.call(Known(contextlib.nullcontext), [], {})


def what_it_wraps(free: str) -> Verdict:
    """torch._dynamo puts a function around one of torch's or the program's, for itself: the own one counts."""

    def row(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
        own = fn.obj.__closure__[fn.obj.__code__.co_freevars.index(free)].cell_contents
        return vm.call(vm.constant(own), args, kwargs)

    return row


def index_by_tensors(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`ModIndex.apply`: an index of tensors, whose backward is told to Inductor in words of its own."""
    owner, table, indices = args
    if torch.is_grad_enabled() and (table.__class__ is not Graphed or table.fake.requires_grad):
        return vm.emit("call_function", vm.known(owner, "class").apply, [table, indices], kwargs)
    return vm.emit("call_function", torch.ops.aten.index.Tensor, [table, indices], kwargs)


def indices_stay_tensors() -> contextlib.AbstractContextManager[Any]:
    """The mode in which flex_attention's functions are run."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    return TransformGetItemToIndex()


INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"  # a mode under which indices stay tensors
FOLLOWED = frozenset({(INDEXING, "__torch_function__")})
# Functions of torch._dynamo that programs call, by qualified name.
BY_NAME: dict[tuple[str, str], Verdict] = {
    (INDEXING, "apply"): index_by_tensors,
    ("torch._dynamo.external_utils", "is_compiling"): constant_true,
    ("torch._dynamo.decorators", "graph_break"): graph_break,
    ("torch._dynamo.external_utils", "inner"): what_it_wraps("func"),  # in a context that only concerns torch._dynamo
    ("torch._dynamo.compiled_autograd", "_disable"): no_context,
    ("torch._dynamo.mutation_guard", "patched_init"): what_it_wraps("init"),
    ("torch._dynamo.mutation_guard", "patched_setstate"): what_it_wraps("setstate"),
    ("torch._dynamo.decorators", "mark_static"): nothing,
    ("torch._dynamo.decorators", "mark_dynamic"): nothing,
    ("torch._dynamo.decorators", "maybe_mark_dynamic"): nothing,
    ("torch._dynamo.decorators", "mark_static_address"): nothing,
}


def said_to_us(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What our own decorators say of a callable; None if nothing."""
    obj = fn.obj
    if obj in marks.DISABLED:
        raise Break("disabled function", name=obj.__qualname__)
    if obj in marks.DISALLOWED:
        raise Break("disallowed function", name=called(obj))
    if obj in marks.CONSTANT:
        return vm.run_pure(obj, args, kwargs)
    if obj in marks.ALLOWED:
        return vm.emit("call_function", obj, args, kwargs)
    if getattr(obj, "__code__", None) in marks.SKIPPED:
        raise Break("skipped function", name=obj.__qualname__)
    return None


MARKS = (marks.DISABLED, marks.DISALLOWED, marks.CONSTANT, marks.ALLOWED, marks.SKIPPED)
HELD = tuple(each.held for each in MARKS)


def anything_said() -> bool:
    """Whether any mark exists at all; mostly none does."""
    return any(HELD)


def verdict(fn: types.FunctionType) -> Verdict | None:
    """What has been said about this function to torch.compile; None if nothing."""
    own = fn.__dict__
    if own and own.get("_torchdynamo_disable"):
        return disabled
    if own and own.get("_torchdynamo_wrapper_id") == id(fn) and "_torchdynamo_orig_callable" in own:
        return what_was_compiled
    if fn.__code__ is LAZILY_DISABLED:
        return disabled
    module = fn.__module__ or ""
    if module == SCHEDULES and fn.__name__ == "step":
        return scheduled
    if module.startswith("torch._dynamo") and (module, fn.__name__) not in FOLLOWED:
        return BY_NAME.get((module, fn.__name__), disabled)
    return None  # what torch.compile was told to keep whole is followed: a graph holds operators


def disables_its_calls(fn: Any) -> bool:
    """Whether the function is what `torch.compiler.disable` made of another: nothing it calls is compiled."""
    return bool(fn.__dict__.get("_torchdynamo_disable"))
