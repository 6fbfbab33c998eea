"""When calling an nn.Module is calling its class's `forward`: then a compiled module calls that, and no Python between.

What `nn.Module.__call__` does on the way (hooks of the module and of all modules, another callable put in its place, a
class that calls otherwise) is a list of guards like any other, about the module as the only local. While they hold, a
compiled module's own call goes straight to `forward`; when one does not, it goes the usual way, this time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.capture.types.module import GLOBAL_HOOKS, GLOBALS, HOOKS, way_to_forward
from torchdynamo.core.source import Guard, Roots, Source, instance_attr, local
from torchdynamo.core.value import ABSENT
from torchdynamo.graph.tracebacks import Above
from torchdynamo.guards.program import complete, lower

SELF = local("self")
CLASS = Source("type", SELF)
FIELDS = Source("dict", SELF)
WAY = {"__call__": torch.nn.Module.__call__, "_call_impl": torch.nn.Module._call_impl}  # functions it leads through


def the_module(self: Any) -> None:
    """Hold weakly the module whose frame the guards speak of."""


def guards() -> Iterator[Guard]:
    """Yield guards that nothing stands between the module and its class's `forward`."""
    for name, function in WAY.items():
        yield Guard(CLASS, "CLASS_ATTR", (name, function))
        yield Guard(Source("class_attr", CLASS, name), "FUNCTION_MATCH", function)
    yield Guard(CLASS, "CLASS_ATTR", ("__getattribute__", object.__getattribute__))
    yield Guard(CLASS, "CLASS_ATTR", ("_compiled_call_impl", None))
    yield Guard(Source("class_attr", CLASS, "forward"), "TYPE_MATCH", FunctionType)
    for name in ("_call_impl", "_compiled_call_impl", "forward"):
        yield Guard(FIELDS, "NO_KEY", name)
    for name in HOOKS:
        yield Guard(CLASS, "CLASS_ATTR", (name, ABSENT))
        yield from no_hooks(instance_attr(SELF, name))
    for name in GLOBAL_HOOKS:
        yield from no_hooks(Source("key", GLOBALS, name))


def no_hooks(place: Source) -> Iterator[Guard]:
    """Yield guards that the dict of hooks is there, and empty."""
    yield Guard(place, "TYPE_MATCH", OrderedDict)
    yield Guard(place, "LENGTH", 0)


def shown() -> Above:
    """Make what puts nn.Module's functions, which have been left out, above `forward` in a traceback."""
    return Above(way_to_forward())


def direct_call(module: torch.nn.Module) -> _native.GuardProgram:
    """Return the guards of one module; they remember what they saw of it."""
    return lower(complete(guards(), Roots({"self": module}, {}, {}, {})), (), the_module.__code__)
