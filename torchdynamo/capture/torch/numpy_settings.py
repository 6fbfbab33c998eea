"""Guard NumPy's settings of a thread: what it does about floating-point errors, and how it prints arrays.

A function is run with errors noted. Where there was none, as nearly always, its result rests on no setting. Where NumPy
is told to ignore what there was, that is guarded; a warning or an exception is left to Python.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.graph.numpy_nodes import np

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

KINDS = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}
WRITING = frozenset("str repr format ascii __str__ __repr__ __format__ array2string array_str array_repr mod".split())
OPTIONS = (bool, int, str, type(None))  # what print options are that no function of the user's goes into
SCALARS: tuple[type, ...] = () if np is None else (np.generic,)
OWN: Any = None if np is None else importlib.import_module("numpy._core" if np.__version__[0] > "1" else "numpy.core")
READER: Any = None if np is None else getattr(OWN.umath, "_get_extobj_dict", None)  # NumPy 2 and later


def computed(vm: Machine, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a function of NumPy's, or one of its numbers, and return the result. Raises what it raises, or Break."""
    name = getattr(fn, "__name__", repr(fn))
    if name in WRITING:
        rest_on_printing(vm, name)
    met: set[str] = set()
    with np.errstate(all="call", call=lambda kind, flag: met.add(KINDS[kind])):
        result = fn(*args, **kwargs)
    for kind in sorted(met):
        rest_on_ignoring(vm, kind, name)
    return result


def rest_on_ignoring(vm: Machine, kind: str, name: str) -> None:
    """Guard that NumPy ignores a kind of error of floating point. Ends the graph where it does not."""
    if np.geterr()[kind] != "ignore" or READER is None:
        raise Break("unknown call", name=f"numpy.{name}")
    vm.guard(Source("key", Source("call", Source("pinned", None, Pinned(READER)), ()), kind), "EQUALS_MATCH", "ignore")


def rest_on_printing(vm: Machine, name: str) -> None:
    """Guard NumPy's print options. Ends the graph where functions of the user's write the numbers."""
    source, options = printing()
    if source is None or any(type(option) not in OPTIONS for option in options.values()):
        raise Break("unknown call", name=f"numpy.{name}")
    for option, value in options.items():
        vm.guard(Source("key", source, option), "EQUALS_MATCH", value)


def printing() -> tuple[Source | None, dict[str, Any]]:
    """Return where NumPy keeps its print options, and their values; None for a NumPy that keeps them elsewhere."""
    place = OWN.arrayprint
    variable = getattr(place, "format_options", None)
    if variable is not None:
        return Source("method", Source("pinned", None, Pinned(variable)), "get"), variable.get()
    options = getattr(place, "_format_options", None)
    if type(options) is not dict:
        return None, {}
    return Source("key", Source("dict", Source("module", None, place.__name__)), "_format_options"), options
