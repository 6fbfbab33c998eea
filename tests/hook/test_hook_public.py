"""torchdynamo.eval_frame: the face of the hook for callers of its own."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import pytest
from hooking import Swapper, always

import torchdynamo.hook.build_check as build_check
from torchdynamo import eval_frame
from torchdynamo.hook.install import Compiled, Entry, clear_code


def one(a: int) -> Any:
    return "one", a


def other(a: int) -> Any:
    return "other", a


class Holder:
    def method(self, a: int) -> Any:
        return "method", a

    def __call__(self, a: int) -> Any:
        return "call", a


def test_entries_of_all_kinds_of_callables() -> None:
    with eval_frame.callback_active(Swapper((one, other))):
        one(1)
    compiled = Compiled(one, None)
    wrapped = functools.update_wrapper(Compiled(compiled, None), one)
    for fn in (one, one.__code__, compiled, wrapped, functools.partial(one, 1), Compiled(functools.partial(one), None)):
        (entry,) = eval_frame.cache_entries(fn)
        assert entry.code is other.__code__
        assert entry.guards is always
        assert entry.graph is None
    assert eval_frame.code_of(Holder().method) is Holder.method.__code__
    assert eval_frame.code_of(Holder()) is Holder.__call__.__code__
    for wrong in (len, 3, int):
        with pytest.raises(TypeError):
            eval_frame.code_of(wrong)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_entries_of_a_module() -> None:
    import torch

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    assert eval_frame.code_of(Model()) is Model.forward.__code__
    assert eval_frame.code_of(Compiled(Model(), None)) is Model.forward.__code__


def test_guarded_code_and_entry() -> None:
    class Info:
        guards = ("guard",)
        graph = "graph"

    guarded = eval_frame.GuardedCode(one.__code__, always)
    assert guarded.check_fn is guarded.guards is always
    assert guarded.code is one.__code__
    assert guarded.graph is None
    entry = Entry(one.__code__, always, owner_id=2, info=Info())
    assert entry.guards == ("guard",)
    assert entry.graph == "graph"
    assert entry.check is always
    assert entry.owner_id == 2
    assert "one" in repr(entry)
    assert "GuardedCode" in repr(guarded)


def test_skip_code() -> None:
    swapper = Swapper((one, other))
    eval_frame.skip_code(one)
    with eval_frame.callback_active(swapper):
        assert one(1) == ("one", 1)
    assert swapper.asked == []
    clear_code(one.__code__)


def test_a_build_for_another_torch_or_python_is_refused() -> None:
    import platform

    here = platform.python_version()
    build_check.check_versions("2.13.0", here, "2.13.0")
    build_check.check_versions("", here, None)
    with pytest.raises(ImportError, match=r"built for torch 2\.11\.0, and this is torch 2\.13\.0.*pip install"):
        build_check.check_versions("2.11.0", here, "2.13.0")
    with pytest.raises(ImportError, match=r"built for Python 3\.9\.1"):
        build_check.check_versions("", "3.9.1", None)
