"""The store between two processes: what stays as it was is found, and what has changed is not."""

from __future__ import annotations

import pytest
from programs_changed import CHANGED, HASHES, REPLACED
from programs_errors import ERRORS
from programs_unchanged import INDUCTOR, UNCHANGED
from two_processes import Outcome, run, twice, write


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Return what became of the programs in two processes.

    What stays as it is comes first, and tells what it imports. What replaces functions of libraries comes last.
    """
    changed = {f"changed_{name}": program for name, program in CHANGED.items()}
    unchanged = {**UNCHANGED, **ERRORS, **INDUCTOR}
    return twice(tmp_path_factory.mktemp("programs"), {**unchanged, **changed, **REPLACED})


@pytest.mark.parametrize("name", [*UNCHANGED, *ERRORS])
def test_a_second_process_finds_what_the_first_has_compiled(
    name: str, both: tuple[dict[str, Outcome], dict[str, Outcome]]
) -> None:
    first, second = (outcomes[name] for outcomes in both)
    assert first.equal and second.equal
    assert first.refused == []
    assert (second.hits, second.compiled) == (first.compiled, 0), second.told
    assert second.imported == []


@pytest.mark.parametrize("name", CHANGED)
def test_what_has_changed_gives_the_new_result(name: str, both: tuple[dict[str, Outcome], dict[str, Outcome]]) -> None:
    first, second = (outcomes[f"changed_{name}"] for outcomes in both)
    assert first.equal and second.equal


def test_nearly_all_of_the_changed_programs_had_been_stored(
    both: tuple[dict[str, Outcome], dict[str, Outcome]],
) -> None:
    stored = [name for name in CHANGED if not both[0][f"changed_{name}"].refused]
    assert len(stored) >= 0.9 * len(CHANGED)


def test_functions_that_are_replaced_in_a_library_are_not_taken_for_its_own(
    both: tuple[dict[str, Outcome], dict[str, Outcome]],
) -> None:
    first, second = both
    for name in REPLACED:
        assert first[name].equal and second[name].equal, name
        assert first[name].refused == [], name
        assert second[name].hits == 0, name


@pytest.fixture(scope="module")
def hashed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Outcome]]:
    """Return what became of the programs in processes with one seed of hashes, another, and the first again."""
    folder = tmp_path_factory.mktemp("hashed")
    write(folder, HASHES, after=False)
    return [run(folder, list(HASHES), {"PYTHONHASHSEED": seed}) for seed in "171"]


@pytest.mark.parametrize("name", HASHES)
def test_another_seed_of_hashes_gives_its_own_result(name: str, hashed: list[dict[str, Outcome]]) -> None:
    assert [outcomes[name].equal for outcomes in hashed] == [True] * 3


def test_the_same_seed_of_hashes_puts_sets_in_the_same_order(hashed: list[dict[str, Outcome]]) -> None:
    for name in ("order_of_names", "orders_of_pairs", "order_of_a_set_that_was_there"):
        assert (hashed[0][name].compiled, hashed[2][name].hits) == (1, 1), name


def test_what_inductor_has_compiled_is_found(both: tuple[dict[str, Outcome], dict[str, Outcome]]) -> None:
    first, second = both
    for name in INDUCTOR:
        assert first[name].equal and second[name].equal, name
        assert first[name].refused == [], name
        assert (second[name].hits, second[name].compiled) == (1, 0), (name, second[name].told)
        assert second[name].imported == []
