"""The call that is exported, as a frame of one line: `return self(x, mask=mask)`.

Each argument is a local of that frame, under the name that the function gives it, so guards and messages speak of
arguments as the user does. Capture inlines what is called: hooks of modules, decorators and default values are the
call's own business.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from torchdynamo.core.source import Roots, Source, instance_attr

SUBJECT = "self"


class ExampleCall(NamedTuple):
    """A call with example arguments: what is called, and its frame.

    The containers among the arguments are new, so that a capture may change them; their tensors are the user's, but
    that one which was passed twice comes as two.
    """

    fn: Callable[..., Any]
    signature: inspect.Signature
    subject: str  # the local that holds what is called
    code: CodeType
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...]  # a local for each of these
    leaves: list[Any]  # tensors, numbers and so on, in the order of `spec`
    spec: pytree.TreeSpec
    sources: list[Source | None]  # for each leaf, where a frame finds it; None where no path is known
    paths: list[tuple[str, pytree.KeyPath]]  # for each leaf, the name of its argument, and its place in that

    @property
    def locals(self) -> dict[str, Any]:
        """The locals of the frame when it begins."""
        given = zip(self.names, (*self.args, *self.kwargs.values()), strict=True)
        return {self.subject: self.fn, **dict(given)}

    def roots(self, seen: dict[str, Any]) -> Roots:
        """Return what the frame's sources start from; `seen`: the builtins that the program sees."""
        return Roots(self.locals, {"__builtins__": builtins.__dict__, "__name__": __name__}, seen, {})

    def is_argument(self, source: Source | None) -> bool:
        """Return whether a source begins at an argument."""
        root = None if source is None else source.root()
        return root is not None and root.how == "local" and root.arg in self.names


def call_of(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ExampleCall:
    """Return a call as a frame. Raises TypeError for arguments that the function does not take."""
    signature = signature_of(fn)
    bound = signature.bind(*args, **kwargs)  # raises TypeError as the call would
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    own_args, own_kwargs = pytree.tree_unflatten(apart(leaves), spec)
    leaves, spec = pytree.tree_flatten((own_args, own_kwargs))  # a class may copy tensors as it is made
    names = names_of(bound, len(own_args), own_kwargs)
    subject = subject_of(fn, names)
    given = [*names[: len(own_args)], *(f"{name}={name}" for name in own_kwargs)]
    text = f"def call({', '.join([subject, *names])}):\n    return {subject}({', '.join(given)})\n"
    made: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), made)
    given_values = zip(names, (*own_args, *own_kwargs.values()), strict=True)
    paths = [(name, path) for name, value in given_values for path, _ in pytree.tree_flatten_with_path(value)[0]]
    sources = [source_at(Source("local", None, name), path) for name, path in paths]
    return ExampleCall(
        fn, signature, subject, made["call"].__code__, own_args, own_kwargs, names, leaves, spec, sources, paths
    )


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a call of a function or module; of callables that have none, `(*args, **kwargs)`."""
    try:
        return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: None)


def apart(leaves: Sequence[Any]) -> list[Any]:
    """Return the leaves with a copy of each tensor that comes again: an exported program takes each by itself."""
    seen: set[int] = set()
    found = []
    for leaf in leaves:
        again = isinstance(leaf, torch.Tensor) and id(leaf) in seen
        seen.add(id(leaf))
        found.append(leaf.detach().clone().requires_grad_(leaf.requires_grad) if again else leaf)
    return found


def names_of(bound: inspect.BoundArguments, count: int, kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of `count` positional arguments, then those of keywords. Raises TypeError for a keyword that is
    no name.
    """
    found: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            while any(f"{name}_{index}" in kwargs for index in range(count - len(found))):
                name += "_"
            found += [f"{name}_{index}" for index in range(count - len(found))]
        elif len(found) < count and name not in kwargs:
            found.append(name if name != SUBJECT else f"{SUBJECT}_")
    for name in kwargs:
        if not name.isidentifier():
            raise TypeError(f"an exported call takes keywords that are names, not {name!r}")
    return (*found, *kwargs)


def subject_of(fn: Callable[..., Any], names: Sequence[str]) -> str:
    """Return what to call the callable itself, among locals of these names."""
    found = getattr(fn, "__name__", "") if isinstance(fn, (FunctionType, MethodType)) else SUBJECT
    found = found if found.isidentifier() else SUBJECT
    while found in names:
        found += "_"
    return found


def source_at(place: Source, path: pytree.KeyPath) -> Source | None:
    """Return where a leaf of what is at a place is found; None for one behind a class's own flattening."""
    at: Source | None = place
    for key in path:
        at = None if at is None else step(at, key)
    return at


def step(base: Source, key: Any) -> Source | None:
    """Return the source of an item of a container, by torch's name for its place."""
    if isinstance(key, pytree.MappingKey):
        return Source("key", base, key.key)
    if isinstance(key, pytree.SequenceKey):
        return Source("item", base, key.idx)
    return instance_attr(base, key.name) if isinstance(key, pytree.GetAttrKey) else None
