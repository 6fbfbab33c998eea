"""heapq, and bisect's insort, which change a list in place: polyfills as the library's own Python has them."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import bisect
import heapq

from torchdynamo.capture.vm.model import polyfill


@polyfill(heapq.heappush)
def heappush(heap, item, /):
    heap.append(item)
    heapq._siftdown(heap, 0, len(heap) - 1)  # type: ignore[attr-defined]


@polyfill(heapq.heappop)
def heappop(heap, /):
    last = heap.pop()
    if heap:
        return heapreplace(heap, last)
    return last


@polyfill(heapq.heapreplace)
def heapreplace(heap, item, /):
    first = heap[0]
    heap[0] = item
    heapq._siftup(heap, 0)  # type: ignore[attr-defined]
    return first


@polyfill(heapq.heappushpop)
def heappushpop(heap, item, /):
    if heap and heap[0] < item:
        return heapreplace(heap, item)
    return item


@polyfill(heapq.heapify)
def heapify(heap, /):
    for at in reversed(range(len(heap) // 2)):
        heapq._siftup(heap, at)  # type: ignore[attr-defined]


def search(a, lo, hi, is_left):
    """Return the first position from `lo` to `hi` whose item is not to the left of a new one."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None or hi == -1:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if is_left(a[middle]):
            lo = middle + 1
        else:
            hi = middle
    return lo


@polyfill(bisect.insort_right)
def insort_right(a, x, lo=0, hi=None, *, key=None):
    place = x if key is None else key(x)
    a.insert(search(a, lo, hi, lambda item: not place < (item if key is None else key(item))), x)


@polyfill(bisect.insort_left)
def insort_left(a, x, lo=0, hi=None, *, key=None):
    place = x if key is None else key(x)
    a.insert(search(a, lo, hi, lambda item: (item if key is None else key(item)) < place), x)


def first_of_sorted(n, iterable, key, choose, reverse):
    """Return the first n items as they are sorted; of one, `choose` finds it."""
    if n == 1:
        nothing = object()
        best = choose(iter(iterable), default=nothing, key=key)
        return [] if best is nothing else [best]
    return sorted(iterable, key=key, reverse=reverse)[: max(n, 0)]


@polyfill(heapq.nlargest)
def nlargest(n, iterable, key=None):
    return first_of_sorted(n, iterable, key, max, True)


@polyfill(heapq.nsmallest)
def nsmallest(n, iterable, key=None):
    return first_of_sorted(n, iterable, key, min, False)
