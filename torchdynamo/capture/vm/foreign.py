"""Name the reason why a class whose code is in C cannot be called."""

from __future__ import annotations

from torchdynamo.core.signals import Break


def unknown_maker(cls: type) -> Break:
    """Return the break for a class that nothing is known of and that makes its instances in C."""
    return Break("foreign function") if is_c_function(cls) else Break("unsupported type", type=cls.__name__)


def unknown_callable(cls: type) -> Break:
    """Return the break for a call of an instance of a class that nothing is known of."""
    return Break("foreign function") if is_c_function(cls) else Break("unknown call", name=cls.__name__)


def is_c_function(cls: type) -> bool:
    """Return whether the instances of a class are C functions that ctypes calls."""
    return any((base.__module__, base.__name__) == ("_ctypes", "CFuncPtr") for base in cls.__mro__)
