"""`module.name = value`: what the frame wrote to modules is as `global name` writes: read back, done afterwards."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from torchdynamo.capture.frame import Globals
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def write(vm: Machine, module: Known, name: str, value: Value) -> None:
    """Not to PyTorch's own modules: operators would read there when the graph runs, and not where they stand."""
    real = module.obj
    if type(real.__dict__.get("__name__")) is not str:
        raise Break("unsupported attribute write", name=name, type=module.pytype.__name__)
    plain = type(real) is types.ModuleType and sys.modules.get(real.__name__) is real and not name.startswith("__")
    if not plain or value is ABSENT or real.__name__.partition(".")[0] == "torch":
        raise Break("unsupported attribute write", name=name, type=module.pytype.__name__)
    guarded_lookup(vm, types.ModuleType, name)
    own = real.__dict__
    space = Source("globals") if own is vm.roots.globals else Source("dict", Source("module", None, real.__name__))
    vm.write_global(Globals(own, space, vm.roots.builtins), name, value)


def written(vm: Machine, module: types.ModuleType, name: str) -> Value | None:
    """What the frame wrote there."""
    return vm.effects.name(module.__dict__, name)
