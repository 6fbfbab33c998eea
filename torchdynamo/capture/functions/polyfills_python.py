"""C functions of Python's library said again in Python, and Python ones without their locks and hidden caches."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import collections
import functools
import heapq
import operator

from torchdynamo.capture.vm.model import polyfill


class _MISSING:
    """No argument. A class, because a class is the same constant wherever it is met."""


@polyfill(functools.reduce)
def reduce(function, iterable, initial=_MISSING, /):
    items = iter(iterable)
    if initial is _MISSING:
        for first in items:
            total = first
            break
        else:
            raise TypeError("reduce() of empty iterable with no initial value")
    else:
        total = initial
    for item in items:
        total = function(total, item)
    return total


def call(fn, /, *args, **kwargs):
    return fn(*args, **kwargs)


if hasattr(operator, "call"):
    polyfill(operator.call)(call)


@polyfill(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


@polyfill(heapq.nlargest)
def nlargest(n, iterable, key=None):
    return sorted(iterable, key=key, reverse=True)[: max(n, 0)]


@polyfill(heapq.nsmallest)
def nsmallest(n, iterable, key=None):
    return sorted(iterable, key=key)[: max(n, 0)]
