"""Capture and replay on a device: all that the runner asks of CUDA.

Tests put a device of their own into `DEVICES`, which records calls on the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from torchdynamo.backends.cuda_graphs.pointers import Reader, cuda_reader
from torchdynamo.hook.collector import resting

Run = Callable[[list[Any]], Any]


class Graph(Protocol):
    """A capture that can be launched."""

    def replay(self) -> None:
        """Launch everything that was captured."""


class Device(Protocol):
    """Kind of device that can capture what it is asked to do."""

    def new_pool(self) -> Any:
        """Return a new memory pool, from which captures allocate."""

    def is_capturing(self) -> bool:
        """Return whether somebody is capturing on the current stream."""

    def stream(self, index: int) -> int:
        """Return a number for the current stream of the device with this index."""

    def capture(
        self, run: Run, inputs: list[Any], pool: Any, index: int, generators: Sequence[torch.Generator]
    ) -> tuple[Graph, Any]:
        """Capture a run, which computes nothing; return the capture and the results, whose contents are undefined.

        run: a function of one list of inputs. generators: those it draws from, besides the default one.
        """

    def reader(self, slots: Sequence[torch.Tensor], index: int) -> Reader | None:
        """Return what copies inputs to these slots in a capture, from addresses of each launch; None if it cannot."""


class Cuda:
    """CUDA devices. Captures run on a stream of their own, in an error mode that leaves other threads alone."""

    def __init__(self) -> None:
        self.sides: dict[int, Any] = {}
        self.stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", stream_number)
        self.is_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing

    def new_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def capture(
        self, run: Run, inputs: list[Any], pool: Any, index: int, generators: Sequence[torch.Generator]
    ) -> tuple[Graph, Any]:
        with torch.cuda.device(index), resting(), without_workspaces():
            if index not in self.sides:
                self.sides[index] = torch.cuda.Stream()
            side = self.sides[index]
            graph = torch.cuda.CUDAGraph()
            for generator in generators:
                graph.register_generator_state(generator)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # what watched calls have used, the recording uses instead
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    results = run(inputs)
                finally:
                    graph.capture_end()
            torch.cuda.current_stream().wait_stream(side)
        return graph, results

    def reader(self, slots: Sequence[torch.Tensor], index: int) -> Reader | None:
        return cuda_reader(slots, index)


def stream_number(index: int) -> int:
    """Return the handle of a CUDA device's current stream."""
    return int(torch.cuda.current_stream(index).cuda_stream)


@contextlib.contextmanager
def without_workspaces() -> Iterator[None]:
    """Let libraries allocate their workspaces anew in a capture, and none of a capture's after it."""
    clear: Callable[[], None] = getattr(torch._C, "_cuda_clearCublasWorkspaces")  # noqa: B009, for CUDA only
    clear()
    try:
        yield
    finally:
        clear()


DEVICES: dict[str, Device] = {"cuda": Cuda()}


def device_of(inputs: Sequence[Any]) -> tuple[Device, torch.device] | None:
    """Return the only device that tensors among the inputs are on, if it can capture; else None."""
    places = {value.device for value in inputs if isinstance(value, torch.Tensor)}
    place = next(iter(places)) if len(places) == 1 else None
    return None if place is None or place.type not in DEVICES else (DEVICES[place.type], place)
