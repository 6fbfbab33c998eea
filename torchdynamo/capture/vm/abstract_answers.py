"""Where abstract classes remember their answers about classes, and the guard that an answer is still there."""

from __future__ import annotations

import abc
import gc
import weakref
from typing import Any, NamedTuple

from torchdynamo.core.source import Pinned, Source


class RememberedAnswer(NamedTuple):
    """The set that has an answer about a class, and the reference to the class in it."""

    answers: set[Any]
    ref: weakref.ref[Any]


def memory_of(abstract: type, cls: type) -> RememberedAnswer | None:
    """Return where an abstract class remembers its answer about a class; None where that cannot be told."""
    impl, tell = vars(abstract).get("_abc_impl"), getattr(abc, "_get_dump", None)
    if impl is None or tell is None:
        return None
    held = [each for each in gc.get_referents(impl) if type(each) is set]
    refs = [ref for copied in registered_last(*tell(abstract)) for ref in copied if ref() is cls]
    found = (RememberedAnswer(each, ref) for ref in refs for each in held if has_reference(each, ref))
    return next(found, None)


def is_remembered(abstract: type, cls: type) -> bool:
    """Return whether a class is registered with an abstract class, which may also just remember that it was one of its
    subclasses.
    """
    tell = getattr(abc, "_get_dump", None)
    return tell is not None and any(ref() is cls for each in tell(abstract)[:2] for ref in each)


def registered_last(registered: Any, cached: Any, negative: Any, _version: int) -> tuple[Any, ...]:
    """Return the sets of `abc._get_dump`. A class that is itself registered is in no other."""
    return cached, negative, registered


def guard_of(abstract: type, cls: type) -> tuple[Source, str, tuple[type, type]] | None:
    """Return the guard of an answer that was just given; None if it needs none, or nothing tells."""
    asks = any("__subclasshook__" in vars(base) for base in abstract.__mro__[:-1])
    memory = memory_of(abstract, cls) if asks or abstract not in cls.__mro__ else None
    return None if memory is None else (Source("pinned", None, Pinned(memory.answers)), "REMEMBERED", (abstract, cls))


def has_reference(answers: Any, arg: Any) -> bool:
    """Return whether a set has this very reference, or one to the class of a guard that is not settled."""
    if not isinstance(answers, set):
        return False
    return any(ref() is arg[1] if type(arg) is tuple else ref is arg for ref in answers)
