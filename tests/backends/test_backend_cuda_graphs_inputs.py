"""Inputs of recorded graphs: small ones that move are read where they lie, others are looked at once a call."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_cuda_graphs import FakeDevice, FakeReader

import torchdynamo
from torchdynamo import _native
from torchdynamo.backends.cuda_graphs import pointers
from torchdynamo.backends.cuda_graphs.device import DEVICES
from torchdynamo.backends.cuda_graphs.runner import Runner

pytestmark = [
    pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning"),
    pytest.mark.usefixtures("device"),
]


def readers() -> list[FakeReader]:
    runners = [each for each in gc.get_objects() if type(each) is Runner]
    slots = [recording.slots for runner in runners for recording in runner.recordings]
    return [each.reader for each in slots if isinstance(each.reader, FakeReader)]


# Bytes, parts at odd addresses, expanded and conjugate inputs, large ones, one that is written to, and no elements.
INPUTS: dict[str, Callable[[int], torch.Tensor]] = {
    "numbers": lambda at: torch.full((3,), float(at)),
    "bytes": lambda at: torch.full((5,), at, dtype=torch.uint8),
    "odd_addresses": lambda at: torch.arange(9, dtype=torch.uint8)[at % 5 : at % 5 + 4],
    "words_at_odd_addresses": lambda at: torch.arange(16, dtype=torch.int32)[at % 3 : at % 3 + 4],
    "expanded": lambda at: torch.full((1,), float(at)).expand(4),
    "conjugate": lambda at: torch.full((3,), complex(at, at)).conj(),
    "transposed": lambda at: torch.full((3, 2), float(at)).t(),
    "large": lambda at: torch.full((3, pointers.MOST_BYTES // 4), float(at)),
    "none": lambda at: torch.zeros(0),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("points", [True, False])
def test_inputs_that_move_are_read_by_each_launch(device: FakeDevice, name: str, points: bool) -> None:
    device.points = points
    run = torchdynamo.compile(lambda x, n: (x * n, n + 1), mode="reduce-overhead")
    given = [(INPUTS[name](at), torch.tensor(at)) for at in range(12)]
    kept = [run(*each) for each in given]
    for got, (x, n) in zip(kept, given, strict=True):
        torch.testing.assert_close(got, (x * n, n + 1))
    assert device.launches == 10
    assert bool(readers()) == points


def test_rows_of_addresses_are_used_again(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointers, "ROWS", 3)
    run = torchdynamo.compile(lambda x: x + 1, mode="reduce-overhead")
    given = [torch.full((3,), float(at)) for at in range(20)]
    kept = [run(x) for x in given]
    torch.testing.assert_close(kept, [x + 1 for x in given])
    assert device.launches == 18


def test_a_row_that_a_launch_has_to_read_is_not_written_to(device: FakeDevice) -> None:
    """Whoever lets more launches wait than there are rows waits for them, and no launch is lost."""

    class Recording:
        retired = False

        def __init__(self, lane: Any, reader: Any, slot: torch.Tensor) -> None:
            nothing: tuple[list[int], object] = ([], None)
            about = [0], [slot], reader.addresses, reader.begun, reader.width, reader.wait
            layout = _native.input_layout([slot], frozenset())
            results = (), [None], [([0], [slot])], [], nothing, nothing, [], [], []
            self.lane, self.launches = lane, 0
            self.take = _native.take(layout, self.launch, [], about, *results, 0, 0, False, False, False)

        def launch(self) -> None:
            self.launches += 1

    class Lane:
        abandoned, saved = False, None
        lent: dict[int, Any] = {}

    class Late(FakeReader):
        """A device that reads only when it is waited for."""

        reads = True

        def wait(self) -> None:
            self.waits += 1
            self.begun += recording.launches if self.reads else 0
            recording.launches = 0

    reader = Late([slot := torch.zeros(2)])
    reader.addresses = torch.zeros(4, 1, dtype=torch.int64)
    recording = Recording(Lane(), reader, slot)
    xs = [torch.full((2,), float(at)) for at in range(10)]
    for at, x in enumerate(xs):
        _native.replay(recording, [x])
        assert reader.addresses[at % 4, 0] == x.data_ptr()
    assert reader.waits == 2
    reader.reads = False
    with pytest.raises(RuntimeError, match="have not read"):
        for x in xs:
            _native.replay(recording, [x])


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.full((2,), float(at)) for at in range(4)).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x + weight
        return x


def move(model: Scaled) -> None:
    model.weights[2].data = model.weights[2].data + 1


def swap(model: Scaled) -> None:
    model.weights[1].data, model.weights[2].data = model.weights[2].data, model.weights[1].data * 3


def within(model: Scaled) -> None:
    memory = torch.arange(6.0)
    model.weights[2].data = memory[2:4] if model.weights[2].data_ptr() % 16 else memory[1:3]


def storage(model: Scaled) -> None:
    torch.utils.swap_tensors(model.weights[0], torch.nn.Parameter(torch.full((2,), 7.0), requires_grad=False))


@pytest.mark.parametrize("change", [move, swap, within, storage])
def test_parameters_that_move_between_calls_are_never_read_where_they_were(
    device: FakeDevice, change: Callable[[Scaled], None]
) -> None:
    model, x = Scaled(), torch.ones(2)
    run = torchdynamo.compile(model, mode="reduce-overhead")
    for _ in range(4):
        for _ in range(7):
            torch.testing.assert_close(run(x), model.forward(x))
        change(model)
    assert device.launches > 8


class Interrupted(FakeDevice):
    """Another thread has its turn between guards and launch."""

    meanwhile: Callable[[], None] | None = None

    def is_capturing(self) -> bool:
        if self.meanwhile is not None:
            thread = threading.Thread(target=self.meanwhile)
            thread.start()
            thread.join()
        return super().is_capturing()


def test_a_parameter_that_another_thread_moves_before_the_launch_is_read_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(DEVICES, "cpu", device := Interrupted())
    model, x, old = Scaled(), torch.ones(2), []
    run = torchdynamo.compile(model, mode="reduce-overhead")
    for _ in range(8):
        run(x)

    def moved() -> None:
        device.meanwhile = None
        old.append(model.weights[2].data)
        move(model)
        old[0].fill_(100)

    for _ in range(3):
        device.meanwhile = moved
        torch.testing.assert_close(run(x), model.forward(x))
        old.clear()
    assert device.launches >= 6
