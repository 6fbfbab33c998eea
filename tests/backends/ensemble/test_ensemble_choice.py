"""Who serves a graph: built when, timed how, dropped why."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from backends.ensemble.competing import compiled, member, reasons, slow, states, the_choice, work

import torchdynamo
from torchdynamo.backends.ensemble import choice, choices, chosen, settled
from torchdynamo.backends.ensemble.measure import MOST, WARM_UPS, Timing, Tournament, best
from torchdynamo.backends.ensemble.member import Declined, Member, Run, register_member
from torchdynamo.errors import FallbackWarning, UnknownSetting

Compete = Callable[..., None]
X = torch.randn(4, 4)
CALLS = 3 * (WARM_UPS + 2 * MOST) + 5


@pytest.fixture
def slow_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the captured graph slow, so that a member can be faster."""
    real = choice.Choice.__init__

    def slowed(self: Any, gm: Any, *rest: Any) -> None:
        real(self, gm, *rest)
        self.eager = slow(0.002)(gm.forward)

    monkeypatch.setattr(choice.Choice, "__init__", slowed)


def test_faster_member_wins_on_real_calls(compete: Compete, slow_eager: None) -> None:
    compete(member("quick", lambda run: run), member("slug", slow(0.001)))
    fn = compiled(work)
    for _ in range(CALLS):
        torch.testing.assert_close(fn(X), work(X), rtol=0, atol=0)
    assert chosen() == ["quick"] and settled()


def test_winner_is_called_without_anything_between(compete: Compete, slow_eager: None) -> None:
    compete(member("quick", lambda run: run))
    fn = compiled(work, tune="now")
    fn(X)
    found = the_choice()
    held = [reference() for reference in found._holders]
    assert [each.fn for each in held if each is not None] == [found.gm.forward]


def test_equal_speed_is_eager(compete: Compete) -> None:
    compete(member("same", lambda run: run))
    fn = compiled(work, tune="now")
    fn(X)
    assert len(chosen()) == 1
    timing = Timing(1.0, 0.9, 1.1, 9)
    assert best({"eager": timing, "same": timing}, {}) == "eager"


def test_nothing_is_built_before_the_graph_has_cost_as_much(compete: Compete) -> None:
    built: list[float] = []

    def noted(run: Run) -> Run:
        built.append(the_choice().spent)
        return run

    compete(member("dear", noted, cost=0.1))
    fn = compiled(work)
    fn(X)
    assert built == [] and states() == {"dear": "waiting"}
    found = the_choice()
    found.spent = found.candidates["dear"].cost
    fn(X)
    assert built == [found.candidates["dear"].cost] and states() == {"dear": "built"}


def test_best_so_far_serves_while_others_wait(compete: Compete, slow_eager: None) -> None:
    served = 0

    def counted(run: Run) -> Run:
        def count(*args: Any) -> Any:
            nonlocal served
            served += 1
            return run(*args)

        return count

    compete(member("quick", counted), member("dear", lambda run: run, cost=1e9))
    fn = compiled(work)
    for _ in range(CALLS):
        fn(X)
    before = served
    for _ in range(10):
        fn(X)
    assert served == before + 10 and not settled() and the_choice().leader == "quick"


def test_tune_now_builds_all_in_the_first_call(compete: Compete) -> None:
    compete(member("one", lambda run: run, cost=100.0), member("two", lambda run: run, cost=1000.0))
    fn = compiled(work, tune="now")
    fn(X)
    assert states() == {"one": "built", "two": "built"} and settled()


def test_budget_ends_builds(compete: Compete) -> None:
    compete(member("one", slow(0.0)), member("two", slow(0.0)))
    compiled(work, tune="now", budget=0.0)(X)
    assert all("budget" in reason for reason in reasons().values()) and chosen() == ["eager"]


def test_run_mode_neither_builds_nor_measures(compete: Compete) -> None:
    compete(member("one", lambda run: run))
    fn = compiled(work)
    fn(X)
    before = the_choice().spent
    with torchdynamo.run():
        fn(X)
    assert the_choice().spent == before
    fn(X)
    assert the_choice().spent > before


def test_deterministic_algorithms_are_served_by_one_member(compete: Compete) -> None:
    compete(member("one", lambda run: run))
    torch.use_deterministic_algorithms(True)
    try:
        fn = compiled(work)
        for _ in range(CALLS):
            fn(X)
        assert states() == {"one": "waiting"}
    finally:
        torch.use_deterministic_algorithms(False)


def test_named_members_only() -> None:
    fn = compiled(work, members=["ts"], tune="now")
    fn(X)
    assert set(states()) == {"ts"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"members": ["induktor"]}, "did you mean 'inductor'"),
        ({"members": "ts"}, "is a list of names"),
        ({"constant": True}, "did you mean 'constants'"),
        ({"constants": 1}, "is True or False"),
        ({"tune": "later"}, "is one of online, now"),
        ({"budget": -1}, "a number of at least 0"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UnknownSetting, match=text):
        torchdynamo.compile(work, backend="ensemble", options=options)


def test_member_that_cannot_build_is_a_row_with_its_reason(compete: Compete) -> None:
    def declines(run: Run) -> Run:
        raise Declined("not today")

    def breaks(run: Run) -> Run:
        raise ValueError("broken\ncompiler")

    compete(member("declines", declines), member("breaks", breaks))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn = compiled(work, tune="now")
        torch.testing.assert_close(fn(X), work(X), rtol=0, atol=0)
    assert reasons() == {"declines": "not today", "breaks": "it raises ValueError: broken compiler"}
    assert chosen() == ["eager"]


def test_member_that_raises_in_a_later_call_is_dropped(compete: Compete, slow_eager: None) -> None:
    calls = 0

    def fails_late(run: Run) -> Run:
        def late(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 40:
                raise RuntimeError("late")
            return run(*args)

        return late

    compete(member("late", fails_late))
    fn = compiled(work)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(80):
            torch.testing.assert_close(fn(X), work(X), rtol=0, atol=0)
    assert [str(each.message) for each in caught if "late" in str(each.message)] != []
    assert len([each for each in caught if issubclass(each.category, FallbackWarning)]) == 1
    assert calls == 41 and chosen() == ["eager"] and "late" in reasons()["late"]


def test_error_of_the_program_is_eagers_and_drops_nobody(compete: Compete, slow_eager: None) -> None:
    def index(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(i, x)

    compete(member("quick", lambda run: run))
    fn = compiled(index, tune="now")
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    fn(X, good)
    with pytest.raises(IndexError) as wanted:
        index(X, bad)
    with pytest.raises(IndexError) as found:
        fn(X, bad)
    assert str(found.value) == str(wanted.value) and states() == {"quick": "built"}
    torch.testing.assert_close(fn(X, good), index(X, good))


def test_random_numbers_are_eagers() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    fn = compiled(noisy, tune="now")
    for _ in range(3):
        torch.manual_seed(7)
        wanted, state = noisy(X), torch.get_rng_state()
        torch.manual_seed(7)
        assert torch.equal(fn(X), wanted) and torch.equal(torch.get_rng_state(), state)
    assert chosen() == ["eager"]


def test_building_leaves_generators_alone(compete: Compete) -> None:
    def draws(run: Run) -> Run:
        torch.rand(3)
        return run

    compete(member("draws", draws))
    torch.manual_seed(3)
    state = torch.get_rng_state()
    compiled(work, tune="now")(X)
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_share_a_choice(compete: Compete) -> None:
    compete(member("one", lambda run: run), member("two", slow(0.0001)))
    fn = compiled(work)
    wanted, wrong = work(X), []

    def loop() -> None:
        for _ in range(30):
            if not torch.equal(fn(X), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=loop) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_sizes_that_vary_have_a_choice_each(compete: Compete) -> None:
    compete(member("one", lambda run: run))
    fn = torchdynamo.compile(work, backend="ensemble", dynamic=True, options={"tune": "now"})
    for size in range(3, 16):
        x = torch.randn(size, size)
        torch.testing.assert_close(fn(x), work(x), rtol=0, atol=0)
    assert len(chosen()) == torchdynamo.config.cache_size_limit + 1  # the last is for all other sizes


def test_training_is_left_to_what_differentiates(compete: Compete) -> None:
    layer = torch.nn.Linear(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(layer(x)).sum()

    compete(
        member("whole", lambda run: run), member("cut", lambda run: lambda *args: tuple(r.detach() for r in run(*args)))
    )
    fn = compiled(step, tune="now")
    fn(X).backward()
    assert states() == {"whole": "built", "cut": "rejected"}
    found = layer.weight.grad.clone()
    layer.zero_grad()
    step(X).backward()
    assert torch.equal(found, layer.weight.grad)


def test_graph_that_writes_to_its_input(compete: Compete) -> None:
    def fill(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    compete(member("one", lambda run: run), member("idle", lambda run: lambda x: ((x + 1) * 2,)))
    fn = compiled(fill, tune="now")
    ours, theirs = torch.zeros(3), torch.zeros(3)
    for _ in range(3):
        assert torch.equal(fn(ours), fill(theirs)) and torch.equal(ours, theirs)
    assert states() == {"one": "built", "idle": "rejected"}


def test_tournament_drops_who_is_far_behind() -> None:
    contest = Tournament(["eager", "fast", "slow"])
    speed = {"eager": 1.0, "fast": 0.5, "slow": 3.0}
    while not contest.is_over:
        name = contest.next()
        contest.note(name, speed[name])
    assert contest.left == ["fast"] and len(contest.seconds["slow"]) == 2


def test_tournament_counts_runs_that_follow_one_of_the_same_contender() -> None:
    """Contenders that are slow after somebody else ran, and fast when they run again."""
    contest, before = Tournament(["eager", "other"]), ""
    while not contest.is_over:
        name = contest.next()
        contest.note(name, 0.1 if name == before else 7.0)
        before = name
    assert all(set(counted) == {0.1} for counted in contest.seconds.values())


@pytest.mark.parametrize(
    ("times", "winner"),
    [
        ({"eager": 1.0, "a": 0.99}, "eager"),
        ({"eager": 1.0, "a": 0.9}, "a"),
        ({"eager": 1.0, "a": 0.5, "b": 0.505}, "b"),
        ({"eager": 1.0, "a": 0.5, "b": 0.6}, "a"),
        ({"eager": 1.0, "foreign": 0.92}, "eager"),
        ({"eager": 1.0, "foreign": 0.7, "a": 0.75}, "a"),
        ({"eager": 1.0, "foreign": 0.6, "a": 0.75}, "foreign"),
    ],
)
def test_best(times: dict[str, float], winner: str) -> None:
    timings = {name: Timing(each, each * 0.95, each * 1.05, 9) for name, each in times.items()}
    facts: dict[str, dict[str, Any]] = {"a": {"rank": 9}, "b": {"rank": 1}, "foreign": {"has_threads": True}}
    members = {name: member(name, lambda run: run, **each) for name, each in facts.items()}
    assert best(timings, members) == winner


def test_members_names_are_their_own() -> None:
    with pytest.raises(ValueError, match="already"):
        register_member(Member("inductor", lambda subgraph: subgraph.gm.forward))


def test_choice_dies_with_what_was_compiled(compete: Compete) -> None:
    compete(member("one", lambda run: run))
    fn = compiled(work, tune="now")
    fn(X)
    assert len(choices) == 1
    del fn
    torchdynamo.reset()
    gc.collect()
    assert len(choices) == 0


def test_explain_shows_what_became_of_each_member(compete: Compete) -> None:
    def declines(run: Run) -> Run:
        raise Declined("not today")

    compete(member("one", lambda run: run), member("two", declines))
    text = str(torchdynamo.explain(work, backend="ensemble", options={"tune": "now"})(X))
    assert "Members of the ensemble" in text and "not today" in text and " ms (" in text
    assert "Members" not in str(torchdynamo.explain(work)(X))
