"""One call of a recorded graph runs no Python of ours, passes errors on, and serves lengths by their buckets."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_cuda_graphs import FakeDevice

import torchdynamo
from torchdynamo import _native
from torchdynamo.backends.cuda_graphs import turns
from torchdynamo.backends.cuda_graphs.runner import Runner

pytestmark = [
    pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning"),
    pytest.mark.usefixtures("device"),
]
PACKAGE = str(Path(torchdynamo.__file__).parent)


def functions_called(call: Callable[[], Any]) -> list[str]:
    """Python functions of torchdynamo that run in a call."""
    found = []

    def see(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("settings", [{"backend": "cudagraphs"}, {"mode": "reduce-overhead"}])
def test_a_replay_runs_no_python_of_ours(device: FakeDevice, settings: dict[str, Any]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).requires_grad_(False)
    run = torchdynamo.compile(model, **settings)
    x = torch.ones(2, 4)
    kept = [run(x) for _ in range(5)]
    launches = device.launches
    assert functions_called(lambda: kept.append(run(x))) == []
    assert device.launches == launches + 1
    torch.testing.assert_close(kept, [model(x)] * 6)


@pytest.mark.parametrize("settings", [{"backend": "cudagraphs"}, {"mode": "reduce-overhead"}])
def test_a_state_that_is_written_to_counts_its_versions(device: FakeDevice, settings: dict[str, Any]) -> None:
    def step(cache: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cache.add_(x)
        return cache, cache * 2

    run, cache, x = torchdynamo.compile(step, **settings), torch.zeros(3), torch.ones(3)
    for at in range(1, 8):
        before = cache._version
        same, twice = run(cache, x)
        assert same is cache and cache._version > before
        assert torch.equal(twice, torch.full((3,), 2.0 * at))
    assert device.launches == 5


def test_results_that_are_let_go_of_in_time_are_written_by_turns_to_two_places(device: FakeDevice) -> None:
    """Others are copied: whoever keeps results, or a view of one, has them for good."""
    run = torchdynamo.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    numbers = [torch.full((3,), float(at)) for at in range(12)]

    def addresses() -> set[int]:
        y, found = None, []
        for x in numbers:
            y = run(x)
            torch.testing.assert_close(y, x.sin() + 1)
            found.append(y.data_ptr())
        return {*found[4:]}

    places = addresses()
    assert len(places) == 2
    kept = [run(x) if at % 2 else run(x)[1:] for at, x in enumerate(numbers)]
    kept[3].mul_(2)
    assert len({each.untyped_storage().data_ptr() for each in kept}) == 12
    assert addresses().isdisjoint(places)
    for at, (each, x) in enumerate(zip(kept, numbers, strict=True)):
        want = (x.sin() + 1) * (2 if at == 3 else 1)
        torch.testing.assert_close(each, want if at % 2 else want[1:])
    kept.clear()
    assert addresses() == places
    assert device.launches == 4 * len(numbers) - 2


def test_large_results_have_no_places(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_BYTES", 11)
    run, y = torchdynamo.compile(lambda x: x.sin() + 1, mode="reduce-overhead"), None
    for at in range(6):
        y = run(torch.full((3,), float(at)))
    assert y is not None and device.captures == 1


def test_two_sizes_by_turns_replay_each_its_recording(device: FakeDevice) -> None:
    run = torchdynamo.compile(lambda x: x.sin() + 1, mode="reduce-overhead", dynamic=True)
    kept = []
    for _ in range(6):
        for size in (4, 6):
            x = torch.rand(size)
            kept.append((run(x), x.sin() + 1))
    for got, want in kept:
        torch.testing.assert_close(got, want)
    assert (device.captures, device.launches) == (2, 8)


def test_an_error_of_the_launch_is_raised_and_the_next_call_replays(device: FakeDevice) -> None:
    calls = []

    def launch() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("none left")

    class Recording:
        retired = False

        def __init__(self, lane: Any) -> None:
            x = torch.zeros(2)
            layout = _native.input_layout([x], frozenset())
            nothing: tuple[list[int], object] = ([], None)
            self.lane, self.slot = lane, x
            self.take = _native.take(
                layout,
                launch,
                [([0], [x])],
                None,
                (),
                [None, 7],
                [([0], [x])],
                [],
                nothing,
                nothing,
                [],
                [],
                [],
                0,
                0,
                False,
                False,
                False,
            )

    class Lane:
        abandoned, saved = False, None
        lent: dict[int, Any] = {}

    taken: list[str] = []
    counter = {"inference": 0}
    replays = _native.Replays(
        [Recording(Lane())],
        lambda wait: not taken.append("acquired"),  # type: ignore[func-returns-value]
        lambda: taken.append("released"),
        lambda index: 0,
        0,
        lambda: False,
        None,
        counter,
        "inference",
    )
    given = [torch.ones(2)]
    assert replays.replay(given) is not None
    assert given == []
    with pytest.raises(MemoryError):
        replays.replay([torch.ones(2)])
    made = replays.replay([torch.full((2,), 3.0)])
    assert made is not None and torch.equal(made[0], torch.full((2,), 3.0)) and made[1] == 7
    assert replays.replay([torch.ones(3)]) is None
    assert taken == ["acquired", "released"] * 4
    assert counter == {"inference": 3}


def test_recordings_go_with_what_was_compiled(device: FakeDevice) -> None:
    run = torchdynamo.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    for _ in range(5):
        run(torch.ones(3))
    runners = [weakref.ref(each) for each in gc.get_objects() if type(each) is Runner and each.recordings]
    assert runners
    del run
    torchdynamo.reset()
    gc.collect()
    assert [each for each in runners if each() is not None] == []


@pytest.mark.parametrize(
    "settings", [{"backend": "cudagraphs"}, {"mode": "reduce-overhead"}, {"options": {"cudagraphs": True}}]
)
def test_lengths_share_the_recordings_of_their_buckets(
    device: FakeDevice, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MOST_BYTES", 0)  # so that each recording is one capture
    table, layer = torch.nn.Embedding(10, 4).requires_grad_(False), torch.nn.Linear(4, 4).requires_grad_(False)

    def decode(ids: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        rows = layer(table(ids))
        return torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, attn_mask=there[:, None] != 0)

    lengths = {1: (8, 16)}
    options = {**settings.get("options", {}), "buckets": {"ids": lengths, "there": lengths}}
    run = torchdynamo.compile(decode, **{**settings, "options": options})
    kept = []
    for length in [*range(3, 17)] * 2:
        ids, there = torch.randint(0, 10, (2, length)), torch.ones(2, length, dtype=torch.long)
        kept.append((run(ids, there), decode(ids, there)))
    for got, want in kept:
        torch.testing.assert_close(got, want)
    assert 2 <= device.captures <= 2 * (1 + 2)  # each padded input may seem to stay where it is, until it moves
    assert device.launches >= len(kept) - 2 * 3  # two that are watched, and one that finds a lent result alive
