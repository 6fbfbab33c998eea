"""Settings of the process that decide what C functions and imports give: what is run at capture rests on them.

One function a setting: it is asked before something is run with these arguments, and guards the setting where that may
make a difference. NumPy's are in `numpy_settings.py`.
"""

from __future__ import annotations

import _locale
import itertools
import locale
import operator
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.torch.numpy_settings import SCALARS, computed
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.source import Pinned, Source, instance_attr

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Heap
    from torchdynamo.capture.vm.machine import Machine

SYS = Source("module", None, "sys")
FEW_DIGITS = 640  # any limit allows so many: sys.int_info.str_digits_check_threshold
FEW_BITS = 2_000  # of an int with fewer digits
DIGITS = Source("call", Source("pinned", None, Pinned(sys.get_int_max_str_digits)), ())
NUMERIC = Source("call", Source("pinned", None, Pinned(_locale.setlocale)), (locale.LC_NUMERIC,))
WITH_SEPARATORS = re.compile(r"^[^{}]*n$|:[^{}]*n\}")  # a format spec, or a text with one, that asks for the locale's


def guard_int_digits(vm: Machine, fn: Any, args: tuple[Any, ...]) -> None:
    """Guard how many digits an int may have as a text, where one has many."""
    if any(has_many_digits(arg) for arg in args):
        vm.guard(DIGITS, "EQUALS_MATCH", sys.get_int_max_str_digits())


def has_many_digits(arg: Any) -> bool:
    """Return whether the argument is an int, or a text that may be one, of more digits than are always allowed."""
    return arg.bit_length() > FEW_BITS if type(arg) is int else type(arg) in (str, bytes) and len(arg) > FEW_DIGITS


def guard_separators(vm: Machine, fn: Any, args: tuple[Any, ...]) -> None:
    """Guard the locale of numbers, where a number is written with its separators."""
    texts = [arg for arg in args if type(arg) is str]
    if getattr(fn, "__name__", "") in ("format", "format_map") and any(map(WITH_SEPARATORS.search, texts)):
        vm.guard(NUMERIC, "EQUALS_MATCH", _locale.setlocale(locale.LC_NUMERIC))


HASH_SEED = "the seed of hashes, which decides the order of sets"
ASKING_A_SET = frozenset(
    "__contains__ __len__ __bool__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ issubset issuperset isdisjoint".split()
)
ASKED_BY = (len, operator.contains, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
"""Functions, besides its methods, that a set answers alike in all processes."""


def note_hashes(vm: Machine, fn: Any, args: tuple[Any, ...]) -> None:
    """Note that the capture rests on the seed of hashes, where a hash or the order of a set is asked for."""
    name = getattr(fn, "__name__", "")
    hashing = name in ("hash", "__hash__") and not all(map(hashes_alike, args))
    alike = name in ASKING_A_SET or any(fn is each for each in ASKED_BY)
    if hashing or (not alike and any(map(holds_set, args))):
        vm.of_process[HASH_SEED] = None


def note_order(heap: Heap, keys: Iterable[Any], order: Iterable[Any] = ()) -> None:
    """Note that the capture rests on the order of a set of these keys. order: a real set, where there is one."""
    if all(map(hashes_alike, keys)):
        return
    seen = tuple(order)
    known = (
        type(order) is set
        and len(seen) <= FEW
        and all(type(key) in HASHED_BY_VALUE and key == key for key in seen)
        and all(order is not each for each in heap.thinned)
    )
    given = what_decides(heap, tuple(keys), order, seen) if known else None
    if given is None:
        heap.of_process[HASH_SEED] = None
    else:
        heap.set_orders[given, seen] = None


def what_decides(heap: Heap, keys: tuple[Any, ...], order: Any, seen: tuple[Any, ...]) -> int | tuple[Any, ...] | None:
    """Return what decides the order of a set besides hashes: how its keys were added, or its size if each has a place
    of its own; None if that is not known.

    keys: in the order in which they were added, if it was in turn.
    """
    size = size_of_table(order)
    in_turn = size == SMALLEST and any(order is each for each in heap.in_turn)
    if in_turn and is_order_of_hashes(keys, seen):
        return keys
    return size if is_order_of_hashes(size, seen) else None


FEW = 3  # keys that another seed often puts in the same order


def size_of_table(real: set[Any]) -> int:
    """Return how many places the table of a real set has."""
    return (set.__sizeof__(real) - EMPTY) // ENTRY or SMALLEST


EMPTY, ENTRY, SMALLEST = set.__sizeof__(set()), 16, 8
HASHED_BY_VALUE = frozenset({str, bytes, int, float, bool})


def is_order_of_hashes(given: int | tuple[Any, ...], keys: Iterable[Any]) -> bool:
    """Return whether hashes put these keys into a table in this order.

    given: the size of the table, where each key has a place of its own: then a set has that order in which nothing was
    ever taken away, in whatever order they came. Else the keys as they are added to an empty set, one after the other.
    """
    if isinstance(given, tuple):
        made: set[Any] = set()
        for key in given:
            made.add(key)
        return tuple(made) == tuple(keys)
    places = [hash(key) & (given - 1) for key in keys]
    return all(one < other for one, other in itertools.pairwise(places))


def hashes_alike(obj: Any) -> bool:
    """Return whether the hash of an object is the same in all processes."""
    return type(obj) in (bool, int) or (type(obj) is float and obj == obj)


def holds_set(obj: Any) -> bool:
    """Return whether an object is a set, or a tuple with one in it, whose order another process may not have."""
    if type(obj) is tuple:
        return any(map(holds_set, obj))
    return isinstance(obj, (set, frozenset)) and len(obj) > 1 and not all(map(hashes_alike, obj))


SETTINGS: tuple[Callable[[Machine, Any, tuple[Any, ...]], None], ...] = (
    guard_int_digits,
    guard_separators,
    note_hashes,
)


def run(vm: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function and return the result; guard the settings that it rests on. Raises what it raises, or Break."""
    for setting in SETTINGS:
        setting(vm, fn, args)
    if any(isinstance(arg, SCALARS) for arg in args):
        return computed(vm, fn, list(args), kwargs)
    return fn(*args, **kwargs)


def guard_finders(vm: Machine, package: str) -> None:
    """Guard where modules are looked for: one that is missing is looked for again by another finder, or elsewhere."""
    guard_items(vm, instance_attr(SYS, "meta_path"), sys.meta_path)
    guard_items(vm, instance_attr(SYS, "path_hooks"), sys.path_hooks)
    guard_items(vm, instance_attr(SYS, "path"), sys.path)
    inner = getattr(sys.modules.get(package), "__path__", None)
    if type(inner) is list:
        guard_items(vm, instance_attr(Source("module", None, package), "__path__"), inner)


def guard_items(vm: Machine, source: Source, items: list[Any]) -> None:
    """Guard what a list holds: constants by their value, all else by identity."""
    vm.guard(source, "TYPE_MATCH", type(items))
    vm.guard(source, "LENGTH", len(items))
    for index, item in enumerate(items):
        vm.guard(Source("item", source, index), "EQUALS_MATCH" if type(item) in CONSTANTS else "ID_MATCH", item)
