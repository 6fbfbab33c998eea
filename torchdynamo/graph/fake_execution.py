"""Run operations on fake tensors before they become nodes: to know what they give, and that they are possible."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.core.call_sites import Call, call
from torchdynamo.core.signals import Assumption, Retry
from torchdynamo.graph import fake_mode, quiet, rules, shape_env, torch_compat, wrappers
from torchdynamo.graph.errors import UnknownFact, UnsupportedOperator, UnsupportedTensor, classify
from torchdynamo.graph.fake_cache import MISSING, FakeCache
from torchdynamo.graph.numbers import Numbers
from torchdynamo.graph.quiet import trying
from torchdynamo.graph.recording import WorldRecord, recording_mode, storage_of, storages_of
from torchdynamo.graph.recurrent import without_fixed_length

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

Node = torch.fx.Node
Target = Callable[..., Any] | str
_AS_IS = contextlib.nullcontext()


class FakeExecution:
    """Runs operations on fake tensors, in the world of one graph, and remembers what they gave."""

    def __init__(self, numbers: Numbers, record: WorldRecord) -> None:
        self.graph = torch.fx.Graph()
        self.numbers = numbers
        self.record = record
        self.calling: Callable[[], Call] = lambda: call  # operators, from the program's line
        self._memory: dict[Node, list[torch.UntypedStorage | None]] = {}  # of inputs, as they were at entry
        self.wrapped = False  # there are tensors of wrapper subclasses
        self._presumed: set[int] = set()  # memory that operators were told presumptions about

    @cached_property
    def fake_mode(self) -> FakeTensorMode:
        """The world the fake tensors live in."""
        quiet.install()
        return recording_mode(self.numbers.env, self.record)

    @cached_property
    def fake_cache(self) -> FakeCache:
        """Return the results of operations that were run before."""
        return FakeCache(self.record)

    def example(self, op: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the operation would give, without adding it to the graph."""
        if op == "call_method" and target in torch_compat.MEMORY_METHODS:
            raise UnsupportedOperator(target, "it needs the tensor's memory")
        self.fake_cache.latest = None
        question = self.fake_cache.question(op, target, args, kwargs)
        if question is not None:
            known = self.fake_cache.recall(question)
            if known is not MISSING:
                return known
        draws, presumed = self.record.draws, self.numbers.presumed()
        self.record.latest.clear()
        self.record.copies.clear()
        fake_args, fake_kwargs = examples(args), examples(kwargs)
        contents = self._contents(fake_args, fake_kwargs) if self.wrapped else []
        asked, known = target, shape_env.Snapshot(self.numbers.env) if self.numbers else None
        if target is setattr:  # `.data =` puts other memory in the place of this
            self.record.replace(fake_args[0])
        if shape_env.is_symbolic(fake_args):
            target = torch_compat.takes_symbols(target)
            torch_compat.forget_contents(tensors_in([*fake_args[:1], *filter(is_shaped, fake_args[1:])]))
        target = rules.FUNCTIONS.get(target, target)
        try:
            if known is not None:
                target = without_fixed_length(target, fake_args)
                result = self._try_with_numbers(known, op, target, fake_args, fake_kwargs)
            else:
                result = self._try(op, target, fake_args, fake_kwargs, _AS_IS)
        except Exception as raised:
            self.fake_cache.known_metadata.forget()
            about = shape_env.undecided(raised)
            fault = classify(target, raised) if about is None else UnknownFact(target, self._said(about), [about])
            raise fault from raised
        if known is not None:
            self._assume_nothing(known, asked, args)
            self._note_presumed(presumed, result)
        self._check(target, result)
        if contents != (self._contents(fake_args, fake_kwargs) if contents else []):
            raise UnsupportedOperator(target, "it replaces what is inside of a tensor")
        self.fake_cache.learn(question, result, self.record.draws > draws)
        return result

    def _contents(self, args: Any, kwargs: Any) -> list[Any]:
        """Return what is inside of wrappers among arguments: operators may write to it, but not replace it."""
        found = filter(wrappers.is_wrapper, tensors_in([args, [*kwargs.values()]]))
        return [([id(part) for _, part in wrappers.parts(each)], wrappers.context_of(each)) for each in found]

    def _try(self, op: str, target: Any, args: Any, kwargs: Any, manner: contextlib.AbstractContextManager[Any]) -> Any:
        """Run an operation on fake tensors."""
        trying.now = True
        try:
            with self.fake_mode, manner:
                fn, given = (getattr(args[0], target), args[1:]) if op == "call_method" else (target, args)
                return self.calling()(fn, given, kwargs)
        finally:
            trying.now = False

    def _assume_nothing(self, known: shape_env.Snapshot, target: Target, args: tuple[Any, ...]) -> None:
        """Forget what an operator has assumed of unknown numbers, and refuse the operator."""
        assumed = self.numbers.assumed_since(known)
        if assumed and not torch_compat.raises_if_wrong(target, args):
            known.again()
            self.fake_cache.known_metadata.forget()
            raise UnknownFact(target, " and ".join(map(self._said, assumed)), assumed)

    def _try_with_numbers(self, known: shape_env.Snapshot, op: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Try an operation where sizes have no value. What cannot be told for all of them is told by what they are now:
        first only where that is not what holds in general, then whatever an operator asks.
        """
        try:
            result = self._try(op, target, args, kwargs, self._with_numbers())
            slicing = self.numbers.drawn() > known.drawn and is_slicing(target, args)
            self.numbers.sliced |= slicing
            if not (slicing and Assumption.SLICES in self.numbers.dropped):
                return result
        except Exception:
            if not self.numbers.entries:
                raise
            if Assumption.LAYOUTS not in self.numbers.dropped:
                with contextlib.suppress(Exception):
                    return self._again(known, op, target, args, kwargs, shape_env.HOLDING)
        return self._again(known, op, target, args, kwargs, False)

    def _again(
        self, known: shape_env.Snapshot, op: str, target: Any, args: Any, kwargs: Any, presuming: bool | str
    ) -> Any:
        """Forget what a try has found out, and ask the operator by what sizes are now."""
        known.again()
        self.record.copies.clear()
        return self._try(op, target, args, kwargs, self._with_numbers(presuming))

    @contextlib.contextmanager
    def _with_numbers(self, presuming: bool | str | None = None) -> Iterator[None]:
        """Set how operators run on fake tensors where sizes have no value; with `presuming`, by what they are now."""
        with (
            shape_env.rules_in_python(),
            shape_env.presuming(
                self.numbers.env, Assumption.LAYOUTS not in self.numbers.dropped if presuming is None else presuming
            ),
            _AS_IS if presuming is None else shape_env.sizes_zero_and_one_like_others(False),
        ):
            yield

    def _note_presumed(self, before: int, result: Any) -> None:
        """Note a copy that may be none at other sizes, where layouts were presumed, for writes to either tensor."""
        if self.numbers.presumed() > before and self.record.copies:
            varying = filter(fake_mode.has_symbolic_sizes, tensors_in(result))
            inputs = {each._cdata for group in self._memory.values() for each in group if each is not None}
            for memory in (each for each in map(storage_of, varying) if each is not None):
                alike = set(self.record.copied_from(memory._cdata))
                if len(alike) > 1 and alike & (self._presumed | inputs):
                    self._presumed |= alike
        if self._presumed & self.record.latest:
            raise Retry(Assumption.LAYOUTS)

    def _said(self, fact: Any) -> str:
        """Return a fact about numbers, in which they are called as their nodes are."""
        numbers = [node for node in self.graph.nodes if isinstance(node.meta.get("example_value"), torch.SymInt)]
        called = {str(node.meta["example_value"].node.expr): node.name for node in numbers}
        return re.sub(r"[a-z]\d+", lambda found: called.get(found[0], found[0]), shape_env.as_python(fact))

    def _check(self, target: Target, result: Any) -> None:
        """Break at a result that is a real tensor, or of a class of the user: it has no place in the graph."""
        if isinstance(result, torch.Tensor):
            layered = torch._C._functorch.is_functorch_wrapped_tensor(result)  # by a layer of torch.func, around a fake
            if type(result) is torch_compat.fake_tensor_type() or layered:
                return
            if wrappers.is_wrapper(result) and wrappers.is_fake(result):
                self.wrapped = True
            else:
                raise UnsupportedTensor(target, f"it gives a {type(result).__name__}")
        elif isinstance(result, (tuple, list)):
            for item in result:
                self._check(target, item)


def is_shaped(value: Any) -> bool:
    """Return whether this is no tensor without dimensions, which is taken for its number where a number is wanted."""
    return not isinstance(value, torch.Tensor) or value.dim() > 0


def is_slicing(target: Any, args: Any) -> bool:
    """Return whether a part of a tensor is taken between numbers: how much of it, these say."""
    index = args[1:] if target in SLICING else args[1] if target is operator.getitem else None
    parts = index if isinstance(index, tuple) else (index,)
    return index is not None and not any(isinstance(each, (torch.Tensor, list)) for each in parts)


SLICING = frozenset({"narrow", "select", torch.narrow, torch.select})


def examples(value: Any) -> Any:
    """Return the same nest of arguments with each node's fake tensor in its place."""
    kind = type(value)
    if kind is Node:
        return value.meta["example_value"]
    if kind is tuple or kind is list:
        return kind([examples(item) for item in value])
    if kind is dict:
        return {key: examples(item) for key, item in value.items()}
    if kind is slice:
        return slice(examples(value.start), examples(value.stop), examples(value.step))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[examples(item) for item in value])
    return value


def memories_of(values: Any) -> list[torch.UntypedStorage | None]:
    """Return the storages of the tensors in a nest of results; None for each that has none."""
    return [storage for each in tensors_in(values) for storage in storages_of(each)]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Walk through the tensors in a nest of results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
