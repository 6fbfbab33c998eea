"""Copy results of CUDA graphs out of the memory that the next replay writes to.

Inductor records its kernels by torch's CUDA graph trees, which share one memory pool. The trees start over only if
nothing in the pool is alive, or if the user allows live results to be overwritten; otherwise they record or warm up
again. In eager a result keeps its value as long as somebody holds it, as `y = f(x)` holds `y` during the next call. So
results of inference, of a forward and of a backward are copied out of the pool at once; nothing in the pool stays
alive, and the next call replays. Tensors that a forward saves for its backward stay in the pool until the backward has
run. Autograd gets aliases of them, because a recording hands out the same tensor objects each time and cannot see
references held in C++.

Some calls run the same kernels without a recording, because live memory must not be overwritten: see `runs_plain`.
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

MOST_WAITING = 4  # forwards of one graph in the pool before the backward of the first; beyond, run without recording
_no_recording = threading.RLock()  # some versions of torch change the setting for all threads


class Pool:
    """The memory that this thread's CUDA graph trees have handed out on one device since they last started over."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.known: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()

    def manager(self) -> Any:
        """Return torch's manager of this device's trees; None before the first recording."""
        from torch._inductor.cudagraph_trees import get_manager

        return get_manager(self.device, create_if_none_exists=False)

    def addresses(self) -> frozenset[int]:
        """Return the addresses of all results handed out, alive or dead."""
        node = getattr(self.manager(), "current_node", None)
        if node is None:
            return frozenset()
        if node not in self.known:
            results = (each for step in node._path_from_root for each in step.outputs_weakrefs)
            self.known[node] = frozenset(each.data_ptr() for each in results if each is not None)
        return self.known[node]

    def is_alive(self) -> bool:
        """Return whether any result in the pool is alive."""
        node = getattr(self.manager(), "current_node", None)
        return node is not None and not node.all_outputs_are_dead()

    def may_overwrite_live_results(self) -> bool:
        """Return whether a replay would overwrite live results, because the user or torch.compile began a new step."""
        manager = self.manager()
        return manager is not None and manager.in_new_torch_compile_invocation() and self.is_alive()


class Graphs:
    """State shared by the compiled functions of one captured graph: one for inference, or a forward and a backward."""

    def __init__(self) -> None:
        self.waiting = 0  # forwards that ran in the pool and whose backward has not run
        self.in_pool = False  # the latest forward ran in the pool
        self.saves = False  # forwards save tensors in the pool


class KeepsResults:
    """Runs compiled kernels on a list of inputs and returns results that no later call overwrites.

    `run` replays a recording where it can; `plain` runs the kernels without one. The first `visible` results leave the
    graph; the others are saved for the backward.
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
            self.record_forward(results, addresses)
        elif self.backward:
            self.graphs.waiting = max(0, self.graphs.waiting - 1)
        count = len(results) if self.visible is None else self.visible
        return [*copied_out(results[:count], addresses), *aliases(results[count:], addresses)]

    def record_forward(self, results: Sequence[Any], addresses: frozenset[int]) -> None:
        """Record whether a forward left results in the pool that its backward reads."""
        graphs = self.graphs
        saved = any_at(addresses, results[self.visible :])
        graphs.saves |= saved
        graphs.in_pool = saved or any_at(addresses, results)
        graphs.waiting += graphs.in_pool

    def runs_plain(self, inputs: Sequence[Any]) -> bool:
        """Return whether this call must run the kernels without replaying, recording or warming up."""
        if torch.cuda.is_current_stream_capturing() or self.pool.may_overwrite_live_results():
            return True
        if self.backward:
            return self.is_kept() or not self.comes_from_the_pool(inputs)
        return self.forward and (self.is_hooked() or self.has_too_many_pending())

    def is_kept(self) -> bool:
        """Return whether saved tensors must outlive this backward (`retain_graph=True`), which a replay overwrites."""
        return torch._C._autograd._get_current_graph_task_keep_graph()

    def comes_from_the_pool(self, inputs: Sequence[Any]) -> bool:
        """Return whether the forward of this backward ran in the pool, so that saved tensors are there."""
        if not self.graphs.saves:
            return self.graphs.in_pool
        return any_at(self.pool.addresses(), inputs)

    def is_hooked(self) -> bool:
        """Return whether saved-tensor hooks are active, which may keep saved tensors alive."""
        return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None

    def has_too_many_pending(self) -> bool:
        """Return whether too many forwards ran without a backward; each further one would need a new recording."""
        if self.graphs.waiting >= MOST_WAITING and not self.pool.is_alive():
            self.graphs.waiting = 0
        return self.graphs.waiting >= MOST_WAITING


def any_at(addresses: frozenset[int], values: Sequence[Any]) -> bool:
    """Return whether any of these tensors has its storage at one of the addresses."""
    return any(isinstance(each, torch.Tensor) and address_of(each) in addresses for each in values)


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage."""
    return tensor.untyped_storage().data_ptr()


def aliases(values: Sequence[Any], addresses: frozenset[int]) -> list[Any]:
    """Return the values; tensors whose storage is at one of the addresses are replaced by aliases."""
    return [each.detach() if any_at(addresses, (each,)) else each for each in values]


def copied_out(results: Sequence[Any], addresses: frozenset[int]) -> list[Any]:
    """Return the results; those whose storage is at one of the addresses are copied to memory of their own.

    Results that share a storage share their copy; strides and offsets stay.
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
    """Return an empty tensor of the same layout; None if the tensor shares its storage or does not fill it."""
    if sharing > 1 or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.itemsize:
        return None
    fresh = torch.empty_like(tensor)
    return fresh if fresh.stride() == tensor.stride() else None


def moved(tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor with this one's dtype, sizes, strides and offset in another storage."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def keeping_results(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's compiler of forward and backward so that results of CUDA graphs are copied out."""
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
    """Return how many results of the forward that is being compiled leave the graph; saved tensors follow them."""
    meta: Any = torch._guards.TracingContext.get().fw_metadata
    return int(len(meta.tokens) + meta.num_forward)


def without_recording(compiled: Any) -> Run:
    """Return a function that runs compiled kernels one by one, without a CUDA graph."""
    from torch._inductor import config
    from torch._inductor.utils import align_inputs_from_check_idxs

    run, patch = compiled.current_callable, config.patch

    def kernels(inputs: list[Any]) -> Any:
        with _no_recording, patch({"triton.cudagraph_capture_sizes": ()}):
            return run(inputs)

    # Recordings copy inputs to aligned memory; kernels that run without one need this done for them.
    found: Run = align_inputs_from_check_idxs(kernels, compiled.inputs_to_check, compiled.mutated_input_idxs)
    return found
