"""The store and functions with `functools.lru_cache`: another process calls them as eager would, and as often."""

from __future__ import annotations

import pytest
from programs_cached_calls import AS_THEY_ARE, NOT_CALLED_TWICE, THAT_RAISE
from two_processes import Outcome, twice

Both = tuple[dict[str, Outcome], dict[str, Outcome]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Return what became of the programs in two processes."""
    return twice(tmp_path_factory.mktemp("cached_calls"), {**AS_THEY_ARE, **NOT_CALLED_TWICE, **THAT_RAISE})


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_a_stored_capture_calls_cached_functions_once(name: str, both: Both) -> None:
    first, second = (outcomes[name] for outcomes in both)
    assert first.equal and second.equal
    assert first.told == []
    assert (second.hits, second.compiled) == (first.compiled, 0), second.told


@pytest.mark.parametrize("name", NOT_CALLED_TWICE)
def test_what_a_cached_function_does_now_is_done_once(name: str, both: Both) -> None:
    first, second = (outcomes[name] for outcomes in both)
    assert first.equal and second.equal, (first, second)
    assert second.hits == 0


@pytest.mark.parametrize("name", THAT_RAISE)
def test_a_cached_function_that_raises_gives_its_error(name: str, both: Both) -> None:
    first, second = (outcomes[name] for outcomes in both)
    assert first.equal and second.equal, (first, second)
