"""`reset()`: all that calls have taught is forgotten, whichever table it is in."""

from __future__ import annotations

import importlib.util
import pkgutil
import warnings
from types import CodeType

import torch

import torchdynamo
from torchdynamo.bytecode.percode import PerCode
from torchdynamo.core import learned
from torchdynamo.errors import CacheLimitWarning

# What is known of a code object whatever has been called: computed from it, or said of it when it was made.
DERIVED = {
    "torchdynamo.bytecode.decode._decoded",
    "torchdynamo.bytecode.qualnames._names",
    "torchdynamo.cache.store.hashes._known",
    "torchdynamo.capture.speculate.assertions.fails_early",
    "torchdynamo.codegen.outline._places",
    "torchdynamo.codegen.resume._origins",
    "torchdynamo.codegen.resume._rests",
}


def tables() -> dict[str, PerCode]:
    """All tables by code object, by the name of their module and their own."""
    found = {}
    for info in pkgutil.walk_packages(torchdynamo.__path__, "torchdynamo."):
        optional = info.name.endswith("_kernel") and importlib.util.find_spec("triton") is None
        if "_native" not in info.name and ".builtin." not in info.name and not optional:
            module = importlib.import_module(info.name)
            found.update({f"{info.name}.{name}": obj for name, obj in vars(module).items() if isinstance(obj, PerCode)})
    return found


def test_what_is_learned_is_in_one_table():
    found = tables()
    known = {id(found[name]) for name in {*DERIVED, "torchdynamo.core.learned._records"}}
    assert {id(table) for table in found.values()} == known


def test_reset_clears_what_was_learned():
    code: CodeType = (lambda: None).__code__
    before = learned.record(code)
    torchdynamo.reset()
    assert learned.record(code) is not before


def test_reset_forgets_how_often_a_function_was_asked_in_vain():
    def f(x, n):
        return x * n

    told = []
    compiled = torchdynamo.compile(f, backend="eager", dynamic=False)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for n in range(torchdynamo.config.cache_size_limit + 8):
                compiled(torch.ones(1), n)
        told.append(sum(issubclass(each.category, CacheLimitWarning) for each in caught))
        torchdynamo.reset()
    assert told == [1, 1, 1]
