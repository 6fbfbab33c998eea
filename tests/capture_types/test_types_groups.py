"""Exception groups and `except*` in captured frames."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native

pytestmark = pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="this Python has no exception groups")

X = torch.arange(4.0)

# `except*` is no syntax for older Pythons.
PROGRAMS = """
def shape(error):
    if isinstance(error, BaseExceptionGroup):
        return type(error).__name__, error.message, [shape(each) for each in error.exceptions]
    return type(error).__name__, error.args


class Mine(ExceptionGroup):
    def derive(self, parts):
        return Mine("derived " + self.message, parts)


def nested():
    return ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [TypeError(2), ValueError(3)]), KeyError("k")])


def made(x):
    group = nested()
    first, rest = group.split(ValueError)
    none = group.split(OSError)[0], group.subgroup(OSError), group.split(ExceptionGroup)[1]
    by_test = group.subgroup(lambda error: error.args == (2,))
    same = group.subgroup(ExceptionGroup) is group, str(group), str(first), group.args[0]
    return x + 1, shape(first), shape(rest), none, shape(by_test), same, shape(group.derive([KeyError(3)]))


def of_a_class_of_ones_own(x):
    group = Mine("m", [ValueError(1), TypeError(2)])
    first, rest = group.split((ValueError, KeyError))
    return x + 1, shape(first), shape(rest), shape(BaseExceptionGroup("b", [KeyboardInterrupt()]))


def all_caught(x):
    log = []
    try:
        raise nested()
    except* ValueError as error:
        log.append(shape(error))
    except* (TypeError, KeyError) as error:
        log.append(shape(error))
    else:
        log.append("else")
    finally:
        log.append("finally")
    return x + 1, log


def some_left(x):
    log = []
    try:
        try:
            raise nested()
        except* ValueError as error:
            log.append(shape(error))
    except ExceptionGroup as error:
        log.append(shape(error))
    return x + 1, log


def plain(x):
    log = []
    try:
        raise ValueError("alone")
    except* TypeError:
        log.append("no")
    except* ValueError as error:
        log.append(shape(error))
    try:
        try:
            raise KeyError("other")
        except* ValueError:
            log.append("no")
    except KeyError as error:
        log.append(shape(error))
    return x + 1, log


def handlers_raise(x):
    log = []
    try:
        try:
            raise nested()
        except* ValueError:
            raise OSError("new")
        except* TypeError:
            raise
    except ExceptionGroup as error:
        log.append(shape(error))
    try:
        try:
            raise nested()
        except* (ValueError, TypeError, KeyError):
            raise OSError("only")
    except Exception as error:
        log.append(shape(error))
    try:
        try:
            raise nested()
        except* ValueError as error:
            raise error
    except ExceptionGroup as error:
        log.append(shape(error))
    try:
        try:
            raise nested()
        except* Exception:
            raise
    except ExceptionGroup as error:
        log.append(shape(error))
    return x + 1, log


def nothing_raised(x):
    log = []
    try:
        log.append("body")
    except* ValueError:
        log.append("no")
    else:
        log.append("else")
    return x + 1, log


def in_a_loop(x):
    found = []
    for at in range(3):
        try:
            raise ExceptionGroup("g", [ValueError(at), TypeError(at)])
        except* ValueError as error:
            if at == 1:
                found.append("one")
            found += error.exceptions[0].args
        except* TypeError:
            pass
    return x + len(found), found


def wrong(x):
    said = []
    for parts in ([], [1], 3, [KeyboardInterrupt()]):
        try:
            ExceptionGroup("g", parts) if parts != 3 else ExceptionGroup("g")
        except (TypeError, ValueError) as error:
            said.append(str(error))
    try:
        try:
            raise ValueError(1)
        except* ExceptionGroup:
            pass
    except TypeError as error:
        said.append(str(error))
    return x + 1, said


def notes(x):
    group = nested()
    group.add_note("n")
    group.add_note("m")
    part = group.subgroup(ValueError)
    part.add_note("p")
    return x + 1, group.__notes__, part.__notes__


def returned(x):
    group = ExceptionGroup("g", [ValueError(1), TypeError(x.dim())])
    return x + 1, [group], shape(group)
"""

NAMES = [line.split("(")[0][4:] for line in PROGRAMS.splitlines() if line.endswith("(x):")]


@pytest.mark.parametrize("name", NAMES)
def test_as_eager(name: str) -> None:
    module: dict[str, Any] = {"__name__": __name__}
    exec(compile(PROGRAMS, __file__, "exec"), module)
    fn = module[name]
    wanted = fn(X)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        got = compiled(X)
        assert torch.equal(got[0], wanted[0])
        assert repr(got[1:]) == repr(wanted[1:])
    assert len(_native.cache_entries(fn.__code__)) == 1
