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


@polyfill(bisect.insort_right)
def insort_right(a, x, lo=0, hi=None, *, key=None):
    place = x if key is None else key(x)
    low, high = lo, len(a) if hi is None else hi
    while low < high:
        middle = (low + high) // 2
        if place < (a[middle] if key is None else key(a[middle])):
            high = middle
        else:
            low = middle + 1
    a.insert(low, x)


@polyfill(bisect.insort_left)
def insort_left(a, x, lo=0, hi=None, *, key=None):
    place = x if key is None else key(x)
    low, high = lo, len(a) if hi is None else hi
    while low < high:
        middle = (low + high) // 2
        if (a[middle] if key is None else key(a[middle])) < place:
            low = middle + 1
        else:
            high = middle
    a.insert(low, x)


@polyfill(heapq.nlargest)
def nlargest(n, iterable, key=None):
    return sorted(iterable, key=key, reverse=True)[: max(n, 0)]


@polyfill(heapq.nsmallest)
def nsmallest(n, iterable, key=None):
    return sorted(iterable, key=key)[: max(n, 0)]
