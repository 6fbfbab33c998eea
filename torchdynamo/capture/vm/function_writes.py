"""`fn.name = value`, of a function that was there: a counter, a memo of a decorator's. Read back, done afterwards.

Functions are told apart by their code, and one code makes many; so where one is written to, it is that very function,
and so is each that is looked at from then on.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchdynamo.capture.frame import Globals
from torchdynamo.capture.vm import dict_aliases
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def write(vm: Machine, fn: Known, name: str, value: Value) -> None:
    """Anything of its own, under a plain name: what it runs stays, and what Python says of it."""
    real: types.FunctionType = fn.obj
    theirs = (real.__module__ or "").partition(".")[0] == "torch"
    if fn.source is None or value is ABSENT or theirs or name.startswith("__"):
        raise Break("unsupported attribute write", name=name, type="function")
    vm.guard(fn.source, "ID_MATCH", real)
    own = Source("dict", fn.source)
    dict_aliases.rest_on(vm, real.__dict__, own)
    vm.effects.wrote_functions = True
    vm.write_global(Globals(real.__dict__, own, vm.roots.builtins), name, value)


def written(vm: Machine, fn: Known, name: str) -> Value | None:
    """What the frame wrote there, if it wrote to functions at all."""
    if fn.source is not None:
        vm.guard(fn.source, "ID_MATCH", fn.obj)
    return vm.effects.name(fn.obj.__dict__, name)
