"""Code that cannot run in a function's frames is refused with an error, and the function stays as it was."""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hooking import always

from torchdynamo.eval_frame import GuardedCode, cache_entries, callback_active
from torchdynamo.hook.install import check_compatible


def target(a: int, b: int, /, c: int, *, d: int = 4) -> tuple[int, ...]:
    return a, b, c, d


def fewer(a: int, b: int, /, *, d: int = 4) -> None: ...
def more(a: int, b: int, /, c: int, e: int, *, d: int = 4) -> None: ...
def no_keyword_only(a: int, b: int, /, c: int) -> None: ...
def fewer_positional_only(a: int, /, b: int, c: int, *, d: int = 4) -> None: ...
def with_args(a: int, b: int, /, c: int, *args: int, d: int = 4) -> None: ...
def with_kwargs(a: int, b: int, /, c: int, *, d: int = 4, **kwargs: int) -> None: ...
def other_names(a: int, x: int, /, c: int, *, d: int = 4) -> None: ...
def other_order(b: int, a: int, /, c: int, *, d: int = 4) -> None: ...
async def coroutine(a: int, b: int, /, c: int, *, d: int = 4) -> None: ...
async def async_generator(a: int, b: int, /, c: int, *, d: int = 4) -> Any:
    yield 1


def generator(a: int, b: int, /, c: int, *, d: int = 4) -> Iterator[int]:
    yield 1


def closure(value: int) -> Callable[..., Any]:
    def inner(a: int, b: int, /, c: int, *, d: int = 4) -> int:
        return value

    return inner


CODES: dict[str, CodeType] = {
    fn.__name__: fn.__code__
    for fn in (fewer, more, no_keyword_only, fewer_positional_only, with_args, with_kwargs, other_names, other_order)
}
CODES |= {fn.__name__: fn.__code__ for fn in (coroutine, async_generator, generator)}
CODES["free variable"] = closure(1).__code__
CODES["module body"] = compile("1", "module", "exec")


@pytest.mark.parametrize("name", CODES)
def test_code_of_another_shape(name: str) -> None:
    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        return GuardedCode(CODES[name], always) if frame.f_code is target.__code__ else None

    with callback_active(callback):
        for _ in range(2):
            with pytest.raises(ValueError, match="cannot run in a frame of target"):
                target(1, 2, 3)
    assert cache_entries(target) == []
    assert target(1, 2, 3) == (1, 2, 3, 4)
    with pytest.raises(ValueError, match="cannot run"):
        check_compatible(target.__code__, CODES[name])


def test_free_variables_in_another_order() -> None:
    def make(x: int, y: int) -> Callable[[], int]:
        return lambda: x + y

    code = make(1, 2).__code__
    check_compatible(code, make(3, 4).__code__)
    with pytest.raises(ValueError, match="free variables"):
        check_compatible(code, code.replace(co_freevars=("y", "x")))


def answer(value: Any) -> Callable[..., Any]:
    return lambda frame, cache_entry, frame_state: value if frame.f_code is target.__code__ else None


@pytest.mark.parametrize("wrong", [0, True, "code", target, target.__code__, (target.__code__, always), ValueError])
def test_an_answer_of_another_type(wrong: Any) -> None:
    with callback_active(answer(wrong)), pytest.raises(TypeError, match="None or an Entry"):
        target(1, 2, 3)
    assert target(1, 2, 3) == (1, 2, 3, 4)


def test_an_entry_belongs_to_one_function() -> None:
    def first(a: int) -> int:
        return a

    def second(a: int) -> int:
        return a

    entry = GuardedCode(first.__code__, always)
    codes = (first.__code__, second.__code__)
    with callback_active(lambda frame, *_: entry if frame.f_code in codes else None):
        first(1)
        with pytest.raises(ValueError, match="another code object"):
            second(1)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the frame makes its own cells")
def test_code_that_does_not_make_its_cells() -> None:
    def with_cell(a: int, b: int, /, c: int, *, d: int = 4) -> Callable[[], int]:
        return lambda: a

    raw = bytearray(with_cell.__code__.co_code)
    raw[0:2] = bytes([9, 0])  # NOP in place of MAKE_CELL
    with pytest.raises(ValueError, match="making its cells"):
        check_compatible(target.__code__, with_cell.__code__.replace(co_code=bytes(raw)))
    inner = closure(1).__code__
    raw = bytearray(inner.co_code)
    raw[0:2] = bytes([9, 0])
    with pytest.raises(ValueError, match="copying its free variables"):
        check_compatible(inner, inner.replace(co_code=bytes(raw)))


def test_the_bound_local_is_not_a_cell() -> None:
    def captures() -> Callable[[], int]:
        __bound = 1
        return lambda: __bound

    with pytest.raises(ValueError, match="__bound"):
        GuardedCode(captures.__code__, always)


def functions_in(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from functions_in(const)
    if code.co_flags & inspect.CO_OPTIMIZED:
        yield code


def test_what_the_compiler_makes_is_compatible_with_itself() -> None:
    count = 0
    files = Path(sysconfig.get_path("stdlib")).glob("*.py")
    for path in sorted(filter(Path.exists, files)):  # Debian has links that may lead nowhere
        tree = ast.parse(path.read_bytes())
        for code in functions_in(compile(tree, str(path), "exec")):
            check_compatible(code, code.replace(co_firstlineno=code.co_firstlineno + 1))
            count += 1
    assert count > 1000
