"""What a callback is asked, and what its answers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hooking import Swapper, always, nothing, swapped, unraisable

from torchdynamo._native import rest_code
from torchdynamo.eval_frame import GuardedCode, cache_entries, callback_active, set_eval_frame
from torchdynamo.hook.install import Entry, clear_code, drop_owner, hook_is_in, skip_code, skip_reason


def add(a: int, b: int = 2, *args: int, k: int = 3, **kw: int) -> Any:
    return a + b + k


def tell(a: int, b: int = 2, *args: int, k: int = 3, **kw: int) -> Any:
    x, y = 1, 2
    return a, b, args, k, kw, x, y


def test_callback_sees_each_call() -> None:
    asked = []

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> None:
        asked.append((frame.f_code.co_name, dict(frame.f_locals), cache_entry))

    prior = set_eval_frame(callback)
    try:
        assert add(1) == 6
        assert add(1, 2, 3, k=4, z=5) == 7
    finally:
        assert set_eval_frame(prior) is callback
    assert asked == [
        ("add", {"a": 1, "b": 2, "args": (), "k": 3, "kw": {}}, None),
        ("add", {"a": 1, "b": 2, "args": (3,), "k": 4, "kw": {"z": 5}}, None),
    ]


def test_hook_is_in_only_while_needed() -> None:
    assert not hook_is_in()
    with callback_active(nothing):
        assert hook_is_in()
    assert not hook_is_in()


def test_frame_offers_the_function_and_its_surroundings() -> None:
    outer = 7

    def inner(x: int) -> int:
        return x + outer

    found = {}

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> None:
        if frame.f_code is inner.__code__:
            found.update(
                func=frame.f_func,
                closure=frame.closure,
                globals=frame.f_globals,
                builtins=frame.f_builtins,
                frame=frame,
            )

    with callback_active(callback):
        inner(1)
    assert found["func"] is inner or found["func"].__code__ is inner.__code__  # 3.10 has no way to the function
    assert found["closure"]["outer"].cell_contents == 7
    assert found["globals"] is globals()
    assert found["builtins"]["len"] is len
    with pytest.raises(RuntimeError, match="only while the callback"):
        found["frame"].f_locals


def test_same_code_and_other_code() -> None:
    assert swapped(add, add, 1) == 6
    clear_code(add.__code__)
    assert swapped(add, tell, 1) == (1, 2, (), 3, {}, 1, 2)
    assert swapped(add, tell, 1, 5, 6, 7, k=8, z=9) == (1, 5, (6, 7), 8, {"z": 9}, 1, 2)


def test_entries_are_asked_before_the_callback() -> None:
    swapper = Swapper((add, tell), check=lambda f_locals: f_locals["a"] < 10)
    with callback_active(swapper):
        assert add(1)[0] == 1
        assert add(2)[0] == 2
        assert add(10) == 15  # no entry fits: one is made, but its check does not hold either
    assert swapper.asked.count("add") == 2
    first, second = cache_entries(add)
    assert (first.hits, second.hits) == (2, 0)


def test_entries_are_listed_in_order_of_arrival() -> None:
    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if frame.f_code is not add.__code__:
            return None
        a = frame.f_locals["a"]
        assert frame_state.setdefault("latest", cache_entry) is cache_entry
        entry = Entry(tell.__code__, lambda f_locals: f_locals["a"] == a, info=a)
        frame_state["latest"] = entry
        return entry

    with callback_active(callback):
        for a in (0, 1, 2, 1, 0, 2, 1):
            assert add(a)[0] == a
    assert [entry.info for entry in cache_entries(add)] == [0, 1, 2]
    assert [entry.hits for entry in cache_entries(add)] == [2, 3, 2]


def test_run_mode_uses_what_is_cached_and_asks_nobody() -> None:
    swapped(add, tell, 1)
    with callback_active(False):
        assert hook_is_in()
        assert add(1)[0] == 1
        assert nothing(1, 2, 3) is None  # type: ignore[arg-type, func-returns-value]


def test_entries_serve_their_owner_and_run_mode() -> None:
    class Owner:
        def __init__(self, number: int) -> None:
            self.owner_id = number

        def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            if frame.f_code is add.__code__ and self.owner_id == 1:
                return Entry(tell.__code__, always, owner_id=1)
            return None

    one, two = Owner(1), Owner(2)
    with callback_active(one):
        assert add(1)[0] == 1
    with callback_active(two):
        assert add(1) == 6
    with callback_active(False):
        assert add(1)[0] == 1
    drop_owner(2)
    (entry,) = cache_entries(add)
    assert entry.live
    drop_owner(1)
    assert cache_entries(add) == []
    assert not entry.live


def test_an_entry_without_an_owner_is_its_callbacks() -> None:
    class Owner:
        owner_id = 7

        def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            return entries.pop() if frame.f_code is add.__code__ else None

    entries = [Entry(tell.__code__, always, owner_id=8), GuardedCode(tell.__code__, always)]
    with callback_active(Owner()):
        assert add(1)[0] == 1
        assert add(2)[0] == 2
        clear_code(add.__code__)
        with pytest.raises(ValueError, match="owner 7"):
            add(1)


def test_every_frame_may_be_answered_with_its_own_code() -> None:
    with callback_active(lambda frame, *_: GuardedCode(frame.f_code, always)):
        names: dict[str, Any] = {}
        exec("class Body:\n    x = [i for i in range(3)]\ndef make():\n    yield 1\nresult = list(make())", names)
        assert add(1) == 6
    assert names["Body"].x == [0, 1, 2]
    assert names["result"] == [1]


def test_a_script_may_end_with_a_callback_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.path[:0] = sys.argv[1:]\n"
        "import without_torch\n"
        "from torchdynamo.eval_frame import set_eval_frame\n"
        "import json\n"
        "class Late:\n"
        "    def __del__(self): pass\n"
        "late = Late()\n"
        "def callback(frame, *_): json.dumps([])\n"
        "set_eval_frame(callback)\n"
        "json.dumps([1])\n"
    )
    tests = Path(__file__).parents[1]
    command = [sys.executable, str(script), str(tests), str(tests.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_skipped_function_is_not_asked_about_but_its_entries_serve() -> None:
    swapper = Swapper((add, tell), check=lambda f_locals: f_locals["a"] == 1)
    with callback_active(swapper):
        add(1)
        skip_code(add.__code__, "enough")
        assert add(1)[0] == 1
        assert add(2) == 7
    assert swapper.asked.count("add") == 1
    assert skip_reason(add.__code__) == "enough"
    clear_code(add.__code__)
    assert skip_reason(add.__code__) is None
    assert cache_entries(add) == []


def test_who_rests_is_not_asked_for_so_many_calls() -> None:
    swapper = Swapper((add, tell), check=lambda f_locals: f_locals["a"] == 1)
    with callback_active(swapper):
        add(1)
        rest_code(add.__code__, 0, 2)
        assert add(1)[0] == 1  # an entry serves
        swapper.codes.clear()
        assert [add(2), add(3), swapper.asked.count("add")] == [7, 8, 1]
        assert [add(2), swapper.asked.count("add")] == [7, 2]
        rest_code(add.__code__, 99, 5)  # somebody else
        assert [add(2), swapper.asked.count("add")] == [7, 3]
        rest_code(add.__code__, 0, 5)
        clear_code(add.__code__)
        assert [add(2), swapper.asked.count("add")] == [7, 4]


def test_nobody_is_asked_about_what_is_called_by_who_rests_deep() -> None:
    def calls(a: int) -> Any:
        return add(a), tell(a)[0]

    def answer(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if frame.f_code is calls.__code__:
            rest_code(frame.f_code, 0, 1, True)
        return swapper(frame, cache_entry, frame_state)

    def called(a: int) -> tuple[Any, list[str]]:
        swapper.asked.clear()
        result = calls(a)
        return result[0][0], swapper.asked  # of add's entry, which goes on to serve

    swapper = Swapper((add, tell))
    with callback_active(swapper):
        add(0)
    with callback_active(answer):
        assert called(1) == (1, ["calls"])
        assert called(2) == (2, [])
        tell(3)
        assert swapper.asked == ["tell"]
        assert called(4) == (4, ["calls"])
        clear_code(add.__code__)  # resting deep ends only with what drops an entry of the one who rests
        assert calls(5)[0] == 10
        rest_code(calls.__code__, 0, 0)
        swapper.codes.clear()
    with callback_active(swapper):
        swapper.asked.clear()
        assert calls(6)[0] == 11
        assert swapper.asked == ["calls", "add", "tell"]


def test_an_error_in_a_callback_is_reported_and_the_function_runs() -> None:
    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> None:
        raise LookupError("callback")

    with unraisable() as reported:
        with callback_active(callback):
            assert add(1) == 6
        assert add(1) == 6
    assert [type(error) for error in reported] == [LookupError]


def test_where_the_stack_ends_the_function_runs() -> None:
    """It will say so itself."""

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> None:
        callback(frame, cache_entry, frame_state)

    with unraisable() as reported, callback_active(callback):
        assert add(1) == 6
    assert reported == []


def test_an_error_in_a_check_is_reported_and_the_function_runs() -> None:
    def check(f_locals: dict[str, Any]) -> bool:
        return 1 // (f_locals["a"] - 1) == 0

    swapper = Swapper((add, tell), check=check)
    with callback_active(swapper):
        assert add(5)[0] == 5
        with unraisable() as reported:
            assert add(1) == 6
        assert add(6)[0] == 6
    assert [type(error) for error in reported] == [ZeroDivisionError]
    assert swapper.asked.count("add") == 1


@pytest.mark.parametrize("where", ["callback", "check"])
def test_interrupts_are_not_swallowed(where: str) -> None:
    def interrupt(*args: Any) -> Any:
        raise KeyboardInterrupt

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        return interrupt() if where == "callback" else GuardedCode(tell.__code__, interrupt)

    with pytest.raises(KeyboardInterrupt), callback_active(callback):
        add(1)


def test_an_exception_as_answer_is_raised_from_the_call() -> None:
    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if frame.f_code is not add.__code__:
            return None
        try:
            raise ValueError("not this one")
        except ValueError as error:
            return error

    with pytest.raises(ValueError, match="not this one") as caught, callback_active(callback):
        add(1)
    names = [entry.name for entry in caught.traceback]
    assert names == ["test_an_exception_as_answer_is_raised_from_the_call"]


def test_the_callback_is_off_while_it_and_checks_run() -> None:
    seen = []

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if frame.f_code is not add.__code__:  # what the collector finds to run
            return None
        seen.append(set_eval_frame(None))
        add(1)
        return GuardedCode(tell.__code__, check)

    def check(f_locals: dict[str, Any]) -> bool:
        seen.append(set_eval_frame(None))
        return bool(add(1) == 6)

    with callback_active(callback):
        assert add(1)[0] == 1
    assert seen == [None, None]


def test_a_check_may_clear_the_cache_under_its_own_feet() -> None:
    def check(f_locals: dict[str, Any]) -> bool:
        clear_code(add.__code__)
        return True

    with callback_active(Swapper((add, tell), check=check)):
        assert add(1) == 6  # what was dropped while it was checked does not run
    assert cache_entries(add) == []


def test_callbacks_are_callable() -> None:
    for wrong in (0, True, "callback", object()):
        with pytest.raises(TypeError):
            set_eval_frame(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        GuardedCode("code", always)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        GuardedCode(add.__code__, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        skip_code(add, "a function is not code")  # type: ignore[arg-type]


def test_a_block_is_entered_once() -> None:
    block = callback_active(nothing)
    with block, pytest.raises(RuntimeError):
        block.__enter__()
    with block:
        pass
