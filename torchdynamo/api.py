"""The public functions: compile, optimize, run, disable, explain, reset, and marks on single functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, MethodType
from typing import Any, TypeVar, overload

import torch

from torchdynamo import events, pipeline
from torchdynamo.backends import lookup
from torchdynamo.backends.padding import buckets_in
from torchdynamo.backends.settings import check_settings, nearest, without_guard_filters
from torchdynamo.capture.vm import torch_settings
from torchdynamo.contexts import EvalContext, without_compiler
from torchdynamo.core import marks
from torchdynamo.core.reasons import REASONS
from torchdynamo.errors import UnknownSetting
from torchdynamo.hook.install import drop_owner, skip_code
from torchdynamo.optimized_module import OptimizedModule
from torchdynamo.report.explain import Explanation, collecting, members_of
from torchdynamo.report.guard_failures import GuardFail
from torchdynamo.report.summary import report_of
from torchdynamo.report.timing import timed_graphs

F = TypeVar("F", bound=Callable[..., Any])
Backend = Callable[..., Any]

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: None = None,
    dynamic_shapes: None = None,
) -> F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: None = None,
    dynamic_shapes: None = None,
) -> Callable[[F], F]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: None = None,
    dynamic_shapes: None = None,
) -> Any:
    """Return a function or nn.Module that is compiled when it is first called, and again for inputs of another kind.

    Accepts the arguments of `torch.compile`, and is a decorator if `model` is left out.

    model: a function, method, callable object or nn.Module; or a class, for all calls of its instances.
    fullgraph: raise `exc.Unsupported` if the program cannot be one graph, instead of breaking the graph.
    dynamic: True makes sizes symbols from the first call on; False specializes every size; None, the default, makes a
        size a symbol once it has changed.
    backend: a name (`list_backends()`, and those that packages register with PyTorch), a function
        `(gm, example_inputs) -> callable`, or None for `torch.compiler.get_default_backend()`, which is "inductor"
        unless the program has set another.
    mode, options: settings of the backend, such as Inductor's "reduce-overhead".
    name: a name of the compiled function, for messages.
    disable: return `model` unchanged.
    recompile_limit: versions of each function, in place of `config.cache_size_limit`.
    isolate_recompiles: share no versions with functions that are compiled with the same settings elsewhere.
    shapes_spec, dynamic_shapes: not supported; mark sizes by `mark_dynamic`, `mark_static` and `mark_unbacked`.

    Raises TypeError, ValueError, `exc.UnknownBackend` or `exc.UnknownSetting` for wrong arguments.
    """
    backend = torch_settings.default_backend() if backend is None else backend
    options = without_guard_filters(options)
    _check(fullgraph, dynamic, backend, mode, options)
    _check_limits(recompile_limit, isolate_recompiles)
    _refuse(shapes_spec=shapes_spec, dynamic_shapes=dynamic_shapes)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is a string, not {name!r}")
    if disable:
        return (lambda fn: fn) if model is None else model
    settings: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode}
    settings |= {"options": options, "recompile_limit": recompile_limit}
    compiler = pipeline.Compiler(**settings) if isolate_recompiles else pipeline.compiler_for(**settings)
    remake = functools.partial(compile, **settings, name=name, isolate_recompiles=isolate_recompiles)
    context = EvalContext(compiler, f"compile({name or _named(model)})", remake)
    return context if model is None else context(model)


def compile_in_place(module: torch.nn.Module, **settings: Any) -> None:
    """Compile calls of an nn.Module without wrapping it, as `module.compile()` does by torch.compile.

    module: calls of it, hooks included, run compiled from then on; it remains the same object. Its copies, and what is
        pickled of it, are not compiled. Called again, it replaces the settings.
    settings: the arguments of `compile`, but for `model`.

    Raises TypeError if `module` is no nn.Module, and what `compile` raises.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"compile_in_place takes an nn.Module, not {module!r}; for functions there is compile")
    if isinstance(module, OptimizedModule):
        module = module._orig_mod
    module._compiled_call_impl = compile(module._call_impl, **settings)


def optimize(
    backend: str | Backend = "inductor",
    *,
    nopython: bool = False,
    guard_fail_fn: Callable[[GuardFail], object] | None = None,
) -> EvalContext:
    """Compile all that runs inside of a `with` block, or of a decorated function, method or nn.Module.

    backend: a name (`list_backends()`) or a function `(gm, example_inputs) -> callable`.
    nopython: raise `exc.Unsupported` at the first graph break.
    guard_fail_fn: called before a function is compiled again, once for each of its entries, the newest first, with an
        object that has `reason` and `orig_code`.

    Raises TypeError, ValueError or `exc.UnknownBackend` for wrong arguments.
    """
    _check(nopython, None, backend, None, None, fullgraph_name="nopython")
    settings: dict[str, Any] = {"fullgraph": nopython, "backend": backend}
    compiler = pipeline.compiler_for(**settings, guard_fail_fn=guard_fail_fn)
    return EvalContext(compiler, f"optimize({_named(backend)})", functools.partial(compile, **settings))


@overload
def run(fn: F) -> F: ...
@overload
def run(fn: None = None) -> EvalContext: ...
def run(fn: Any = None) -> Any:
    """Use existing compiled code but compile nothing new, inside of a `with` block or a decorated function.

    fn: a function or nn.Module to decorate; without it, the result is a context manager and a decorator.
    """
    context = EvalContext(False, "run()", run)
    return context if fn is None else context(fn)


@overload
def disable(fn: F, recursive: bool = True) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = True) -> EvalContext: ...
def disable(fn: Any = None, recursive: bool = True) -> Any:
    """Run plain Python, calls included, inside of a `with` block or a decorated function.

    Functions that are decorated by `compile` or `optimize` themselves are still compiled.

    fn: a function or nn.Module to decorate; without it, the result is a context manager and a decorator.
    recursive: False leaves only the function's own frame to Python, as `skip` does.
    """
    if not recursive:
        return skip(fn)
    context = EvalContext(None, "disable()", disable)
    return context if fn is None else context(fn)


@overload
def skip(fn: F) -> F: ...
@overload
def skip(fn: None = None) -> Callable[[F], F]: ...
def skip(fn: Any = None) -> Any:
    """Do not compile this function's own frame; functions that it calls may still be compiled.

    fn: a function, method or nn.Module, whose `forward` is meant; without it, the result is a decorator.

    Raises TypeError for anything else.
    """
    if fn is None:
        return skip
    code = _code_of(fn)
    marks.SKIPPED.add(code)
    skip_code(code, REASONS["skipped function"])
    return fn


def allow_in_graph(fn: F) -> F:
    """Make each call of this function one node of the graph, without inlining it.

    fn: a function that only computes on tensors, or a list of such.

    Raises TypeError for something that is not callable, and for bound methods.
    """
    return _mark(fn, marks.ALLOWED, marks.DISALLOWED)


def disallow_in_graph(fn: F) -> F:
    """Break the graph before each call of this function, which then runs in Python.

    fn: a function, or a list of functions.

    Raises TypeError for something that is not callable, and for bound methods.
    """
    return _mark(fn, marks.DISALLOWED, marks.ALLOWED)


def assume_constant_result(fn: F) -> F:
    """Call this function once, during capture, and use its result as a constant from then on.

    fn: a function that always returns the same, or a list of such.

    Raises TypeError for something that is not callable, and for bound methods.
    """
    return _mark(fn, marks.CONSTANT, None)


def reset() -> None:
    """Drop all compiled entries and what was learned about functions. Settings and registered backends stay."""
    pipeline.reset()


def explain(
    fn: Callable[..., Any],
    *,
    backend: str | Backend = "eager",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: Mapping[str, Any] | None = None,
    calls: int = 1,
) -> Callable[..., Explanation]:
    """Return a function that calls `fn`, compiled afresh, and reports graphs, breaks, recompiles and guards.

    fn: a function or nn.Module; of a compiled one, what it was made of.
    backend, fullgraph, dynamic, options: as of `compile`. With backend "ensemble", the report shows what
        became of each member.
    calls: how often `fn` is called; after the first call, what each break costs is measured.

    Use it as `print(torchdynamo.explain(fn)(*args))`. The calls are real, with their side effects. Existing compiled
    code is neither used nor changed.

    Raises what `compile` raises for wrong arguments, and what `fn` raises.
    """
    _check(fullgraph, dynamic, backend, None, options)
    if type(calls) is not int or calls < 1:
        raise ValueError(f"calls is a number of calls, at least 1, not {calls!r}")
    target = fn._orig_mod if isinstance(fn, OptimizedModule) else without_compiler(fn)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        compiler = pipeline.Compiler(backend, fullgraph=fullgraph, dynamic=dynamic, options=options)
        seen = set(events.skips())
        try:
            with collecting() as frames, events.collecting() as found, timed_graphs() as graph_calls:
                compiled = EvalContext(compiler, "explain()", compile)(target)
                for _ in range(calls):
                    result = compiled(*args, **kwargs)
            skipped = [each for each in events.skips() if each not in seen]
            name = _named(target)
            report = report_of(found, title=name, graph_calls=list(graph_calls), calls=calls, skipped=skipped)
            members = members_of(frames)
        finally:
            drop_owner(compiler.owner_id)
        return Explanation(name, frames, report, result, members)

    return explained


def _mark(fn: Any, add: marks.MarkSet, remove: marks.MarkSet | None) -> Any:
    for one in fn if isinstance(fn, (list, tuple)) else (fn,):
        if not callable(one):
            raise TypeError(f"expected a function, got {one!r}")
        if isinstance(one, MethodType):
            raise TypeError(f"{one!r} is made anew by every look-up; mark the function it belongs to in its class")
        add.add(one)
        if remove is not None:
            remove.discard(one)
    return fn


def _code_of(fn: Any) -> CodeType:
    target = type(fn).forward if isinstance(fn, torch.nn.Module) else inspect.unwrap(fn)
    code = getattr(target, "__code__", None)
    if not isinstance(code, CodeType):
        raise TypeError(f"skip takes a Python function, method or nn.Module, not {fn!r}")
    return code


def _named(thing: Any) -> str:
    if thing is None:
        return ""
    return repr(thing) if isinstance(thing, str) else getattr(thing, "__name__", type(thing).__name__)


def _check(
    fullgraph: Any, dynamic: Any, backend: Any, mode: Any, options: Any, fullgraph_name: str = "fullgraph"
) -> None:
    """Check arguments where they are written, rather than at the first call. Raises TypeError, ValueError,
    UnknownBackend or UnknownSetting.
    """
    if not isinstance(fullgraph, bool):
        raise TypeError(f"{fullgraph_name} is True or False, not {fullgraph!r}")
    if dynamic not in (None, True, False):
        raise TypeError(f"dynamic is True, False or None, not {dynamic!r}")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options is a dict of backend settings, not {options!r}")
    if mode is not None and mode not in MODES:
        hint = nearest(mode, MODES) if isinstance(mode, str) else ""
        raise UnknownSetting(f"there is no mode {mode!r}; the modes are {', '.join(map(repr, MODES))}{hint}")
    rest = buckets_in(options)[1]
    if mode not in (None, "default") and rest:
        raise UnknownSetting("a mode is a set of options: give mode or options, not both (buckets go with a mode)")
    check_settings(lookup(backend), mode, rest)


def _check_limits(recompile_limit: Any, isolate_recompiles: Any) -> None:
    """Check the arguments of `compile` that concern versions. Raises TypeError or ValueError."""
    if recompile_limit is not None and type(recompile_limit) is not int:
        raise TypeError(f"recompile_limit is a number or None, not {recompile_limit!r}")
    if recompile_limit is not None and recompile_limit < 1:
        raise ValueError(f"recompile_limit must be at least 1, not {recompile_limit}")
    if not isinstance(isolate_recompiles, bool):
        raise TypeError(f"isolate_recompiles is True or False, not {isolate_recompiles!r}")


def _refuse(**specifications: Any) -> None:
    """Raise UnknownSetting for a specification of sizes, by the name of the argument: torch.compile has renamed it."""
    for name, given in specifications.items():
        if given is not None:
            raise UnknownSetting(
                f"{name} is not supported: mark sizes of example inputs by torchdynamo.mark_dynamic, mark_static and "
                "mark_unbacked, or write dynamic=True"
            )
