"""Facts about sizes that are stored with a compiled graph: they hold or not, and are guarded by who finds it."""

from __future__ import annotations

from typing import Any

import pytest

from torchdynamo.graph.shape_env import make_shape_env, new_symbol


def numbers(*values: int, least: int = 0) -> tuple[Any, list[Any]]:
    env: Any = make_shape_env()
    return env, [new_symbol(env, value, f"n{at}", least, None)[0] for at, value in enumerate(values)]


def facts(env: Any) -> list[str]:
    return [str(guard.expr) for guard in env.guards]


def stored() -> str:
    env, (a, b) = numbers(6, 4)
    assert a != 7  # known before the compile
    env.hand_over()
    assert a % 2 == 0 and a * b != 1 and b != 1  # what the compile finds out, though neither is an input of a graph
    text = env.produce_guards_expression([], guards=env.get_pruned_guards([]))
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(("a", "b", "holds"), [(6, 4, True), (8, 2, True), (5, 4, False), (6, 1, False)])
def test_facts_hold_or_not_for_other_numbers(a: int, b: int, holds: bool) -> None:
    env, _ = numbers(a, b)
    env.hand_over()
    assert env.evaluate_guards_expression(stored(), []) is holds
    assert bool(facts(env)) is holds


def test_facts_that_hold_are_guarded() -> None:
    found, (a, b) = numbers(6, 4)
    assert a != 7
    mine, _ = numbers(8, 2)
    assert mine.evaluate_guards_expression(stored(), [])
    assert a % 2 == 0 and a * b != 1 and b != 1
    assert set(facts(mine)) == set(facts(found)[1:])


def test_numbers_that_are_others_hold_nothing() -> None:
    env, _ = numbers(6)
    assert not env.evaluate_guards_expression(stored(), [])


def test_nothing_found_out_is_nothing_stored() -> None:
    env, _ = numbers(6)
    env.hand_over()
    assert env.produce_guards_expression([], guards=env.get_pruned_guards([])) is None


def test_what_was_known_before_is_said() -> None:
    (one, _), (other, _), (bounded, _) = numbers(6), numbers(8), numbers(6, least=2)
    assert one.hand_over() == other.hand_over() != bounded.hand_over()
    fixed, (n,) = numbers(6)
    assert n != 7
    assert fixed.hand_over() != one.hand_over()


def test_nothing_is_found_where_no_key_holds_what_was_known() -> None:
    env, (n,) = numbers(6)
    assert n != 7
    text = env.produce_guards_expression([], guards=env.get_pruned_guards([]))
    assert not env.evaluate_guards_expression(text, [])
    fixed: Any = make_shape_env()
    assert fixed.produce_guards_expression([], guards=fixed.get_pruned_guards([])) is None


def test_a_second_compile_stores_what_the_first_has_found_out() -> None:
    env, (n,) = numbers(6)
    env.hand_over()
    assert n % 2 == 0
    assert "Mod" in env.hand_over()
    assert env.get_pruned_guards([]) == env.guards
