"""Honor the marks that user code and libraries make for torch.compile.

Marks are read where PyTorch leaves them (attributes on functions, registries), and only if it is loaded.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch._compile
import torch.compiler

from torchdynamo import _native
from torchdynamo.capture.vm import constant_calls, model
from torchdynamo.capture.vm.wrap import enter_singleton, wrap
from torchdynamo.core import marks, policy
from torchdynamo.core.naming import called
from torchdynamo.core.signals import Assumption, Break, Retry
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, TRUE, Known, Object, TensorNode, Value
from torchdynamo.errors import ForbiddenFunction
from torchdynamo.hook.install import Compiled

if TYPE_CHECKING:
    from torchdynamo.capture.vm.effects import SideEffects
    from torchdynamo.capture.vm.machine import Machine

Verdict = Callable[["Machine", Known, list[Value], dict[str, Value]], Value]


def call_disabled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a function that is disabled for torch._dynamo: torch's own with a model are inlined, others end the graph.

    Torch's optimizers are inlined, too: they are marked once torch.compile has been used.
    """
    meant = inspect.unwrap(fn.obj)
    row = model.FUNCTIONS.get(id(meant))
    if row is not None:
        return row(vm, *args, **kwargs)
    if meant.__module__.startswith("torch.optim."):
        if fn.source is not None:
            vm.guard(fn.source, "ID_MATCH", fn.obj)
        return vm.inline(Known(meant), args, kwargs)
    raise Break("disabled function", name=fn.obj.__qualname__, said=marks.why_disabled(fn.obj))


@model.function(marks.graph_break)
def our_graph_break(vm: Machine) -> Value:
    raise Break("user graph break", name="graph_break")


model.enters(Compiled)(enter_singleton)


def call_compiled(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value], direct: bool) -> Value:
    """Call a function compiled by us: what it was made of is inlined. A disabled one ends the graph."""
    if fn.obj in marks.DISABLED or not fn.obj.callback:
        raise Break("disabled function", name=called(fn.obj), said=marks.why_disabled(fn.obj))
    inner = vm.constant(fn.obj.fn) if fn.source is None else wrap(vm, fn.obj.fn, Source("attr", fn.source, "fn"))
    return vm.call(inner, args, kwargs)


def call_graph_break(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """End the graph on the program's request; that of torch.optim around each step is for torch.compile only."""
    if policy.in_optimizer(vm.frames):
        return NONE
    raise Break("user graph break", name=fn.obj.__qualname__)


def call_schedule(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """End the graph before a learning-rate schedule: inlined, the rate would be a constant of each epoch."""
    raise Break("learning-rate schedule", name=fn.obj.__qualname__)


def call_original(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call the function that was given to torch.compile, in place of the compiled one."""
    return vm.call(vm.getattr(fn, "_torchdynamo_orig_callable"), args, kwargs)


SCHEDULES = "torch.optim.lr_scheduler"
# PyTorch marks parts of itself without importing torch._dynamo: all such functions share this code.
LAZILY_DISABLED = torch._compile._disable_dynamo(lambda: None).__code__


def constant_true(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return TRUE


def nothing(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE


def call_null_context(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Return a null context in place of one that only concerns torch._dynamo."""
    return vm.call(Known(contextlib.nullcontext), [], {})


def calling_wrapped(free: str) -> Verdict:
    """Return the row of a wrapper by torch._dynamo: the function in its closure variable `free` is called instead."""

    def row(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
        own = fn.obj.__closure__[fn.obj.__code__.co_freevars.index(free)].cell_contents
        return vm.call(vm.constant(own), args, kwargs)

    return row


def call_settings_block(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Return a null context in place of one that sets torch.compile's settings, or the function that it decorates.

    Python is asked whether it takes these settings.
    """
    if fn.obj.__name__ != "patch_dynamo_config":
        decorated = args[0] if args else kwargs.get("fn", NONE)
        if decorated != NONE:
            return decorated
    real, named = list(map(vm.concretely, args)), {name: vm.concretely(kwargs[name]) for name in kwargs}
    try:
        fn.obj(*real, **named)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise vm.refused(error) from None
    return vm.call(Known(contextlib.nullcontext), [], {})


def index_by_tensors(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Index a tensor by tensors (`ModIndex.apply`). With gradients it stays an operator with a backward of its own."""
    owner, table, indices = args
    if torch.is_grad_enabled() and (table.__class__ is not TensorNode or table.fake.requires_grad):
        return vm.emit("call_function", vm.known(owner, "class").apply, [table, indices], kwargs)
    return vm.emit("call_function", torch.ops.aten.index.Tensor, [table, indices], kwargs)


def indices_stay_tensors() -> contextlib.AbstractContextManager[Any]:
    """Return the mode in which the functions of flex_attention run."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    return TransformGetItemToIndex()


INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"  # a mode under which indices stay tensors
BLOCK = "ErrorOnGraphBreakDecoratorContextManager"
# Functions of torch._dynamo that are followed like the program's own, by module.
FOLLOWED = {
    INDEXING: ("TransformGetItemToIndex.__torch_function__",),
    "torch._dynamo.decorators": (
        *("error_on_graph_break", f"{BLOCK}.__init__", f"{BLOCK}.__enter__", f"{BLOCK}.__exit__"),
    ),
    "torch._dynamo.utils": ("_get_error_on_graph_break", "_set_error_on_graph_break"),
    "torch._dynamo.external_utils": ("wrap_dunder_call_ctx_manager", "inner"),
}
# Functions of torch._dynamo that programs call, by qualified name.
BY_NAME: dict[tuple[str, str], Verdict] = {
    (INDEXING, "ModIndex.apply"): index_by_tensors,
    ("torch._dynamo.external_utils", "is_compiling"): constant_true,
    ("torch._dynamo.decorators", "graph_break"): call_graph_break,
    ("torch._dynamo.decorators", "patch_dynamo_config"): call_settings_block,
    ("torch._dynamo.decorators", "dont_skip_tracing"): call_settings_block,
    ("torch._dynamo.decorators", "disable_nested_graph_breaks"): call_settings_block,
    ("torch._dynamo.decorators", "override_cudagraphs"): call_null_context,
    **{
        ("torch._dynamo.decorators", f"{block}.{method}"): nothing
        for block in ("DynamoConfigPatchProxy", "CudagraphOverrideContextManager")
        for method in ("__enter__", "__exit__")
    },
    ("torch._dynamo.compiled_autograd", "_disable"): call_null_context,
    ("torch._dynamo.mutation_guard", "patched_init"): calling_wrapped("init"),
    ("torch._dynamo.mutation_guard", "patched_setstate"): calling_wrapped("setstate"),
    ("torch._dynamo.decorators", "mark_static"): nothing,
    ("torch._dynamo.decorators", "mark_dynamic"): nothing,
    ("torch._dynamo.decorators", "maybe_mark_dynamic"): nothing,
    ("torch._dynamo.decorators", "mark_static_address"): nothing,
}


def call_marked(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Call a function as our decorators, or torch.compile's, say; None if they say nothing of it."""
    obj = fn.obj
    reason = vm.marks_of_torch.get(id(obj))
    if reason:
        raise Break(reason, name=called(obj))
    if reason is not None:
        return (call_leaf if hasattr(obj, LEAF) else inline_or_emit)(vm, fn, args, kwargs)
    if obj in marks.DISABLED:
        raise Break("disabled function", name=obj.__qualname__, said=marks.why_disabled(obj))
    if obj in marks.DISALLOWED:
        raise Break("disallowed function", name=called(obj))
    if obj in marks.CONSTANT:
        return call_constant(vm, fn, args, kwargs)
    if obj in marks.ALLOWED:
        return emit_call(vm, fn, args, kwargs)
    if getattr(obj, "__code__", None) in marks.SKIPPED:
        raise Break("skipped function", name=obj.__qualname__)
    return None


LEAF = "_torchdynamo_leaf_fake_fn"  # where `leaf_function` keeps what tells the metadata of its results
LEAF_RUNS_FAKE = "_invoke_leaf_function_python"  # what its functions call that ask for the metadata, given fake tensors


def call_leaf(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """End the graph at a leaf function, which runs in Python; a graph that has to be whole calls it.

    Inductor has no code for such a call. In older versions of torch it would run while it is captured.
    """
    if vm.builder.may_end or LEAF_RUNS_FAKE not in fn.obj.__globals__:
        raise Break("disabled function", name=called(fn.obj), said=marks.why_disabled(fn.obj))
    return emit_call(vm, fn, args, kwargs)


def inline_or_emit(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Inline a function that was given to torch.compile's `allow_in_graph`; if that breaks, make each call a node.

    Libraries (einops is one) give it functions that can be inlined, and a graph of operators is worth more than a graph
    that calls Python.
    """
    if type(fn.obj) is not types.FunctionType or Assumption.MARKED in vm.builder.numbers.dropped:
        return emit_call(vm, fn, args, kwargs)
    del vm.marks_of_torch[id(fn.obj)]
    try:
        return vm.call(fn, args, kwargs)
    except Break:
        raise Retry(Assumption.MARKED) from None
    finally:
        vm.marks_of_torch[id(fn.obj)] = ""


def is_of_front_end(fn: types.FunctionType) -> bool:
    """Return whether a function is of torch.compile's front end, as those are that its marks make."""
    return str(fn.__globals__.get("__name__")).startswith("torch._dynamo.")


def emit_call(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Add a call to the graph as an operation that is not looked into."""
    if fn.source is not None:
        vm.guard(fn.source, "ID_MATCH", fn.obj)
    return vm.emit("call_function", fn.obj, args, kwargs)


MARKS = (marks.DISABLED, marks.DISALLOWED, marks.CONSTANT, marks.ALLOWED, marks.SKIPPED)
HELD = tuple(each.held for each in MARKS)


def has_marks(to_torch: Mapping[int, str]) -> bool:
    """Return whether any callable is marked; mostly none is."""
    return any(HELD) or bool(to_torch)


def call_constant(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Run a function whose result the program declares to be constant, whatever that rests on."""
    given = [itself(vm, each) for each in args], {name: itself(vm, kwargs[name]) for name in kwargs}
    found = vm.run_pure(fn.obj, *given)
    constant_calls.note(vm, fn, *given, found)
    return found


def itself(vm: Machine, value: Value) -> Value:
    """Return an object that was there, and that the frame has not written to, as the constant that it is now."""
    if value.__class__ is not Object:
        return value
    entity = vm.entity(value)
    if entity.source is None or entity.changed:
        return value
    vm.guard(entity.source, "ID_MATCH", entity.real)
    return Known(entity.real)


def call_forbidden(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Raise ForbiddenFunction, as torch.compile does for a function marked by `torch._dynamo.forbid_in_graph`.

    Functions that set torch.compile's stance are marked, too: they end the graph, and what they call is compiled.
    """
    if fn.obj.__code__ is UNDER_A_STANCE or (fn.obj.__module__ or "").startswith("torch."):
        raise Break("disabled function", name=called(fn.obj), said=marks.why_disabled(fn.obj))
    raise ForbiddenFunction(f"{called(fn.obj)} is marked by forbid_in_graph, and a compiled function calls it")


def call_skipped(vm: Machine, fn: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """End the graph at a function under `torch.compiler.disable(recursive=False)`: what it calls may be compiled."""
    meant = fn.obj.__dict__.get("_torchdynamo_orig_callable", fn.obj)
    if type(meant) is types.FunctionType:
        marks.SKIPPED.add(meant.__code__)
    raise Break("skipped function", name=fn.obj.__qualname__)


BY_ATTRIBUTE: dict[str, Verdict] = {constant_calls.MARK: call_constant, "_dynamo_forbidden": call_forbidden}
UNDER_A_STANCE = torch.no_grad()(lambda: None).__code__


def verdict(fn: types.FunctionType) -> Verdict | None:
    """Return the row for what torch.compile was told about a function; None if nothing."""
    own = fn.__dict__
    if own:
        if own.get("_torchdynamo_disable"):
            return call_disabled if disables_its_calls(fn) else call_skipped
        for mark, row in BY_ATTRIBUTE.items():
            if own.get(mark):
                return row
        if "__marked_compile_region_fn__" in own:
            return calling_wrapped("func")  # to be compiled once for all calls: each is followed, which gives the same
    if own and own.get("_torchdynamo_wrapper_id") == id(fn) and "_torchdynamo_orig_callable" in own:
        return call_original
    if fn.__code__ is LAZILY_DISABLED:
        return call_disabled
    module = fn.__module__ or ""
    if module == SCHEDULES and fn.__name__ == "step":
        return call_schedule
    if module.startswith("torch._dynamo"):
        name = fn.__qualname__.rpartition("<locals>.")[2]
        return None if name in FOLLOWED.get(module, ()) else BY_NAME.get((module, name), call_disabled)
    return None


def disables_its_calls(fn: Any) -> bool:
    """Return whether a function comes from `torch.compiler.disable`, so that nothing it calls is compiled."""
    own = fn.__dict__ or disabling(fn.__code__)
    recursive = own.get("_torchdynamo_disable_recursive") is not False and "_torchdynamo_orig_callable" in own
    return bool(own.get("_torchdynamo_disable")) and recursive


def disabling(code: CodeType) -> dict[str, bool]:
    """Return what `torch.compiler.disable` sets on functions that it makes, for their code: frames may know no more."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    made = frames is not None and code in frames.DisableContext.__call__.__code__.co_consts
    return {"_torchdynamo_disable": True, "_torchdynamo_orig_callable": True} if made else {}


def skips_itself(fn: Any) -> bool:
    """Return whether only a function's own frame is left to Python, by `skip` or `disable(recursive=False)`."""
    return bool(fn.__dict__.get("_torchdynamo_disable")) and not disables_its_calls(fn)


# Sets of torch._dynamo.trace_rules, by the ids of functions: what is done with a call of one.
SETS = {
    "_disallowed_callable_ids": "disallowed function",
    "_leaf_function_ids": "",
    "_nonstrict_trace_callable_ids": "",  # followed, or an operation of the graph
    "_allowed_callable_ids": "",
}


def marks_of_torch() -> dict[int, str]:
    """Return what torch.compile was told about functions, by id: the reason to break at a call, or "" for none."""
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    said: dict[int, str] = {}
    for name, reason in SETS.items() if rules is not None else ():
        ids = getattr(getattr(rules, name, None), "function_ids", None)
        for each in ids or ():
            said.setdefault(each, reason)
    for name in ("graph_break", "skip_frame", "step_unsupported"):  # its own, which have rows here
        said.pop(id(getattr(sys.modules.get("torch._dynamo.decorators"), name, None)), None)
    return said


def substitute(obj: Any) -> types.FunctionType | None:
    """Return the function that a program gave to `torch.compiler.substitute_in_graph`; torch's own do not count."""
    functions: Any = sys.modules.get("torch._dynamo.variables.functions")
    if functions is None or not callable(obj) or type(obj).__hash__ is None:
        return None
    handlers = functions.PolyfilledFunctionVariable._get_polyfill_handlers()
    body = getattr(handlers.get(obj), "__torch_dynamo_polyfill__", None)
    own = type(body) is types.FunctionType and not (body.__module__ or "").startswith("torch.")
    return body if own else None


class Stance(NamedTuple):
    """Hold the arguments of `torch.compiler.set_stance`."""

    name: str
    backend: Any


def stance() -> Stance:
    """Return the stance as it is now. From then on the hook sees when it changes."""
    module: Any = sys.modules.get(STANCES)
    if module is None:
        return Stance("default", None)
    _native.follow_stance(vars(module))
    return Stance(module._stance.stance, module._stance.backend)


STANCES = "torch._dynamo.eval_frame"


def breaks_are_errors(effects: SideEffects | None = None) -> bool:
    """Return whether `torch._dynamo.error_on_graph_break(True)` is on, perhaps by a frame with these effects."""
    asked: Any = getattr(sys.modules.get(STANCES), "_get_error_on_graph_break", None)
    if asked is None:
        return False
    written = None if effects is None else effects.written(asked.__globals__, "_error_on_graph_break")
    return bool(written.obj if written.__class__ is Known else asked())
