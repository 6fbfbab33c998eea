"""Which frames are captured, and the reason given for each that is not."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Iterator
from types import CodeType
from typing import Any

import pytest

from torchdynamo.eval_frame import code_of
from torchdynamo.hook import frames, install

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def plain(x: int) -> int:
    return x


def generator(x: int) -> Iterator[int]:
    yield x


async def coroutine(x: int) -> int:
    return x


async def async_generator(x: int) -> AsyncIterator[int]:
    yield x


@dataclasses.dataclass
class Point:
    x: int


Pair = collections.namedtuple("Pair", "x y")
SOURCE = "class Body:\n    x = 1\n"
MODULE_BODY = compile(SOURCE, "user.py", "exec")
CLASS_BODY = next(const for const in MODULE_BODY.co_consts if isinstance(const, CodeType))


@pytest.mark.parametrize(
    ("code", "f_globals", "reason"),
    [
        (plain.__code__, globals(), None),
        ((lambda x: x).__code__, globals(), None),
        (pytest.raises.__code__, vars(sys.modules["pytest"]), None),  # from site-packages: as good as the user's own
        (generator.__code__, globals(), "generator"),
        (coroutine.__code__, globals(), "coroutine"),
        (async_generator.__code__, globals(), "coroutine"),
        (MODULE_BODY, globals(), "module body"),
        (compile("x + 1", "<string>", "eval"), globals(), "module body"),
        (CLASS_BODY, globals(), "class body"),
        (json.dumps.__code__, vars(json), "stdlib"),
        (contextlib.suppress.__exit__.__code__, vars(contextlib), "stdlib"),
        (asyncio.run.__code__, vars(asyncio), "stdlib"),
        (importlib.util.find_spec.__code__, vars(importlib.util), "stdlib"),
        (importlib.import_module.__code__, vars(importlib), "stdlib"),
        (Pair.__new__.__code__, Pair.__new__.__globals__, "stdlib"),
        (frames.skip_reason.__code__, vars(frames), "torchdynamo"),
        (code_of.__code__, vars(install), "torchdynamo"),
    ],
)
def test_reasons(code: CodeType, f_globals: dict[str, Any], reason: str | None) -> None:
    assert frames.skip_reason(code, f_globals) == reason


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects have no qualified name before 3.11")
def test_methods_made_by_dataclass() -> None:
    assert frames.skip_reason(Point.__init__.__code__, globals()) == "stdlib"
    assert frames.skip_reason(Point.__eq__.__code__, globals()) == "stdlib"


def test_a_string_of_the_users_is_captured() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def fn(x): return x", names)
    assert frames.skip_reason(names["fn"].__code__, names) is None


def test_frozen_modules() -> None:
    frozen = sys.modules["_frozen_importlib"]
    assert frames.skip_reason(frozen._find_spec.__code__, vars(frozen)) == "stdlib"


@needs_torch
def test_torch_and_its_layers() -> None:
    import torch

    def reason(fn: Any) -> str | None:
        return frames.skip_reason(fn.__code__, fn.__globals__)

    assert reason(torch.nn.Linear.forward) is None
    assert reason(torch.nn.Sequential.forward) is None
    assert reason(torch.nn.MultiheadAttention.forward) is None
    assert reason(torch.nn.Linear.__init__) == "torch internals"
    assert reason(torch.nn.Module._call_impl) == "torch internals"
    assert reason(torch.nn.functional.relu) == "torch internals"
    assert reason(torch.Tensor.__rsub__) == "torch internals"
    rewritten = plain.__code__.replace(co_names=("__compiled_fn_1_abc",))
    assert frames.skip_reason(rewritten, globals()) == "torch internals"
    assert frames.skip_reason(plain.__code__, {"__name__": "torch._inductor.made"}) == "torch internals"


def test_always_capture_exempts_one_code_object_until_it_dies() -> None:
    twin = generator.__code__.replace()
    assert frames.always_capture(twin) is twin
    assert frames.skip_reason(twin, globals()) is None
    assert twin == generator.__code__
    assert frames.skip_reason(generator.__code__, globals()) == "generator"
    key = id(twin)
    assert key in frames._wanted
    del twin
    assert key not in frames._wanted


def test_each_reason_is_a_row_of_the_table_of_reasons() -> None:
    reasons = pytest.importorskip("torchdynamo.core.reasons")
    assert {rule.reason for rule in frames.RULES} <= set(reasons.REASONS)
