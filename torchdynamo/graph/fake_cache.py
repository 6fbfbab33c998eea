"""Cache the fake results of operations: equal operations on equal metadata give equal metadata.

Models repeat themselves: forty layers have as many distinct operations as one. Running an operation on fake tensors
takes a few hundred microseconds; a hit here takes a tenth of that.

A result is cached only if it can be described in full: tensors without gradients, each with memory of its own, or a
view of exactly one argument's, or an argument itself. Operations that write always run, and what was known of fake
tensors is then forgotten. The key contains all that a result may depend on: the state of the thread and process, the
operation, and for each argument its type and value, or a tensor's metadata and which other argument it equals.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo import _native
from torchdynamo.core.policy import is_graph_function
from torchdynamo.graph import torch_compat
from torchdynamo.graph.fake_metadata import KnownMetadata, Pattern, pattern_of
from torchdynamo.graph.recording import WorldRecord

Node = torch.fx.Node
Target = Callable[..., Any] | str

# Types whose values are equal only if they are interchangeable, so that a value is its own key.
NAMES = frozenset(
    {str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format},
)
NUMBERS = frozenset({bool, int, float, complex})  # 1 == True == 1.0, and 0.0 == -0.0
SEQUENCES = frozenset({tuple, list, torch.Size})
MODULES = frozenset({"_operator", "math"})
MISSING = object()


class NotDescribable(Exception):
    """Raised for arguments that cannot be described in full."""


class Question(NamedTuple):
    """An operation with all that its result depends on: the key of the cache."""

    key: tuple[Any, ...]
    fakes: list[torch.Tensor]  # the fake tensors among the arguments, in order


class ResultPattern(NamedTuple):
    """A result: the argument at this position itself, or a tensor like the pattern, perhaps in its memory."""

    argument: int
    pattern: Pattern | None
    written: bool = False  # the operation counted it as written to


class Answer(NamedTuple):
    """Results of an operation: one, or a sequence of type `container`; `random`: it draws random numbers."""

    container: Any
    items: tuple[ResultPattern | None, ...]
    random: bool


class FakeCache:
    """The cached fake results of one graph."""

    def __init__(self, record: WorldRecord) -> None:
        self.record = record
        self.known_metadata = KnownMetadata()
        self._answers: dict[tuple[Any, ...], Answer] = {}
        self._tensor = torch_compat.fake_tensor_type()
        self.latest: Answer | None = None  # to the newest question, if it could be told in full

    # -- asking ---------------------------------------------------------------------------------------------------
    def question(self, op: str, target: Target, args: Sequence[Any], kwargs: dict[str, Any]) -> Question | None:
        """Return the cache key of an operation; None if its result is not to be cached."""
        if op != "call_method" and not is_deterministic(target):
            return None
        if torch_compat.in_transform():
            return None
        state = _native.global_state()
        if state[1]:  # dispatch or function modes of the user see every operation
            return None
        fakes: list[torch.Tensor] = []
        part, grad = self._part, torch.is_grad_enabled()
        try:
            asked = [part(arg, fakes, grad) for arg in args]
            named = tuple([(name, part(arg, fakes, grad)) for name, arg in kwargs.items()]) if kwargs else ()
        except NotDescribable:
            return None
        same: Any = None
        if len({id(fake) for fake in fakes}) < len(fakes):
            same = tuple([next(i for i, other in enumerate(fakes) if other is fake) for fake in fakes])
        return Question((state[0], target, same, named, *asked), fakes)

    def _part(self, value: Any, fakes: list[torch.Tensor], grad: bool) -> Any:
        """Return the part of the key for one argument; append its fake tensors to `fakes`. Raises NotDescribable."""
        kind = type(value)
        if kind is Node:
            fake = value.meta["example_value"]
            if type(fake) is not self._tensor or (grad and fake.requires_grad):
                raise NotDescribable
            metadata = self.known_metadata.of(fake)
            if metadata is None:
                raise NotDescribable
            fakes.append(fake)
            return metadata
        if kind in NAMES:
            return value
        if kind in NUMBERS:
            return kind, repr(value)
        if kind in SEQUENCES:
            return kind, *[self._part(item, fakes, grad) for item in value]
        if kind is slice:
            return kind, *[self._part(item, fakes, grad) for item in (value.start, value.stop, value.step)]
        if kind is dict:
            return kind, *[(self._part(key, fakes, grad), self._part(value[key], fakes, grad)) for key in value]
        raise NotDescribable

    def recall(self, question: Question) -> Any:
        """Return fresh results for a key; MISSING if it is not in the cache."""
        answer = self.latest = self._answers.get(question.key)
        return MISSING if answer is None else self.again(answer, question.fakes)

    def again(self, answer: Answer, fakes: Sequence[torch.Tensor]) -> Any:
        """Return fresh results by an answer, for an operation that asks the same question of these fake tensors."""
        if answer.random:
            self.record.draw()
        container, items, _ = answer
        if container is None:
            return self._make(items[0], fakes)
        return container([self._make(item, fakes) for item in items])

    def _make(self, item: ResultPattern | None, fakes: Sequence[torch.Tensor]) -> Any:
        if item is None:
            return None
        argument, pattern, written = item
        if pattern is None:
            return fakes[argument]
        memory = None
        if argument >= 0:
            memory = fakes[argument].untyped_storage()
            self.record.loosen(memory)
        fake = pattern.make(memory)
        self.known_metadata.note(fake, pattern.metadata)
        if written:
            self.record.write((fake,))
        return fake

    # -- learning -------------------------------------------------------------------------------------------------
    def learn(self, question: Question | None, result: Any, random: bool) -> None:
        """Store the results of an operation that has just been run."""
        items = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [item for item in items if item is not None]
        plain = bool(tensors) and all(type(item) is self._tensor for item in tensors)
        if question is None:
            self.known_metadata.forget()
            return
        places = {fake.untyped_storage()._cdata for fake in question.fakes} | {0}
        changed = any(self.known_metadata.measure(fake) is not self.known_metadata.of(fake) for fake in question.fakes)
        if not plain or changed or not places.isdisjoint(self.record.latest):
            self.known_metadata.forget()
            return
        described = self._describe(items, question.fakes)
        if described is not None:
            container = None if items is not result else getattr(type(result), "_make", type(result))
            self.latest = self._answers[question.key] = Answer(container, described, random)

    def _describe(self, items: Sequence[Any], fakes: list[torch.Tensor]) -> tuple[ResultPattern | None, ...] | None:
        """Describe results in terms of the arguments; None if that is impossible."""
        places = [fake.untyped_storage()._cdata for fake in fakes]
        own: set[int] = set()
        described: list[ResultPattern | None] = []
        for item in items:
            if item is None:
                described.append(None)
                continue
            same = [index for index, fake in enumerate(fakes) if fake is item]
            if same:
                described.append(ResultPattern(same[0], None))
                continue
            if item.requires_grad or item.layout is not torch.strided:
                return None
            place = item.untyped_storage()._cdata
            shared = [index for index, other in enumerate(places) if other == place]
            if len({id(fakes[index]) for index in shared}) > 1 or place in own:
                return None
            if shared and torch.is_grad_enabled():  # autograd must know the view
                return None
            if not shared:
                own.add(place)
            pattern = pattern_of(item, self.known_metadata, bool(shared))
            if pattern is None:
                return None
            described.append(ResultPattern(shared[0] if shared else -1, pattern, place in self.record.latest))
        return tuple(described)


@cache
def is_deterministic(target: Any) -> bool:
    """Return whether a function is torch's or Python's own, so that results depend only on arguments and state."""
    if target is getattr:
        return True
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).partition(".")[0] in ("aten", "prims")
    if type(target) is types.BuiltinFunctionType:
        return str(target.__module__).partition(".")[0] in ("torch", *MODULES) or is_operator_group(target.__self__)
    return type(target) is types.FunctionType and is_graph_function(target)


def is_operator_group(owner: Any) -> bool:
    """Return whether an object is a module like `torch._C._nn`, whose functions name no module."""
    return type(owner) is types.ModuleType and owner.__name__.startswith("torch._C")
