"""Call an nn.Module's `forward` without `nn.Module.__call__`, where that makes no difference.

The call does more if there are hooks on the module or on all modules, if a callable has been put in its place, or if
the class overrides it. All of that is guarded, by a guard program with the module as its only local. While the guards
hold, a compiled module's call goes straight to `forward`; otherwise that call takes the usual way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.capture.types.module import GLOBAL_HOOKS, GLOBALS, HOOKS, way_to_forward
from torchdynamo.core.call_sites import calls
from torchdynamo.core.source import Guard, Roots, Source, instance_attr, local
from torchdynamo.core.value import ABSENT
from torchdynamo.graph.tracebacks import Above
from torchdynamo.guards.program import complete, lower

SELF = local("self")
CLASS = Source("type", SELF)
FIELDS = Source("dict", SELF)
WAY = {"__call__": torch.nn.Module.__call__, "_call_impl": torch.nn.Module._call_impl}  # functions that are left out


def guarded_frame(self: Any) -> None:
    """Provide the code object, with one argument, that the guard program belongs to."""


def guards() -> Iterator[Guard]:
    """Yield guards that nothing stands between the module's call and its class's `forward`."""
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
    """Yield guards that a dict of hooks exists and is empty."""
    yield Guard(place, "TYPE_MATCH", OrderedDict)
    yield Guard(place, "LENGTH", 0)


def shown() -> Above:
    """Return the callback that adds nn.Module's skipped functions to tracebacks of `forward`."""
    return Above(calls(way_to_forward()))


def direct_call(module: torch.nn.Module) -> _native.GuardProgram:
    """Return the guard program for one module, completed with its current state."""
    return lower(complete(guards(), Roots({"self": module}, {}, {}, {})), (), guarded_frame.__code__)
