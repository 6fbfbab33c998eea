"""What operations gave before: the same one, asked of the same metadata, gives the same metadata.

Models repeat themselves: forty layers have as many different operations as one. To run an operation on fake tensors
takes a few hundred microseconds, to look its answer up here takes a tenth of that.

An answer is kept only if it can be told in full: tensors without gradients to follow, each with memory of its own or
a view of exactly one argument's, or an argument itself. What writes is always run, and what was known of the fake
tensors is then forgotten. The question holds all that an answer may depend on: the state of the thread and process, the
operation, and of each argument its type and value, or a tensor's metadata and which of the others it is.
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

# Values that equal nothing of another type, nor a different value of their own.
NAMES = frozenset(
    {str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format},
)
NUMBERS = frozenset({bool, int, float, complex})  # 1 == True == 1.0, and 0.0 == -0.0
SEQUENCES = frozenset({tuple, list, torch.Size})
MODULES = frozenset({"_operator", "math"})
MISSING = object()


class Untold(Exception):
    """A question that cannot be asked in full."""


class Question(NamedTuple):
    """An operation and all that its answer depends on."""

    key: tuple[Any, ...]
    fakes: list[torch.Tensor]  # the fake tensors among the arguments, in order


class ResultPattern(NamedTuple):
    """One result: the argument of this position itself, or one like the pattern, perhaps in an argument's memory."""

    argument: int
    pattern: Pattern | None
    written: bool = False  # by how it was made


class Answer(NamedTuple):
    """What the operation gives: one result or a sequence of this type; and whether it draws random numbers."""

    container: Any
    items: tuple[ResultPattern | None, ...]
    random: bool


class FakeCache:
    """Of one graph."""

    def __init__(self, record: WorldRecord) -> None:
        self.record = record
        self.likenesses = KnownMetadata()
        self._answers: dict[tuple[Any, ...], Answer] = {}
        self._tensor = torch_compat.fake_tensor_type()

    # -- asking ---------------------------------------------------------------------------------------------------
    def question(self, op: str, target: Target, args: Sequence[Any], kwargs: dict[str, Any]) -> Question | None:
        """Return the question, or None if its answer is not for keeping."""
        if op != "call_method" and not answers_alike(target):
            return None
        if torch_compat.in_transform():
            return None
        state = _native.global_state()
        if state[1]:  # modes of the user's see every operation
            return None
        fakes: list[torch.Tensor] = []
        part, grad = self._part, torch.is_grad_enabled()
        try:
            asked = [part(arg, fakes, grad) for arg in args]
            named = tuple([(name, part(arg, fakes, grad)) for name, arg in kwargs.items()]) if kwargs else ()
        except Untold:
            return None
        same: Any = None
        if len({id(fake) for fake in fakes}) < len(fakes):
            same = tuple([next(i for i, other in enumerate(fakes) if other is fake) for fake in fakes])
        return Question((state[0], target, same, named, *asked), fakes)

    def _part(self, value: Any, fakes: list[torch.Tensor], grad: bool) -> Any:
        """Return what of an argument matters."""
        kind = type(value)
        if kind is Node:
            fake = value.meta["example_value"]
            if type(fake) is not self._tensor or (grad and fake.requires_grad):
                raise Untold
            likeness = self.likenesses.of(fake)
            if likeness is None:
                raise Untold
            fakes.append(fake)
            return likeness
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
        raise Untold

    def recall(self, question: Question) -> Any:
        """Return the answer, made anew; MISSING if it is not known."""
        answer = self._answers.get(question.key)
        if answer is None:
            return MISSING
        if answer.random:
            self.record.draw()
        container, items, _ = answer
        if container is None:
            return self._make(items[0], question.fakes)
        return container([self._make(item, question.fakes) for item in items])

    def _make(self, item: ResultPattern | None, fakes: list[torch.Tensor]) -> Any:
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
        self.likenesses.note(fake, pattern.likeness)
        if written:
            self.record.write((fake,))
        return fake

    # -- learning -------------------------------------------------------------------------------------------------
    def learn(self, question: Question | None, result: Any, random: bool) -> None:
        """Learn what an operation gave when it was run."""
        items = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [item for item in items if item is not None]
        plain = bool(tensors) and all(type(item) is self._tensor for item in tensors)
        if question is None:
            self.likenesses.forget()
            return
        places = {fake.untyped_storage()._cdata for fake in question.fakes} | {0}
        changed = any(self.likenesses.measure(fake) is not self.likenesses.of(fake) for fake in question.fakes)
        if not plain or changed or not places.isdisjoint(self.record.latest):
            self.likenesses.forget()
            return
        told = self._tell(items, question.fakes)
        if told is not None:
            container = None if items is not result else getattr(type(result), "_make", type(result))
            self._answers[question.key] = Answer(container, told, random)

    def _tell(self, items: Sequence[Any], fakes: list[torch.Tensor]) -> tuple[ResultPattern | None, ...] | None:
        """Return the results in terms of the arguments; None if they are more than that."""
        places = [fake.untyped_storage()._cdata for fake in fakes]
        own: set[int] = set()
        told: list[ResultPattern | None] = []
        for item in items:
            if item is None:
                told.append(None)
                continue
            same = [index for index, fake in enumerate(fakes) if fake is item]
            if same:
                told.append(ResultPattern(same[0], None))
                continue
            if item.requires_grad or item.layout is not torch.strided:
                return None
            place = item.untyped_storage()._cdata
            shared = [index for index, other in enumerate(places) if other == place]
            if len({id(fakes[index]) for index in shared}) > 1 or place in own:
                return None
            if shared and torch.is_grad_enabled():  # a view that autograd has to know of
                return None
            if not shared:
                own.add(place)
            pattern = pattern_of(item, self.likenesses, bool(shared))
            if pattern is None:
                return None
            told.append(ResultPattern(shared[0] if shared else -1, pattern, place in self.record.latest))
        return tuple(told)


@cache
def answers_alike(target: Any) -> bool:
    """Return whether a function is torch's or Python's own, so that its answers depend on arguments and state alone."""
    if target is getattr:
        return True
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).partition(".")[0] in ("aten", "prims")
    if type(target) is types.BuiltinFunctionType:
        return str(target.__module__).partition(".")[0] in ("torch", *MODULES) or is_operator_group(target.__self__)
    return type(target) is types.FunctionType and is_graph_function(target)


def is_operator_group(owner: Any) -> bool:
    """Return whether this is `torch._C._nn` or its like, whose functions name no module."""
    return type(owner) is types.ModuleType and owner.__name__.startswith("torch._C")
