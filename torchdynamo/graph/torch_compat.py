"""Everything that is a fact about one torch version or another, and the slow imports of torch's own parts.

Making a FakeTensorMode imports a good deal of torch (1.5 s), so nothing here is imported before it is needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch._guards
import torch.fx
import torch.utils.checkpoint

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, StatefulSymbolicContext

VAST = 1 << 24
HOLDING = "what holds"
TorchSource = torch._guards.Source
ErrorTypes = tuple[type[Exception], ...]
# How a checkpoint that runs a function again leaves it, once it has what it wants: no failure, wherever it comes from.
STOP_RECOMPUTING: type[Exception] = torch.utils.checkpoint._StopRecomputationError


def make_shape_env(scalars: bool = False, shapes: bool = False) -> ShapeEnv:
    """An environment for numbers without a value. May they be read from tensors? Be sizes that values decide?"""
    made: ShapeEnv = shape_env_type()(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=shapes)
    return made


@cache
def shape_env_type() -> Any:
    """The class of such environments.

    Whether a tensor lies in one piece, and whether it is empty, operators ask all the time, and it is otherwise for
    sizes 0 and 1. What they compute is not. So where `presuming` is set, the answer is that of larger sizes, no fact is
    recorded, and `presumed` counts. A size that is computed from others (what a pooling leaves) may be 1 for large ones
    as well: then it is that of very large ones, where they agree.

    Where `presuming` is HOLDING, that is the answer if it is also the one for the sizes at hand; else these decide,
    with a fact to guard.
    """
    from sympy import And, Eq, Integer, Ne, Or, false, true  # type: ignore[import-untyped]
    from sympy.core.relational import Relational  # type: ignore[import-untyped]
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def about_layout(expr: Any) -> bool:
        if isinstance(expr, (And, Or)):
            return all(about_layout(arg) or (isinstance(arg, Relational) and arg.rhs == 0) for arg in expr.args)
        return isinstance(expr, (Eq, Ne)) or (isinstance(expr, Relational) and not border.isdisjoint(expr.args))

    def about_small(expr: Any) -> bool:
        """Whether something is 0 or 1; a stride may be so many times that: `8 * n != 8`."""
        times, whole = expr.args[0].as_coeff_Mul()[0], expr.args[1]
        return not numbers.isdisjoint(expr.args) or (isinstance(expr, (Eq, Ne)) and whole != 0 and times == whole)

    border = {Integer(1), Integer(2)}  # `n > 1`, `n < 2`
    numbers = {Integer(0), *border}
    chosen = random.Random(0)

    class Environment(ShapeEnv):
        presuming: bool | str = False
        presumed = 0
        where: Callable[[], Any] | None = None  # the line of the program that is being followed

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.places: dict[Any, Any] = {}  # by fact: the line that asked for it
            self.large: dict[Any, bool | None] = {}  # by condition: whether it holds of large sizes

        def of_large_sizes(self, expr: Any) -> bool | None:
            """Whether a size is 0 or 1, or strides are the same, when all is large; None if that does not say."""
            if expr not in self.large:
                self.large[expr] = self._of_large_sizes(expr)
            return self.large[expr]

        def holds(self, expr: Any) -> Any:
            """What a condition is for the sizes at hand, where all of them are known."""
            return expr.xreplace(self.backed_var_to_val)

        def _of_large_sizes(self, expr: Any) -> bool | None:
            if isinstance(expr, (And, Or)):
                parts, either = [self.of_large_sizes(arg) for arg in expr.args], isinstance(expr, Or)
                return either if either in parts else None if None in parts else not either
            symbols = sorted(expr.free_symbols, key=str)
            ranges = [self.var_to_range.get(each) for each in symbols]
            if not symbols or unbacked_symbols(expr) or any(each is None or each.upper < VAST for each in ranges):
                return None
            points = [{each: Integer(chosen.randrange(VAST // 8, VAST)) for each in symbols} for _ in range(6)]
            found = {{true: True, false: False}.get(expr.xreplace(point)) for point in points}
            same = found == ({True} if isinstance(expr, Eq) else {False}) and isinstance(expr, (Eq, Ne))
            return found.pop() if same or (len(found) == 1 and about_small(expr)) else None

        def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
            general = kwargs.get("fallback_value") if self.presuming == HOLDING else None
            wanted = general is not None or (self.presuming and about_layout(orig_expr))
            if wanted and self._maybe_evaluate_static(orig_expr) is None:
                answer = self._maybe_evaluate_static(orig_expr, size_oblivious=True) if general is None else general
                answer = self.of_large_sizes(orig_expr) if answer is None else answer
                if answer is not None and (self.presuming != HOLDING or self.holds(orig_expr) == answer):
                    self.presumed += 1
                    return answer
            before = len(self.guards)
            try:
                return super().evaluate_expr(orig_expr, *args, **kwargs)
            finally:
                if self.where is not None:
                    self.places.update((guard.expr, self.where()) for guard in self.guards[before:])

    return Environment


class Known:
    """What an environment has found out so far, to go back to."""

    HELD = ("guards", "replacements", "var_to_range", "divisible", "axioms")
    REMEMBERING = ("evaluate_expr", "_inner_evaluate_expr", "guard_or_defer_runtime_assert")

    def __init__(self, env: Any) -> None:
        self.env, self.held = env, {name: getattr(env, name, {}).copy() for name in self.HELD}
        self.drawn, self.count = len(env.pending_fresh_unbacked_symbols), env.num_deferred_runtime_asserts
        self.asserts = {symbol: list(facts) for symbol, facts in env.deferred_runtime_asserts.items()}

    def again(self) -> None:
        """What was found out since is forgotten."""
        for name, held in self.held.items():
            setattr(self.env, name, held.copy())
        self.env.deferred_runtime_asserts = {symbol: list(facts) for symbol, facts in self.asserts.items()}
        self.env.num_deferred_runtime_asserts = self.count
        del self.env.pending_fresh_unbacked_symbols[self.drawn :]
        self.env._update_version_counter()  # which goes by how much there is of each
        for counter in ("_version_counter", "_replacements_version_counter"):
            setattr(self.env, counter, getattr(self.env, counter, 0) + 1)
        for name in self.REMEMBERING:  # an answer that is remembered makes no guard
            getattr(getattr(type(self.env), name, None), "cache_clear", bool)()


@contextlib.contextmanager
def presuming(env: Any, whether: bool | str) -> Iterator[None]:
    """While this is open, operators' questions about layouts are answered as for sizes other than 0 and 1: all of them,
    or those whose answer is the same for the sizes at hand (HOLDING)."""
    before, env.presuming = getattr(env, "presuming", False), whether
    try:
        yield
    finally:
        env.presuming = before


def allow_all(env: ShapeEnv) -> None:
    """What is in a graph was let in: whoever traces it again may do all that it does."""
    env.settings = dataclasses.replace(env.settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)


def new_symbol(env: ShapeEnv, value: int, name: str, least: int | None, most: int | None) -> tuple[torch.SymInt, Any]:
    """A symbol with this value now, and its expression."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = NamedSource(name)
    symbol = env.create_symbol(
        value, source, dynamic_dim=DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
    )
    if least is not None:
        keep_between(env, symbol, least, most)
    number = env.create_symintnode(symbol, hint=value, source=source)
    assert isinstance(number, torch.SymInt)
    return number, symbol


def blind_symbol(env: ShapeEnv, least: int | None, most: int | None) -> tuple[torch.SymInt, Any]:
    """A symbol whose value nobody may ask for, and its expression."""
    number = env.create_unbacked_symint()
    symbol = number.node.expr
    env.pending_fresh_unbacked_symbols.remove(symbol)  # no operator is to bring it
    keep_between(env, symbol, least or 0, most)
    return number, symbol


def value_now(number: torch.SymInt) -> int:
    """What a number is made of that has a value."""
    return int(number.node.hint)


def keep_between(env: ShapeEnv, symbol: Any, least: int, most: int | None) -> None:
    """It is a size, with these bounds."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    env.var_to_range[symbol] = ValueRanges(least, int_oo if most is None or most >= (1 << 63) - 1 else most)
    env.size_like.add(symbol)


class NamedSource(TorchSource):
    """Where a symbol comes from, in torch's terms: torch makes its name of this one."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_symbol_name", name)

    _symbol_name: str

    @property
    def _name_template(self) -> str:
        return self._symbol_name

    def __hash__(self) -> int:
        return hash(self._symbol_name)

    def __eq__(self, other: object) -> bool:
        return type(other) is NamedSource and other._symbol_name == self._symbol_name


def static_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """A stand-in for a tensor whose sizes are fixed."""
    with torch._C._DisableFuncTorch():
        return mode.from_tensor(tensor, static_shapes=True, trace=False)


def treating_sizes_alike(alike: bool = True) -> contextlib.AbstractContextManager[Any]:
    """While this is open, sizes 0 and 1 are like any other wherever torch's rules can be had for both."""
    import torch.fx.experimental._config as settings

    patch: Callable[..., contextlib.AbstractContextManager[Any]] = settings.patch  # type: ignore[attr-defined]
    return patch(backed_size_oblivious=alike)


def asking_rules_in_python() -> contextlib.AbstractContextManager[Any]:
    """While this is open, operators made of others go by their parts in Python, which leave sizes open more often."""
    from torch._dispatch.python import enable_python_dispatcher

    opened: contextlib.AbstractContextManager[Any] = enable_python_dispatcher()
    return opened


def unbacked_symbols(number: Any) -> AbstractSet[Any]:
    """What of a number depends on the contents of tensors."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return free_unbacked_symbols(number)


def for_a_backend(env: ShapeEnv) -> ShapeEnv:
    """The environment that a graph was captured in, for tracing the graph once more.

    Whatever the graph reads from tensors may be read. Numbers that capture made belong to no operator of the tracer's.
    """
    env.settings = dataclasses.replace(env.settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    env.pending_fresh_unbacked_symbols.clear()
    return env


# What raises where sizes do not fit. Most operators go on if one of two sizes is 1.
_CHECKS = {torch._check, torch._check_index, torch._check_value, torch._check_type, torch._check_not_implemented}
_SHAPING = (
    "view",
    "reshape",
    "unflatten",
    "matmul",
    "mm",
    "bmm",
    "linear",
    "split",
    "narrow",
    "index_select",
    "select",
    "pad",
    "topk",
    # of these, that sizes are not negative
    *("zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "eye", "arange", "repeat"),
    *("new_zeros", "new_ones", "new_full", "new_empty"),
)


def insists(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether what the operation takes for granted of sizes is so, or it raises itself."""
    if target is operator.getitem:  # slices know their sizes; several tensors as indices are broadcast
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return sum(isinstance(each, (torch.fx.Node, list)) for each in index) < 2
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return target in _CHECKS or name in _SHAPING


def takes_symbols(fn: Any) -> Any:
    """A function that does the same and takes torch's symbolic numbers, which `fn` would ask for their values."""
    if fn is not torch.tensor and fn is not torch.as_tensor:
        return fn
    from torch._refs import tensor

    return tensor


def forget_contents(fakes: Iterable[Any]) -> None:
    """Of stand-ins made of constants torch knows the contents, and computes with them: with symbols it cannot."""
    for fake in fakes:
        if getattr(fake, "constant", None) is not None:
            fake.constant = None


def is_symbolic(value: Any) -> bool:
    """Whether there are symbolic numbers among these."""
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


@cache
def fake_tensor_type() -> type[torch.Tensor]:
    """The class of stand-ins."""
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def in_transform() -> bool:
    """Whether a layer of torch.func or of forward-mode differentiation is open."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


# What a stand-in holds besides its metadata; all else is None unless a value was read from it or is known.
_STANDING = frozenset({"_fake_device", "fake_device", "fake_mode", "_is_param"})


def is_mere_metadata(fake: torch.Tensor) -> bool:
    """Whether there is no more to a stand-in than its metadata."""
    return all(value is None or name in _STANDING for name, value in vars(fake).items())


def state_of(fake: torch.Tensor) -> dict[str, Any]:
    """What a stand-in holds as a Python object: nothing of its own, if it is mere metadata."""
    return dict(vars(fake))


def stand_in(
    state: dict[str, Any],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
    memory: torch.UntypedStorage | None,
) -> torch.Tensor:
    """What the constructor of stand-ins makes, without its checks: a leaf with this state."""
    inner = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
    if memory is not None:
        inner.set_(memory, offset, sizes, strides)
    fake = torch.Tensor._make_subclass(
        fake_tensor_type(), inner, requires_grad, dispatch_device=True, device_for_backend_keys=device
    )
    torch._C._set_throw_on_mutable_data_ptr(fake)
    vars(fake).update(state)
    return fake


def has_usual_gradient(tensor: torch.Tensor) -> bool:
    """Whether a leaf's gradient would have the leaf's own type."""
    return not tensor.requires_grad or getattr(tensor, "grad_dtype", tensor.dtype) is tensor.dtype


def introduce(mode: FakeTensorMode, tensor: torch.Tensor, fake: Any) -> None:
    """Tell a world which stand-in a tensor has, and its memory: views of it are then views of the stand-in."""
    known = mode.fake_tensor_converter.meta_converter
    known.tensor_memo[known.describer.get_tensor_id(tensor)] = fake
    known.storage_memo[known.describer.get_storage_id(tensor.untyped_storage())] = fake.untyped_storage()


def static_context(tensor: torch.Tensor, source: TorchSource) -> StatefulSymbolicContext:
    """Says, in torch's terms, that every size of this tensor is fixed."""
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        StatefulSymbolicContext,
    )

    rank = tensor.dim()
    base = tensor._base
    return StatefulSymbolicContext(
        dynamic_sizes=[DimDynamic.STATIC] * rank,
        dynamic_strides=[DimDynamic.INFER_STRIDE] * rank,
        constraint_sizes=[None] * rank,
        constraint_strides=[None] * rank,
        view_base_context=None if base is None else static_context(base, source),
        tensor_source=source,
        shape_env_to_source_to_symbol_cache={},
    )


def data_dependent_errors() -> ErrorTypes:
    """Raised where a Python value was asked of a tensor."""
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return DataDependentOutputException, GuardOnDataDependentSymNode


def undecided(raised: Exception) -> Any:
    """The condition on unknown numbers that this was raised about; None for anything else."""
    return getattr(raised, "cond", None)


def equated(condition: Any) -> tuple[Any, ...]:
    """The two sides of a condition that says that they are the same; nothing of any other."""
    from sympy import Eq

    return tuple(condition.args) if isinstance(condition, Eq) else ()


def as_python(condition: Any) -> str:
    """A condition as a programmer writes it."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(condition))


def dynamic_shape_errors() -> ErrorTypes:
    """Raised where the numbers in a tensor decide a shape."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException

    return (DynamicOutputShapeException,)


def unsupported_errors() -> ErrorTypes:
    """Raised where an operator has no rule for metadata. A missing Meta kernel is a NotImplementedError."""
    from torch._subclasses.fake_tensor import (
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
    )

    return UnsupportedOperatorException, UnsupportedFakeTensorException, NotImplementedError


def internal_errors() -> ErrorTypes:
    """Raised by the machinery of stand-ins about itself."""
    from torch._subclasses.fake_tensor import (
        MetadataMismatchError,
        UnsupportedMutationAliasingException,
    )

    return MetadataMismatchError, UnsupportedMutationAliasingException


# Methods that answer from a tensor's memory. A stand-in has none; some of these would answer all the same.
MEMORY_METHODS = frozenset(
    {"data_ptr", "const_data_ptr", "mutable_data_ptr", "storage", "untyped_storage", "_typed_storage", "numpy"}
    | {"__array__", "__dlpack__", "share_memory_", "is_shared", "pin_memory", "is_pinned", "is_set_to"}
)

# Functions that change how the operations after them run, in this thread. A trace of tensors alone would lose them.
MODE_CHANGES = frozenset(
    {torch._C._set_grad_enabled, torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast}
    | {torch.autograd.grad_mode._enter_inference_mode, torch.autograd.grad_mode._exit_inference_mode}
    | {torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled}
)

# What opens and closes layers of torch.func.
OPENERS, CLOSERS = (
    frozenset(getattr(torch._C._functorch, f"_{kind}_{way}_nesting") for kind in ("vmap", "grad", "jvp"))
    for way in ("increment", "decrement")
)


def close_layers(depth: int) -> None:
    """Close the layers of torch.func above this many, in the way of what opened them and never came to its end."""
    functorch = torch._C._functorch
    kinds = functorch.TransformType
    closers = {
        kinds.Vmap: functorch._vmap_decrement_nesting,
        kinds.Grad: functorch._grad_decrement_nesting,
        kinds.Jvp: functorch._jvp_decrement_nesting,
    }
    while count_layers() > depth:
        kind = functorch.peek_interpreter_stack().key()
        if kind == kinds.Jvp:
            with contextlib.suppress(RuntimeError):  # it says that none is open
                torch._C._exit_dual_level(level=0)
        closers[kind]()


def count_layers() -> int:
    """How many layers of torch.func are open."""
    return torch._C._functorch.get_dynamic_layer_stack_depth()


# Operations on the leaves of autograd's history, and what asks for gradients.
LEAF_MAKERS = frozenset({"requires_grad_", "detach_", setattr, torch.nn.Parameter, inspect.unwrap(torch.autograd.grad)})


def is_layered(value: Any) -> bool:
    """Whether stand-ins wrapped for a layer of torch.func are among these (nodes count as their examples)."""
    if isinstance(value, torch.fx.Node):
        return is_layered(value.meta.get("example_value"))
    if isinstance(value, (tuple, list)):
        return any(map(is_layered, value))
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


# Parts of messages that only a tensor without memory gives: eager would not have raised these.
_NO_MEMORY = (
    "doesn't have storage",
    "data is not allocated yet",
    "Cannot copy out of meta tensor",
    "data pointer of Tensor",
    "fake tensor",
    "FakeTensor",
    "meta tensor",
    "Meta backend",
    "invalid python storage",
)


def is_fake_limitation(raised: Exception) -> bool:
    """Whether the message speaks of missing memory rather than of the user's arguments."""
    text = str(raised)
    return isinstance(raised, RuntimeError) and any(part in text for part in _NO_MEMORY)


def name_hint(graph: torch.fx.Graph, target: Any) -> str:
    """What torch.fx calls a node after."""
    return graph._target_to_str(target)


@contextlib.contextmanager
def nobody_saves() -> Iterator[None]:
    """Hooks on saved tensors are the user's, for the user's tensors: they see no stand-ins."""
    hooks = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def has_fakes(values: Iterable[Any]) -> bool:
    """Whether any of these is a stand-in."""
    fake = fake_tensor_type()
    return any(isinstance(value, fake) for value in values)


def take_inputs_in_a_list(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """The graph as a function of one list, which it empties: what is not needed any more goes while it runs."""
    from torch.fx.graph import _BoxedCodeGen

    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    return gm.forward


def mark_graph(gm: torch.fx.GraphModule) -> None:
    """Tell AOTAutograd and Inductor that the graph's placeholders say where they come from and which are static."""
    gm.meta["dynamo_compile_id"] = None
    gm._param_name_to_source = {}  # type: ignore[assignment]


def mark_placeholder(node: torch.fx.Node, source: TorchSource, static: bool) -> None:
    """One input of such a graph."""
    node._dynamo_source = source
    node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"} if static else {}


def compiled_node(outputs: Any) -> Any:
    """The node of autograd's history that stands for a graph compiled by AOTAutograd; None if there is none."""
    for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        node = getattr(output, "grad_fn", None) if isinstance(output, torch.Tensor) else None
        if hasattr(getattr(node, "_forward_cls", None), "_double_backward"):
            return node
    return None


def compiled_class(node: Any) -> Any:
    """The autograd function of such a node."""
    return node._forward_cls


def writes_to_what_is_saved(cls: Any) -> bool:
    """Whether the backward that runs now is to be kept, and has kernels that use up what it has saved."""
    given_away: Any = getattr(getattr(cls, "metadata", None), "bw_donated_idxs", None)
    return bool(given_away) and torch._C._autograd._get_current_graph_task_keep_graph()


@contextlib.contextmanager
def nothing_given_away(cls: Any) -> Iterator[None]:
    """As if that backward had no such kernels: it refuses to be kept."""
    known, cls.metadata.bw_donated_idxs = cls.metadata.bw_donated_idxs, []
    try:
        yield
    finally:
        cls.metadata.bw_donated_idxs = known


def given_gradients(cls: Any, grads: tuple[Any, ...]) -> Sequence[Any]:
    """What autograd hands to its backward, which from torch 2.13 on may come in a list that it may empty."""
    return grads[0] if _takes_a_list(cls, grads) else grads


def as_given(cls: Any, grads: tuple[Any, ...], other: list[Any]) -> tuple[Any, ...]:
    """Other gradients, handed over as these were."""
    return (other,) if _takes_a_list(cls, grads) else tuple(other)


def _takes_a_list(cls: Any, grads: tuple[Any, ...]) -> bool:
    return getattr(cls, "boxed_grads_call", False) and len(grads) == 1 and isinstance(grads[0], list)


def first_result(cls: Any, inputs: int) -> int | None:
    """Where the captured graph's results begin among its own, after inputs that were written to. None, if it has views
    among them, or inputs that it has merged, or has written to one that has a gradient."""
    meta = cls.metadata
    written = [meta.input_info[at] for at in meta.mutated_inp_runtime_indices]
    if meta.num_outputs_aliased or meta.num_intermediate_bases or len(meta.input_info) != inputs:
        return None
    return None if any(each.requires_grad for each in written) else len(written)


def hooked_leaves(node: Any, count: int) -> set[int]:
    """By place, inputs with hooks of their own. Autograd calls these whether or not there is a gradient."""
    leaves = [getattr(step, "variable", None) for step, _ in node.next_functions]
    found = {at for at, leaf in enumerate(leaves) if getattr(leaf, "_backward_hooks", 0) or _after_gradients(leaf)}
    return found if len(leaves) == count or not found else set(range(count))  # numbers among the inputs have no step


def _after_gradients(leaf: Any) -> Any:
    return getattr(leaf, "_post_accumulate_grad_hooks", None)


def zeros_for(node: Any, at: int) -> torch.Tensor:
    """What autograd hands over where a result has no gradient."""
    like = node._input_metadata[at]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def returns_as_captured(cls: Any, count: int) -> bool:
    """Whether its `count` results are the captured graph's, one for one: no inputs written to, no views among them."""
    meta = cls.metadata
    return (
        count == len(meta.output_info)
        and not meta.num_mutated_inp_runtime_indices
        and not meta.num_outputs_aliased
        and not meta.num_intermediate_bases
    )
