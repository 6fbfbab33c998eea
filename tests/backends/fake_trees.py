"""CUDA graph trees without a GPU: compiled functions whose results lie in memory that the next replay writes to.

As torch's: the first call of a function warms up, the second records, later ones replay, if what was done since the
pool was last empty is the same. It is empty when nothing is alive that was handed out, or when a new step begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import config
from torch.multiprocessing.reductions import StorageWeakRef


class Handed:
    """Memory that was handed out: where it lies, and who has it.

    A recording keeps the tensors that it hands out. Others are seen that have the storage, or the tensor in Python;
    who has that in C++ is not.
    """

    def __init__(self, tensor: torch.Tensor, kept: bool) -> None:
        self.storage = StorageWeakRef(tensor.untyped_storage())
        self.address = tensor.untyped_storage().data_ptr()
        self.kept = [tensor] if kept else []

    def data_ptr(self) -> int:
        return self.address

    def is_dead(self) -> bool:
        if not self.kept:
            return self.storage.expired()
        holders = torch._C._storage_Use_Count(self.storage.cdata) - 2  # without the tensor, and Python's of the storage
        return holders == 0 and sys.getrefcount(self.kept[0]) <= 2 + (self.kept[0]._use_count() > 1)


class Node:
    """One recording, as a child of what ran before it. Its results lie in the same memory each time."""

    def __init__(self, parent: Node | None) -> None:
        self.parent = parent
        self.children: dict[Any, Node] = {}
        self.memory: dict[int, bytearray] = {}
        self.outputs_weakrefs: list[Handed | None] = []
        self.saved: set[int] = set()

    @property
    def _path_from_root(self) -> list[Node]:
        return [*(self.parent._path_from_root if self.parent else []), self]

    def pool(self) -> set[int]:
        """Where the results on the path to this node lie."""
        return {each.address for node in self._path_from_root for each in node.outputs_weakrefs if each}

    def all_outputs_are_dead(self) -> bool:
        handed = (each for node in self._path_from_root for each in node.outputs_weakrefs if each)
        return all(each.is_dead() for each in handed)

    def hand_out(self, results: Sequence[Any], static: set[int], replays: bool) -> list[Any]:
        """Put results into this node's memory; what shares memory shares it there, and parameters stay."""
        made: list[Any] = []
        bases: dict[int, torch.Tensor] = {}
        refs: list[Handed | None] = []
        addresses = [each.untyped_storage().data_ptr() if isinstance(each, torch.Tensor) else 0 for each in results]
        for at, (each, address) in enumerate(zip(results, addresses, strict=True)):
            if not address or address in static:
                made.append(each)
                refs.append(None)
                continue
            if address not in bases:
                source = torch.empty(0, dtype=torch.uint8).set_(each.untyped_storage())
                memory = self.memory.setdefault(len(bases), bytearray(len(source)))
                bases[address] = torch.frombuffer(memory, dtype=torch.uint8).copy_(source)
            if replays and self.outputs_weakrefs[at].kept:
                refs.append(self.outputs_weakrefs[at])
                made.append(refs[-1].kept[0])
                continue
            place = torch.empty(0, dtype=each.dtype)
            place.set_(bases[address].untyped_storage(), each.storage_offset(), each.size(), each.stride())
            refs.append(Handed(place, replays and addresses.count(address) == 1))
            made.append(place)
        self.outputs_weakrefs = refs
        return made


class Trees:
    """The manager of all recordings."""

    def __init__(self) -> None:
        self.roots: dict[Any, Node] = {}
        self.current_node: Node | None = None
        self.warm: set[Any] = set()
        self.step = self.last_step = 0
        self.warming = False
        self.ran: list[str] = []  # of each function that ran: warm, record, replay, plain
        self.overwritten = 0  # how often something was alive when the pool was taken for empty

    def in_new_torch_compile_invocation(self) -> bool:
        return self.step != self.last_step

    def wrap(self, function: Callable[[list[Any]], Any], parameters: set[int]) -> Callable[[list[Any]], Any]:
        """The function as a recording. `parameters` are addresses of static inputs."""

        def run(inputs: list[Any]) -> Any:
            if config.triton.cudagraph_capture_sizes is not None:
                self.ran.append("plain")
                return function(inputs)
            self.begin_anew()
            addresses = {each.untyped_storage().data_ptr() for each in inputs if isinstance(each, torch.Tensor)}
            where = self.roots if self.current_node is None else self.current_node.children
            replays = False
            if function not in self.warm or self.warming:
                self.ran.append("warm")
                self.warm.add(function)
                self.warming = True
                self.current_node = Node(self.current_node)
            elif function in where:
                self.ran.append("replay")
                replays = True
                self.current_node = where[function]
                assert self.current_node.saved <= addresses, "what a recording reads lies elsewhere"
            else:
                self.ran.append("record")
                self.current_node = where[function] = Node(self.current_node)
                self.current_node.saved = addresses & self.current_node.pool()
            self.last_step = self.step
            return self.current_node.hand_out(function(inputs), parameters, replays)

        return run

    def begin_anew(self) -> None:
        if self.current_node is None:
            return
        dead = self.current_node.all_outputs_are_dead()
        if dead or self.in_new_torch_compile_invocation():
            self.overwritten += not dead
            self.current_node = None
            self.warming = False
