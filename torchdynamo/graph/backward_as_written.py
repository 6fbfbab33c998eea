"""Run the backward of a custom autograd.Function as it was written, where the captured one does not hold.

A backward runs later than the frame, and may read what has changed by then. The captured one has read the program as
it was during capture. So these facts are looked at again when it runs: where one has changed, the program's own
backward is called, with a context like the one that its forward filled. It is called as well where a branch that the
captured one has followed goes another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch.autograd.function import Function, FunctionCtx

from torchdynamo.core.source import Guard

Make = Callable[["Making"], Any]


class ObjectRecipe(NamedTuple):
    """Say how an object is made: `new` returns it, and `fill` gives it the parts that may lead back to it."""

    new: Make
    fill: Callable[[Making, Any], None]


class Making:
    """Make what the forward stored on one context, each object once.

    given: the tensors and numbers that attributes lead to. recipes: of the objects, by number.
    """

    def __init__(self, given: Sequence[Any], recipes: Mapping[int, ObjectRecipe]) -> None:
        self.given, self.recipes = given, recipes
        self.made: dict[int, Any] = {}
        self.unfilled: list[int] = []

    def object(self, number: int) -> Any:
        """Return an object, which `fill` has yet to fill."""
        if number not in self.made:
            self.made[number] = self.recipes[number].new(self)
            self.unfilled.append(number)
        return self.made[number]

    def fill(self) -> None:
        """Fill all objects that have been made."""
        while self.unfilled:
            number = self.unfilled.pop()
            self.recipes[number].fill(self, self.made[number])


class ContextRecipe(NamedTuple):
    """Say what the forward left on the context."""

    saved: tuple[int | None, ...]  # what it saved: positions among the tensors, or None
    needs: tuple[bool, ...]  # `needs_input_grad`
    attributes: Mapping[str, Make]
    objects: Mapping[int, ObjectRecipe]

    def attributes_of(self, kept: Sequence[Any]) -> dict[str, Any]:
        """Return the attributes, given the tensors and numbers that they lead to."""
        making = Making(kept, self.objects)
        made = {name: make(making) for name, make in self.attributes.items()}
        making.fill()
        return made


class WrittenContext(FunctionCtx):
    """The context of the function's own backward; what the forward has not stored is asked of autograd's node.

    Each time there is a new one, with the same attributes: the node keeps these, and not what leads back to it.
    """

    __slots__ = ("_node", "_saved", "_unpacked", "needs_input_grad")

    def __init__(self, node: Any, recipe: ContextRecipe, unpacked: Sequence[Any] | None) -> None:
        self._node, self._saved, self.needs_input_grad = node, recipe.saved, recipe.needs
        self._unpacked = unpacked
        if node.written is None:
            node.written = recipe.attributes_of(node.kept)
        self.__dict__ = node.written

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        tensors, self._unpacked = self._unpacked, None
        if tensors is None:
            tensors = self._node.saved_tensors
        return tuple(None if at is None else tensors[at] for at in self._saved)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self._node):
            raise AttributeError(f"{type(self._node).__name__!r} object has no attribute {name!r}")
        return getattr(self._node, name)


class BackwardAsWritten:
    """The backward of one call of a custom function, as it is written.

    args, results: for each argument and result, whether it is a tensor. facts: what the captured backward has read.
    """

    def __init__(
        self, cls: Any, args: Sequence[bool], results: Sequence[bool], context: ContextRecipe, facts: Sequence[Guard]
    ) -> None:
        self.cls, self.args, self.results, self.context = cls, args, results, context
        self.facts = facts
        self.holds: Callable[[], bool] = lambda: False  # whether the facts are true; of no use before `settle`

    def settle(self, holds: Callable[[], bool]) -> None:
        """Let go of the facts, for a check of them that needs no frame."""
        self.facts, self.holds = (), holds

    def __deepcopy__(self, memo: Any) -> BackwardAsWritten:
        return self

    def gradients(self, node: Any, grads: Sequence[Any], unpacked: Sequence[Any] | None) -> list[Any]:
        """Return the gradients of the inputs that are tensors, for the autograd node of the call.

        unpacked: its saved tensors, if they have been unpacked in this run, which hooks notice.
        """
        given, context = iter(grads), WrittenContext(node, self.context, unpacked)
        backward = self.cls.backward if self.cls.vjp is Function.vjp else self.cls.vjp
        found = backward(context, *[next(given) if there else None for there in self.results])
        return self.of_tensors(found if isinstance(found, tuple) else (found,), type(node).__name__)

    def of_tensors(self, found: tuple[Any, ...], name: str) -> list[Any]:
        """Return the gradients of tensors. Raises autograd's errors for gradients that fit no arguments."""
        count = len(self.args)
        if len(found) > count and all(each is None for each in found[count:]):
            found = found[:count]
        if len(found) != count:
            told = f"(expected {count}, got {len(found)})"
            raise RuntimeError(f"function {name} returned an incorrect number of gradients {told}")
        for position, (is_tensor, grad) in enumerate(zip(self.args, found, strict=True), 1):
            if grad is not None and not is_tensor:
                raise RuntimeError(
                    f"function {name} returned a gradient different than None at position {position}, "
                    "but the corresponding forward input was not a Variable"
                )
        return [grad for is_tensor, grad in zip(self.args, found, strict=True) if is_tensor]
