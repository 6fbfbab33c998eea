"""Results of CUDA graphs, taken out of the memory that the next replay writes to.

Inductor records its kernels by torch's CUDA graph trees, which share one pool of memory. They begin anew only where
nothing of the pool is alive (else they record, or warm up, once more), or where told that what is alive may be
overwritten. In eager a result keeps its value as long as somebody has it, as `y = f(x)` has `y` during the next call.
So results of inference, of a forward and of a backward are copied out of the pool at once: then they die there, and the
next call replays. What a forward saves for its backward stays in the pool, and lives until that has run: autograd holds
aliases of it, as a recording hands out the same tensors each time, and does not see who in C++ has them.

Some calls run the same kernels without a recording, as nothing may be overwritten that is alive: see `runs_plain`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

Run = Callable[[list[Any]], Sequence[Any]]

MOST_WAITING = 4  # forwards of one graph in the pool, before the backward of the first
_no_recording = threading.RLock()  # a setting is changed, in some versions of torch for all threads


class Pool:
    """What the CUDA graph trees of this thread have handed out on one device, since they last began anew."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.known: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()

    def manager(self) -> Any:
        """Return torch's manager of the trees; None before it is needed."""
        from torch._inductor.cudagraph_trees import get_manager

        return get_manager(self.device, create_if_none_exists=False)

    def addresses(self) -> frozenset[int]:
        """Return where in memory the results lie that have been handed out, alive or not."""
        node = getattr(self.manager(), "current_node", None)
        if node is None:
            return frozenset()
        if node not in self.known:
            results = (each for step in node._path_from_root for each in step.outputs_weakrefs)
            self.known[node] = frozenset(each.data_ptr() for each in results if each is not None)
        return self.known[node]

    def is_alive(self) -> bool:
        """Return whether any of them is alive."""
        node = getattr(self.manager(), "current_node", None)
        return node is not None and not node.all_outputs_are_dead()

    def is_given_up(self) -> bool:
        """Return whether the trees would overwrite what is alive: a new step began, for torch.compile or its user."""
        manager = self.manager()
        return manager is not None and manager.in_new_torch_compile_invocation() and self.is_alive()


class Graphs:
    """What was compiled of one captured graph: for inference, or a forward and its backward."""

    def __init__(self) -> None:
        self.waiting = 0  # how many forwards ran in the pool before the backward of the first
        self.in_pool = False  # was the latest forward one of these?
        self.saves = False  # do these save anything in the pool?


class KeepsResults:
    """Compiled kernels as a function of a list of inputs, whose results are the caller's for good.

    `run` replays where it can, `plain` does not. The first `visible` results leave the graph; the others are saved.
    """

    def __init__(self, graphs: Graphs, pool: Pool, run: Run, plain: Run, visible: int | None, kind: str) -> None:
        self.graphs, self.pool, self.visible = graphs, pool, visible
        self.run, self.plain = run, plain
        self.forward, self.backward = kind == "forward", kind == "backward"

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self.runs_plain(inputs):
            self.graphs.in_pool &= not self.forward
            return self.plain(inputs)
        results = self.run(inputs)
        addresses = self.pool.addresses()
        if self.forward:
            self.note(results, addresses)
        elif self.backward:
            self.graphs.waiting = max(0, self.graphs.waiting - 1)
        count = len(results) if self.visible is None else self.visible
        return [*copied_out(results[:count], addresses), *aliases(results[count:], addresses)]

    def note(self, results: Sequence[Any], addresses: frozenset[int]) -> None:
        """Remember where a forward has left what its backward reads."""
        graphs = self.graphs
        saved = lies_in(addresses, results[self.visible :])
        graphs.saves |= saved
        graphs.in_pool = saved or lies_in(addresses, results)
        graphs.waiting += graphs.in_pool

    def runs_plain(self, inputs: Sequence[Any]) -> bool:
        """Return whether this call must not replay, record or warm up."""
        if torch.cuda.is_current_stream_capturing() or self.pool.is_given_up():
            return True
        if self.backward:
            return self.is_kept() or not self.comes_from_the_pool(inputs)
        return self.forward and (self.is_hooked() or self.waits_too_long())

    def is_kept(self) -> bool:
        """Return whether what the backward reads is to outlive it (`retain_graph=True`): a replay uses it up."""
        return torch._C._autograd._get_current_graph_task_keep_graph()

    def comes_from_the_pool(self, inputs: Sequence[Any]) -> bool:
        """Return whether the forward of this backward ran in the pool: what it saved is read where it lies."""
        if not self.graphs.saves:
            return self.graphs.in_pool
        return lies_in(self.pool.addresses(), inputs)

    def is_hooked(self) -> bool:
        """Return whether somebody is handed what is saved, and may keep it."""
        return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None

    def waits_too_long(self) -> bool:
        """Return whether forwards follow each other without a backward: each would be recorded after the one before."""
        if self.graphs.waiting >= MOST_WAITING and not self.pool.is_alive():
            self.graphs.waiting = 0
        return self.graphs.waiting >= MOST_WAITING


def lies_in(addresses: frozenset[int], values: Sequence[Any]) -> bool:
    """Return whether any of these tensors has its memory at one of the addresses."""
    return any(isinstance(each, torch.Tensor) and address_of(each) in addresses for each in values)


def address_of(tensor: torch.Tensor) -> int:
    """Return where the memory of a tensor begins."""
    return tensor.untyped_storage().data_ptr()


def aliases(values: Sequence[Any], addresses: frozenset[int]) -> list[Any]:
    """Return the values, those at one of the addresses as other tensors of the same memory."""
    return [each.detach() if lies_in(addresses, (each,)) else each for each in values]


def copied_out(results: Sequence[Any], addresses: frozenset[int]) -> list[Any]:
    """Return the results, in memory of their own where theirs is at one of the addresses.

    Those that share memory share it afterwards; strides and offsets stay.
    """
    found = list(results)
    groups: dict[int, list[int]] = {}
    for at in range(len(found)):
        if isinstance(found[at], torch.Tensor) and (address := address_of(found[at])) in addresses:
            groups.setdefault(address, []).append(at)
    alone = {group[0]: fresh for group in groups.values() if (fresh := like(found[group[0]], len(group))) is not None}
    if alone:
        torch._foreach_copy_(list(alone.values()), [found[at] for at in alone])
    for group in groups.values():
        if group[0] not in alone:
            memory = found[group[0]].untyped_storage().clone()
            for at in group:
                found[at] = moved(found[at], memory)
    for at, fresh in alone.items():
        found[at] = fresh
    return found


def like(tensor: torch.Tensor, sharing: int) -> torch.Tensor | None:
    """Return a tensor of the same layout; None for one of several in this memory, or one that does not fill it."""
    if sharing > 1 or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.itemsize:
        return None
    fresh = torch.empty_like(tensor)
    return fresh if fresh.stride() == tensor.stride() else None


def moved(tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    """Return the same part of other memory."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def keeping_results(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's compiler of forward and backward: where it uses CUDA graphs, results are copied out of them."""
    graphs = Graphs()

    @functools.wraps(compiler)
    def compile_keeping(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        compiled = compiler(gm, example_inputs, **kwargs)
        if kwargs.get("cudagraphs"):  # the compiler sets it to false where it does not
            kind = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
            visible = count_visible() if kind == "forward" else None
            compiled.current_callable = KeepsResults(
                graphs,
                Pool(next(iter(compiled.device_idxs))),
                compiled.current_callable,
                without_recording(compiled),
                visible,
                kind,
            )
        return compiled

    return compile_keeping


def count_visible() -> int:
    """Return how many results of the forward that is being compiled leave it; what it saves comes after these."""
    meta: Any = torch._guards.TracingContext.get().fw_metadata
    return int(len(meta.tokens) + meta.num_forward)


def without_recording(compiled: Any) -> Run:
    """Return a function that runs what was compiled kernel by kernel."""
    from torch._inductor import config
    from torch._inductor.utils import align_inputs_from_check_idxs

    run, patch = compiled.current_callable, config.patch

    def kernels(inputs: list[Any]) -> Any:
        with _no_recording, patch({"triton.cudagraph_capture_sizes": ()}):
            return run(inputs)

    # Recordings copy inputs to where they lie aligned. These do not.
    found: Run = align_inputs_from_check_idxs(kernels, compiled.inputs_to_check, compiled.mutated_input_idxs)
    return found
