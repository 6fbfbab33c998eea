"""Parameters as constants: no stale result, no model kept alive, no end of rebuilding."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from backends.ensemble.competing import FREEZING, compiled, states, the_choice

import torchdynamo
from torchdynamo import _native
from torchdynamo.backends.ensemble import choice
from torchdynamo.backends.ensemble.measure import MOST, WARM_UPS
from torchdynamo.backends.ensemble.member import MEMBERS, Run
from torchdynamo.backends.ensemble.subgraph import Subgraph

Compete = Callable[..., None]
X = torch.randn(4, 8)


def load(model: torch.nn.Linear) -> None:
    model.load_state_dict({name: torch.full_like(each, 0.5) for name, each in model.state_dict().items()})


def step(model: torch.nn.Linear) -> None:
    with torch.enable_grad():
        model(X).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()


def rebind(model: torch.nn.Linear) -> None:
    model.weight = torch.nn.Parameter(torch.ones_like(model.weight))


def other_data(model: torch.nn.Linear) -> None:
    model.weight.data = torch.ones_like(model.weight)


def in_place(model: torch.nn.Linear) -> None:
    with torch.no_grad():
        model.weight.mul_(2)


def swapped(model: torch.nn.Linear) -> None:
    model.weight, model.other = torch.nn.Parameter(model.weight.detach() + 1), model.weight


CHANGES = [load, step, rebind, other_data, in_place, swapped]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_changed_weights_are_followed(change: Callable[[Any], None], always_freezing: None) -> None:
    model = torch.nn.Linear(8, 8)
    fn = compiled(model, constants=True, tune="now")
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(fn(X), model(X))
        assert states() == {"freezing": "built"}
        change(model)
        for _ in range(4):
            assert torch.equal(fn(X), model(X))


def test_constants_are_made_again_when_they_rest(always_freezing: None) -> None:
    model = torch.nn.Linear(8, 8)
    fn = compiled(model, constants=True, tune="now")
    with torch.no_grad():
        fn(X)
        in_place(model)
        found = the_choice()
        fn(X)
        assert found.winner is None
        for _ in range(2 * (WARM_UPS + 2 * MOST) + 4 * choice.QUIET):
            found.spent = 1e9
            assert torch.equal(fn(X), model(X))
        assert found.winner == "freezing" and found.rebuilds == 1


def test_training_in_between_does_not_build_each_time(always_freezing: None) -> None:
    model = torch.nn.Linear(8, 8)
    built = 0
    real = FREEZING.build

    def counted(subgraph: Subgraph) -> Run:
        nonlocal built
        built += 1
        return real(subgraph)

    MEMBERS["freezing"] = FREEZING._replace(build=counted)
    fn = compiled(model, constants=True, tune="now")
    with torch.no_grad():
        for _ in range(100):
            for _ in range(20):
                assert torch.equal(fn(X), model(X))
            in_place(model)
            model.weight.clamp_(-1, 1)
    assert built <= choice.MOST_REBUILDS + 1


def test_no_constants_unless_asked(compete: Compete) -> None:
    compete(FREEZING)
    model = torch.nn.Linear(8, 8)
    fn = compiled(model, tune="now")
    with torch.no_grad():
        fn(X)
    assert states() == {"freezing": "declined"}
    assert "constants" in the_choice().candidates["freezing"].reason


def test_model_can_die(always_freezing: None) -> None:
    model = torch.nn.Linear(8, 8)
    fn = compiled(model, constants=True, tune="now")
    with torch.no_grad():
        fn(X)
    alive = [weakref.ref(each) for each in model.parameters()]
    del fn, model
    gc.collect()
    assert [each() for each in alive] == [None, None]


def test_memory_limits_constants(compete: Compete) -> None:
    compete(FREEZING)
    model = torch.nn.Linear(512, 512)
    fn = compiled(model, constants=True, tune="now", memory=0.5)
    with torch.no_grad():
        fn(torch.randn(2, 512))
    assert "1 MiB, and options['memory'] allows 0" in the_choice().candidates["freezing"].reason


def test_parameters_made_in_inference_mode_are_no_constants() -> None:
    with torch.inference_mode():
        model = torch.nn.Linear(8, 8)
        fn = compiled(model, constants=True, tune="now", members=["ts", "ofi"])
        assert torch.equal(fn(X), model(X))
    assert set(states().values()) == {"declined"}


def test_facts_tell_objects_memory_and_versions() -> None:
    one, other = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    facts = _native.tensor_facts((X, one), (1,))
    assert _native.tensor_facts_hold(facts, (None, one))
    assert not _native.tensor_facts_hold(facts, (None, other))
    assert not _native.tensor_facts_hold(facts, (one,))
    one.detach().add_(1)
    assert not _native.tensor_facts_hold(facts, (None, one))
    with torch.inference_mode():
        made = torch.ones(2)
    for given, error in (((1,), TypeError), ((made,), ValueError)):
        with pytest.raises(error):
            _native.tensor_facts(given, (0,))
    with pytest.raises(IndexError):
        _native.tensor_facts((one,), (3,))
    with pytest.raises(TypeError):
        _native.tensor_facts_hold(b"short", (one,))


def test_entries_stay_within_the_limit(always_freezing: None) -> None:
    model = torch.nn.Linear(8, 8)
    fn = compiled(model, constants=True, tune="now")
    with torch.no_grad():
        for _ in range(20):
            fn(X)
            in_place(model)
    assert len(torchdynamo.eval_frame.cache_entries(torch.nn.Linear.forward)) <= torchdynamo.config.cache_size_limit
