"""Be found under the names that programs have for torch.compile's parts: exceptions, `reset`, modules, counters.

That holds while torchdynamo is installed in place of torch.compile.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torchdynamo import errors
from torchdynamo.capture.vm import interop
from torchdynamo.events import Event

FRONT_END = "torch._dynamo"
EXCEPTIONS = f"{FRONT_END}.exc"
# By exception: the module and name of its counterpart; others have that of a base.
COUNTERPARTS = {
    errors.Unsupported: (EXCEPTIONS, "Unsupported"),
    errors.BackendError: (EXCEPTIONS, "BackendCompilerFailed"),
    errors.FailOnRecompileLimitHit: (EXCEPTIONS, "FailOnRecompileLimitHit"),
    errors.RecompileError: (EXCEPTIONS, "RecompileError"),
    errors.UnknownBackend: (EXCEPTIONS, "InvalidBackend"),
    errors.InternalError: (EXCEPTIONS, "InternalTorchDynamoError"),
    errors.ConstraintViolationError: ("torch.fx.experimental.symbolic_shapes", "ConstraintViolationError"),
    errors.TorchDynamoError: (EXCEPTIONS, "TorchDynamoException"),
}
# What programs read off the counterparts
READ = {
    "msg": property(str),
    "inner_exception": property(lambda self: self.__cause__),
    "backend_name": property(lambda self: self.backend),
}


def joined(cls: type) -> type:
    """Return a subclass of an exception of ours that is its counterpart's as well; the class if that is not loaded."""
    module, name = next(COUNTERPARTS[base] for base in cls.__mro__ if base in COUNTERPARTS)
    theirs = getattr(sys.modules.get(module), name, None)
    return cls if theirs is None or issubclass(cls, theirs) else both(cls, theirs)


@functools.cache
def both(cls: Any, theirs: type) -> type:
    """Return a class under the name of ours that has all of ours, and is a subclass of both."""
    own = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__init__": cls.__init__,
        "__str__": cls.__str__,
        "__reduce__": lambda self: (cls, self.args),
        **READ,
    }
    return type(cls.__name__, (cls, theirs), own)


class Reset:
    """Stand for `torch._dynamo.reset`, which `torch.compiler.reset` calls; ours is called as well."""

    def __init__(self, theirs: Callable[[], None], ours: Callable[[], None]) -> None:
        self.theirs, self.ours = theirs, ours
        functools.update_wrapper(self, theirs)

    def __call__(self) -> None:
        self.theirs()
        self.ours()


class ModuleClass(type):
    """Class of what stands for torch.compile's `OptimizedModule`: instances of ours are its instances, too."""

    theirs: type
    ours: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (cls.theirs, cls.ours))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.theirs(*args, **kwargs)


@functools.cache
def module_class(theirs: type, ours: type) -> type:
    """Return the class that stands for theirs."""
    names = {"__module__": theirs.__module__, "__qualname__": theirs.__qualname__, "__doc__": theirs.__doc__}
    return ModuleClass(theirs.__name__, (theirs,), {**names, "theirs": theirs, "ours": ours})


STAND_INS: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    (FRONT_END, "reset"): Reset,
    (FRONT_END, "OptimizedModule"): module_class,
    (f"{FRONT_END}.eval_frame", "OptimizedModule"): module_class,
}
"""By module and name: what makes a stand-in of what it has there and of ours. It keeps the former as `theirs`."""

_ours: Mapping[str, Any] | None = None


def follow(ours: Mapping[str, Any] | None) -> None:
    """Have names of torch.compile's parts mean ours as well, from when these parts are loaded; None: no more."""
    global _ours
    _ours = ours
    stand_in()


def look_again() -> None:
    """Follow what torch.compile's front end says and is asked, if it has been imported meanwhile."""
    interop.stance()
    stand_in()


def stand_in() -> None:
    """Have each name of STAND_INS mean what it is to mean now, if its module is loaded."""
    for (module, name), make in STAND_INS.items():
        found = getattr(sys.modules.get(module), name, None)
        theirs = getattr(found, "theirs", None)
        if found is not None and (theirs is None) is (_ours is not None):
            setattr(sys.modules[module], name, theirs if _ours is None else make(found, _ours[name]))


def count(event: Event, _: int = 0) -> None:
    """Count an event in `torch._dynamo.utils.counters`, under the names that torch.compile counts its own."""
    counters: Any = getattr(sys.modules.get(f"{FRONT_END}.utils"), "counters", None)
    if counters is None:
        return
    if event.kind == "compile":
        counters["frames"]["total"] += 1
        counters["frames"]["ok"] += 1
        if event.operators:
            counters["stats"]["calls_captured"] += event.operators
            counters["stats"]["unique_graphs"] += 1
    elif event.kind == "break":
        counters["graph_break"][event.text] += 1
