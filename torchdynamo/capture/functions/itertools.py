"""itertools: each constructor gives an iterator whose steps are taken when the program takes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.functions.builtins_iteration import model_iterator
from torchdynamo.capture.types import iterator_steps
from torchdynamo.capture.types.iterator_steps import in_tuples, is_chosen
from torchdynamo.capture.vm.iteration import collect, make_iterator
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, models
from torchdynamo.core.value import NONE, ONE, ZERO, Known, Value, is_none

TWO = Known(2)


def chained(vm: Machine, *iterables: Value) -> Iterator[Value]:
    return (item for each in iterables for item in vm.iterate(each))


def longest(vm: Machine, *iterables: Value, fillvalue: Value = NONE) -> Iterator[Value]:
    sources = [vm.iterate(each) for each in iterables]
    return in_tuples(vm, itertools.zip_longest(*sources, fillvalue=fillvalue))


def counted(vm: Machine, start: Value = ZERO, step: Value = ONE) -> Iterator[Value]:
    return iterator_steps.counted(vm, start, step)


def repeated(vm: Machine, object: Value, times: Value | None = None) -> Iterator[Value]:
    return (
        itertools.repeat(object) if times is None else make_real(vm, itertools.repeat, object, vm.known(times, "times"))
    )


def make_real(vm: Machine, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Construct one of Python's own iterators over values. An argument that it refuses is an error of the program."""
    try:
        return cls(*args, **kwargs)
    except (TypeError, ValueError, OverflowError) as error:
        raise vm.refused(error) from None


def cycled(vm: Machine, items: Value) -> Iterator[Value]:
    return itertools.cycle(vm.iterate(items))


def sliced(vm: Machine, items: Value, *bounds: Value) -> Iterator[Value]:
    sliced: Iterator[Value] = make_real(
        vm, itertools.islice, vm.iterate(items), *(vm.known(each, "bound") for each in bounds)
    )
    return sliced


def accumulated(vm: Machine, iterable: Value, func: Value = NONE, *, initial: Value = NONE) -> Iterator[Value]:
    def together(total: Value, item: Value) -> Value:
        return vm.binary("+", total, item) if is_none(func) else vm.call(func, [total, item], {})

    return itertools.accumulate(vm.iterate(iterable), together, initial=None if is_none(initial) else initial)


def starred(vm: Machine, fn: Value, items: Value) -> Iterator[Value]:
    def call(arguments: Value) -> Value:
        return vm.call(fn, list(vm.iterate(arguments)), {})

    return map(call, vm.iterate(items))


def taken(vm: Machine, fn: Value, items: Value) -> Iterator[Value]:
    return itertools.takewhile(lambda item: vm.truth(vm.call(fn, [item], {})), vm.iterate(items))


def dropped(vm: Machine, fn: Value, items: Value) -> Iterator[Value]:
    return itertools.dropwhile(lambda item: vm.truth(vm.call(fn, [item], {})), vm.iterate(items))


def refused(vm: Machine, fn: Value, items: Value) -> Iterator[Value]:
    return itertools.filterfalse(lambda item: is_chosen(vm, fn, item), vm.iterate(items))


def compressed(vm: Machine, data: Value, selectors: Value) -> Iterator[Value]:
    return itertools.compress(vm.iterate(data), map(vm.truth, vm.iterate(selectors)))


def in_pairs(vm: Machine, items: Value) -> Iterator[Value]:
    return in_tuples(vm, itertools.pairwise(vm.iterate(items)))


def multiplied(vm: Machine, *iterables: Value, repeat: Value = ONE) -> Iterator[Value]:
    pools = [collect(vm, each, tuple) for each in iterables]
    return in_tuples(vm, make_real(vm, itertools.product, *pools, repeat=vm.known(repeat, "repeat")))


def selection(fn: Any) -> Any:
    """Return the steps of permutations or combinations, which choose by position, whatever the items are."""

    def steps(vm: Machine, iterable: Value, r: Value = NONE) -> Iterator[Value]:
        count = vm.known(r, "r")
        pool = collect(vm, iterable, tuple)
        return in_tuples(vm, make_real(vm, fn, pool, len(pool) if count is None else count))

    return steps


def grouped(vm: Machine, iterable: Value, key: Value = NONE) -> Iterator[Value]:
    """Yield each key with an iterator over the run of items that have it, which ends when the next key is asked for."""
    source = vm.iterate(iterable)
    waiting: list[Value] = []  # key and value of the item that comes next
    serial = 0

    def fetch() -> bool:
        item = next(source, None)
        waiting[:] = [] if item is None else [item if is_none(key) else vm.call(key, [item], {}), item]
        return bool(waiting)

    def equal(target: Value | None) -> bool:
        return target is not None and vm.truth(vm.binary("==", waiting[0], target))

    def group(target: Value, mine: int) -> Iterator[Value]:
        while mine == serial and waiting and equal(target):
            yield waiting[1]
            fetch()

    target: Value | None = None
    if not fetch():
        return
    while True:
        serial += 1
        while equal(target):
            if not fetch():
                return
        if not waiting:
            return
        target = waiting[0]
        yield vm.make_tuple([target, make_iterator(vm, group(target, serial), None)])
        if not waiting:
            return


ITERTOOLS: dict[type, Any] = {
    itertools.chain: chained,
    itertools.zip_longest: longest,
    itertools.count: counted,
    itertools.repeat: repeated,
    itertools.cycle: cycled,
    itertools.islice: sliced,
    itertools.accumulate: accumulated,
    itertools.starmap: starred,
    itertools.takewhile: taken,
    itertools.dropwhile: dropped,
    itertools.filterfalse: refused,
    itertools.compress: compressed,
    itertools.pairwise: in_pairs,
    itertools.product: multiplied,
    itertools.permutations: selection(itertools.permutations),
    itertools.combinations: selection(itertools.combinations),
    itertools.combinations_with_replacement: selection(itertools.combinations_with_replacement),
    itertools.groupby: grouped,
}


for _cls, _steps in ITERTOOLS.items():
    model_iterator(_cls, _steps)


@models(itertools.chain, "from_iterable")
def chain_from(vm: Machine, cls: Known, iterables: Value) -> Value:
    outer = vm.iterate(iterables)
    return make_iterator(vm, (item for each in outer for item in vm.iterate(each)), None, itertools.chain)


@function(itertools.tee)
def tee(vm: Machine, items: Value, n: Value = TWO) -> Value:
    copies = make_real(vm, itertools.tee, vm.iterate(items), vm.known(n, "n"))
    return vm.make_tuple([make_iterator(vm, each, None) for each in copies])
