"""Register backends, look them up by name, and explain why something is none."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, overload

import torch
import torch.fx

from torchdynamo.backends.retired import RETIRED
from torchdynamo.capture.vm import torch_settings
from torchdynamo.errors import UnknownBackend

Backend: TypeAlias = Callable[..., Any]
"""(gm, example_inputs) -> a callable that takes the graph's inputs, or None: "not this graph"."""
B = TypeVar("B", bound=Callable[..., Any])

BACKENDS: dict[str, Backend] = {}
"""Name -> backend. The rows of packages or hardware that are not here decline every graph."""


@overload
def register_backend(fn: B, *, name: str | None = None) -> B: ...
@overload
def register_backend(fn: None = None, *, name: str | None = None) -> Callable[[B], B]: ...
def register_backend(fn: B | None = None, *, name: str | None = None) -> B | Callable[[B], B]:
    """Register a backend under a name and return it. Also a decorator, with or without a name.

    fn: a function `(gm, example_inputs) -> callable`, which returns None to decline a graph.
    name: the name that `compile(backend=...)` takes; by default that of the function.

    Raises TypeError for something that cannot be called as `fn(gm, example_inputs)` or has no name, ValueError for a
    name that is taken.
    """
    if fn is None:
        return lambda function: register_backend(function, name=name)
    label = name or getattr(fn, "__name__", None)
    if not isinstance(label, str):
        raise TypeError(f"register_backend needs name=... for {fn!r}, which has no __name__")
    complaint = why_not_a_backend(fn)
    if complaint:
        raise TypeError(f"register_backend({label!r}): {complaint}")
    if BACKENDS.setdefault(label, fn) is not fn:
        raise ValueError(f"there is a backend called {label!r} already")
    return fn


def list_backends() -> list[str]:
    """Return the names that `optimize` and `compile` accept, sorted."""
    return sorted(BACKENDS.keys() - RETIRED.keys())


def lookup(backend: str | Backend) -> Backend:
    """Return the backend of that name, or the function itself.

    A name that is not ours may be one that the program has registered with PyTorch, or that an installed package has
    by an entry point for PyTorch.

    Raises UnknownBackend for a name that is not registered, TypeError for something that cannot be a backend.
    """
    if not isinstance(backend, str):
        complaint = why_not_a_backend(backend)
        if complaint:
            raise TypeError(complaint)
        return backend
    if backend in RETIRED:
        raise UnknownBackend(f"backend {backend!r} was removed: {RETIRED[backend]}")
    found = BACKENDS.get(backend) or torch_settings.registered_backend(backend) or _of_a_package(backend)
    if found is not None:
        return found
    near = difflib.get_close_matches(backend, list_backends(), n=1)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    raise UnknownBackend(f"no backend is called {backend!r}; {hint} {', '.join(list_backends())}")


GROUP = "torch_dynamo_backends"  # of entry points by which packages give backends to PyTorch


def _of_a_package(name: str) -> Backend | None:
    """Return the backend of this name of an installed package; None if there is none. Imports the package."""
    for found in importlib.metadata.entry_points(group=GROUP, name=name):
        backend: Backend = found.load()
        return backend
    return None


def fixed_sizes(backend: B) -> B:
    """Mark a backend that takes no symbols: it gets one graph for each set of input sizes."""
    backend.fixed_sizes = True  # type: ignore[attr-defined]
    return backend


def takes_wrappers(backend: B) -> B:
    """Mark a backend that takes tensors of wrapper subclasses, as AOTAutograd does."""
    backend.takes_wrappers = True  # type: ignore[attr-defined]
    return backend


def runs_as_captured(backend: B) -> B:
    """Mark a backend that compiles nothing: it gets graphs whole, whatever they call."""
    backend.runs_as_captured = True  # type: ignore[attr-defined]
    return backend


def tries_graphs(backend: B) -> B:
    """Mark a backend that runs graphs beside their calls, to see what they do: it gets none that communicate."""
    backend.tries_graphs = True  # type: ignore[attr-defined]
    return backend


def rests_on(facts: Callable[..., str]) -> Callable[[B], B]:
    """Mark a backend whose results rest on more than the graph and its settings.

    facts: takes the settings `mode` and `options`, and returns as text what else they rest on now; "" for nothing.
    """

    def marked(backend: B) -> B:
        backend.facts = facts  # type: ignore[attr-defined]
        return backend

    return marked


def facts_of(backend: Backend) -> Callable[..., str]:
    """Return the function that `rests_on` has named."""
    found: Callable[..., str] = getattr(backend, "facts", lambda mode, options: "")
    return found


def has_mark(backend: Backend, name: str) -> bool:
    """Return whether a backend, or the function behind a `functools.partial`, has this mark (`fixed_sizes`, ...)."""
    while isinstance(backend, functools.partial):
        backend = backend.func
    return bool(getattr(backend, name, False))


def is_from_here(backend: Backend) -> bool:
    """Return whether a backend, or the function behind a `functools.partial`, is of this package."""
    while isinstance(backend, functools.partial):
        backend = backend.func
    return str(getattr(backend, "__module__", "")).startswith("torchdynamo.")


def backend_name(backend: Backend) -> str:
    """Return the name of a backend for messages."""
    for name, function in BACKENDS.items():
        if function is backend:
            return name
    while hasattr(backend, "func"):  # functools.partial
        backend = backend.func
    return str(getattr(backend, "__name__", type(backend).__name__))


def is_ours(backend: Backend) -> bool:
    """Return whether this is a backend of this package, which is known by its name."""
    name = backend_name(backend)
    return BACKENDS.get(name) is backend and getattr(backend, "__module__", "").startswith("torchdynamo.")


def why_not_a_backend(candidate: Any) -> str | None:
    """Return a sentence that says why this is no backend; None if it may be one."""
    name = getattr(candidate, "__name__", type(candidate).__name__)
    if not callable(candidate):
        return f"a backend is a name or a function (gm, example_inputs) -> callable, not {candidate!r}"
    if isinstance(candidate, torch.nn.Module):
        return _misplaced(f"this {type(candidate).__name__} is a model", "model")
    if inspect.iscoroutinefunction(candidate) or inspect.isgeneratorfunction(candidate):
        return _misplaced(f"{name} is a coroutine or generator function", name)
    try:
        signature = inspect.signature(candidate)
    except (TypeError, ValueError):
        return None  # some C functions have no signature
    try:
        signature.bind(None, None)
    except TypeError:
        return _misplaced(f"{name}{signature} cannot be called with those two", name)
    return None


def _misplaced(what: str, name: str) -> str:
    return (
        f"a backend is called with (gm, example_inputs) and returns a callable, but {what}. "
        f"To compile it, write torchdynamo.compile({name}) or torchdynamo.optimize()({name})"
    )


def discover(package: ModuleType) -> Sequence[str]:
    """Import every module of a package, each of which registers its own backend; return their names."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")]
    for name in names:
        importlib.import_module(name)
    return names
