"""Undo what a backend or a failing graph did to inputs, random numbers and modes.

A backend gets the real tensors of the call and may run the graph on them, as `torch.jit.trace` does. Afterwards inputs
that the graph writes to, random number generators and grad mode are as they were.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.backends.registry import has_mark
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import effects_of, has_sparse_gradients, makes_leaves, reads_data, updates_in_one_kernel
from torchdynamo.graph.overlap import touch
from torchdynamo.graph.recurrent import steps_vary
from torchdynamo.graph.wrappers import is_wrapper, leaves, parts

F = TypeVar("F", bound=Callable[..., Any])


def leaves_inputs_alone(backend: F) -> F:
    """Mark a backend that never runs the graph on the example inputs, so that no copies are made of them."""
    backend.leaves_inputs_alone = True  # type: ignore[attr-defined]
    return backend


class RandomState:
    """The state of the default random number generators of the CPU and of initialized CUDA devices."""

    def __init__(self) -> None:
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore(self) -> None:
        """Set the generators back to this state."""
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)


class Contents:
    """Copies of tensors' contents, to restore them and their version counters."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        self.versions = versions(tensors)
        self.copies = [tensor.detach().clone() for tensor in tensors]

    def restore(self) -> None:
        """Write the contents back and reset the version counters, because nobody has seen the change."""
        inference = any(tensor.is_inference() for tensor in self.tensors)
        with torch.inference_mode() if inference else torch.no_grad():
            for tensor, copied in zip(self.tensors, self.copies, strict=True):
                if tensor.shape == copied.shape:
                    tensor.detach().copy_(copied)
                else:
                    tensor.set_(copied.untyped_storage(), 0, copied.shape, copied.stride())
        restore_versions(self.tensors, self.versions)


def versions(tensors: Sequence[torch.Tensor]) -> list[int | None]:
    """Return the version counter of each tensor; None for inference tensors, which have none."""
    return [None if tensor.is_inference() else tensor._version for tensor in tensors]


def restore_versions(tensors: Sequence[torch.Tensor], before: Sequence[int | None]) -> None:
    """Set version counters back to what `versions` has given."""
    for tensor, version in zip(tensors, before, strict=True):
        if version is not None:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def mutated_positions(gm: torch.fx.GraphModule) -> tuple[int, ...]:
    """Return the positions of the graph's inputs that it may write to."""
    mutated = effects_of(gm).mutated
    return tuple(i for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if node.name in mutated)


def unseen_positions(gm: torch.fx.GraphModule) -> tuple[int, ...]:
    """Return the positions of the inputs that a graph with collectives writes to without moving their version counters.

    AOTAutograd's graphs copy the new contents into such inputs, which moves them.
    """
    if not effects_of(gm).communicates:
        return ()
    examples = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    return tuple(i for i in mutated_positions(gm) if examples[i] is not None and versions([examples[i]]) == [0])


def tensors_at(positions: Sequence[int], args: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors among the arguments at these positions; of a wrapper, those inside."""
    return [each for i in positions if isinstance(args[i], torch.Tensor) for each in leaves(args[i])]


def is_for_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Return whether a graph must run in eager, because a trace of its operators would not do what it does."""
    past_autograd = writes_past_autograd(gm, example_inputs) or writes_to_unrelated_aliases(gm, example_inputs)
    sparse = torch.is_grad_enabled() and has_sparse_gradients(gm)
    return (
        past_autograd
        or returns_held_objects(gm)
        or makes_leaves(gm)
        or updates_in_one_kernel(gm)
        or steps_vary(gm)
        or sparse
    )


def returns_held_objects(gm: torch.fx.GraphModule) -> bool:
    """Return whether a graph that holds objects returns wrappers of what is no tensor, such as a mesh of devices.

    AOTAutograd would put what it traces with in the place of these objects.
    """
    if not any(
        not isinstance(getattr(gm, str(node.target), None), torch.fx.GraphModule)
        for node in gm.graph.find_nodes(op="get_attr")
    ):
        return False
    results = pytree.tree_leaves(gm.graph.output_node().meta.get("example_value"))
    inside = [part for each in results if is_wrapper(each) for _, part in parts(each)]
    return any(not isinstance(part, torch.Tensor) for part in inside)


def writes_past_autograd(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Return whether a graph writes through `.data`, unnoticed by autograd, to inputs with a history.

    AOTAutograd's graphs would copy the new contents into such inputs, which autograd does notice.
    """
    written = tensors_at(mutated_positions(gm), example_inputs)
    return any(not each.is_leaf or each._is_view() for each in written) and reads_data(gm)


def writes_to_unrelated_aliases(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Return whether a graph writes to an input that shares memory with another, unrelated to autograd.

    Inductor returns such views. AOTAutograd, which merges the two into one input, rejects them if they need gradients.
    """
    given = [each for each in example_inputs if isinstance(each, torch.Tensor)]
    tensors = [each for one in given for each in leaves(one) if each.layout is torch.strided]
    if not torch.is_grad_enabled() or not any(each.requires_grad for each in given):
        return False
    written = {id(each) for each in tensors_at(mutated_positions(gm), example_inputs)}
    places: dict[int, list[torch.Tensor]] = {}
    for each in tensors:
        places.setdefault(each.untyped_storage()._cdata, []).append(each)
    return any(
        one is not other and origin(one) is not origin(other) and touch(one, other)
        for group in places.values()
        if len(group) > 1 and any(id(each) in written for each in group)
        for one, other in itertools.combinations(group, 2)
    )


def origin(tensor: torch.Tensor) -> torch.Tensor:
    """Return the base that autograd knows of a view; a tensor that is no view itself."""
    return tensor if tensor._base is None else tensor._base


@contextlib.contextmanager
def state_restored(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], backend: Callable[..., Any]
) -> Iterator[None]:
    """Undo, at the end of the block, what a backend did to the process and to the inputs."""
    modes, random = Modes.now(), RandomState()
    runs_it = not has_mark(backend, "leaves_inputs_alone")
    contents = Contents(tensors_at(mutated_positions(gm), example_inputs)) if runs_it else None
    try:
        yield
    finally:
        modes.restore()
        random.restore()
        if contents is not None and contents.versions != versions(contents.tensors):
            contents.restore()
