"""Run as one of two ranks: `faults.py RANK FOLDER` lets ranks differ; all has to end as in eager or in an error.

Each case has a world of its own, and a function for what a rank does. It returns what is compared with what the same
function returns uncompiled; or it raises on the ranks and with the errors that are named, in less than the time-out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torchdynamo
from torchdynamo.distributed import agree, compare_graphs, warm_up

TIMEOUT = timedelta(seconds=25)
Compiled = Callable[[Any], Any]
aot = torchdynamo.optimize("aot_eager")


class Case(NamedTuple):
    """What a rank does, given how to compile, and the name of the error that each rank ends in."""

    run: Callable[[int, Compiled], Any]
    errors: tuple[str, str] = ("", "")


def summed(x):
    total = x * 2
    dist.all_reduce(total)
    return total + 1


def failing_at(call: int, late: bool = False, compiling: bool = False) -> Callable[[int], Any]:
    """Return what makes a backend that fails on rank 1: in a call, before or after the graph has run, or at once."""

    def made(rank: int) -> Any:
        calls = 0

        def backend(gm, inputs):
            if compiling and rank == 1:
                raise RuntimeError("this rank has no compiler")

            def run(*args):
                nonlocal calls
                calls += 1
                fails = rank == 1 and calls == call
                if fails and not late:
                    raise RuntimeError("this rank has no kernel")
                result = gm.forward(*args)
                if fails:
                    raise RuntimeError("this rank has a bad kernel")
                return result

            return run

        return torchdynamo.optimize(backend)

    return made


def with_backend(make: Callable[[int], Any], calls: int = 3) -> Callable[[int, Compiled], Any]:
    def run(rank: int, compiled: Compiled) -> Any:
        fn = make(rank)(summed) if compiled is aot else summed
        return [fn(torch.ones(3) * (rank + at)) for at in range(calls)]

    return run


def sizes_on_one_rank(rank, compiled):
    def fn(x):
        total = x.sum(0)
        dist.all_reduce(total)
        return total

    run = compiled(fn)
    return [run(torch.ones(rows, 2)) for rows in ((3, 4, 5, 3) if rank else (3, 3, 3, 3))]


def compiled_on_one_rank(rank, compiled):
    run = compiled(summed) if rank else summed
    return [run(torch.ones(3) + at) for at in range(3)]


def compiled_at_other_times(rank, compiled):
    run, found = compiled(summed), []
    for at in range(4):
        if compiled is aot and at == rank + 1:
            torchdynamo.reset()
        found.append(run(torch.ones(3) + at))
    return found


def on(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[int, Compiled], Any]:
    """Return a case in which a tensor made of an input is reduced in place."""

    def fn(x):
        y = make(x)
        dist.all_reduce(y)
        return x, y, y._version

    def run(rank: int, compiled: Compiled) -> Any:
        ready = compiled(fn)
        return [ready(torch.arange(6.0).view(2, 3) + rank) for _ in range(2)]

    return run


def saved_for_backward(rank, compiled):
    def fn(x, w):
        y = w.detach() * 2
        z = (x * y).sum()
        dist.all_reduce(y)
        return z

    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    compiled(fn)(x, w).backward()
    return x.grad


def unused(rank, compiled):
    def fn(x):
        dist.all_reduce(x.clone())
        return x + 1

    return compiled(fn)(torch.ones(3))


def of_a_rank_alone(rank, compiled):
    groups = [dist.new_group([0]), dist.new_group([1])]

    def fn(x):
        if dist.get_rank() == 1:
            y = x * 3
            dist.all_reduce(y, group=groups[1])
            return y
        return x

    return compiled(fn)(torch.ones(3))


def of_no_member(rank, compiled):
    group = dist.new_group([0])

    def fn(x):
        y = x * 3
        dist.all_reduce(y, group=group)
        return y

    return compiled(fn)(torch.ones(3) + rank)


def raising_afterwards(rank, compiled):
    def fn(x):
        dist.all_reduce(x)
        raise ValueError("the program's own")

    return compiled(fn)(torch.ones(3))


def branching(rank, compiled):
    def fn(x, much):
        y = x * 2
        if much:
            dist.all_reduce(y)
        dist.all_reduce(y[:2])
        return y

    compare_graphs(timedelta(seconds=5))
    return compiled(fn)(torch.ones(4), rank == 1)


def compared(rank, compiled):
    compare_graphs(timedelta(seconds=20))
    return [compiled(summed)(torch.ones(3) + rank) for _ in range(3)]


def alone_in_a_graph(rank, compiled):
    compare_graphs(timedelta(seconds=2))
    return compiled(summed)(torch.ones(3)) if rank else time.sleep(3)


def warmed(rank, compiled):
    model = compiled(nn.Linear(3, 3))
    return warm_up(model, torch.zeros(2, 3), timeout=TIMEOUT).shape


def warming_fails(rank, compiled):
    def fn():
        if rank == 1:
            raise ValueError("no memory here")

    return warm_up(fn, timeout=TIMEOUT)


def agreed(rank, compiled):
    def fn(x):
        return x * x.shape[0]

    run = compiled(fn)
    found = [run(torch.ones(rows, 2)) for rows in ((3, 4) if rank else (3, 3))]
    concerned = agree(TIMEOUT)
    before = len(torchdynamo.eval_frame.cache_entries(fn)) if compiled is aot else 0
    found += [run(torch.ones(rows, 2)) for rows in (3, 7, 9)]
    if compiled is aot:
        after = len(torchdynamo.eval_frame.cache_entries(fn))
        assert (concerned, before, after) == ((0, 2, 2) if rank else (1, 0, 1)), (concerned, before, after)
    return found


def backward_fails(rank, compiled):
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    calls = 0

    def backward(gm, inputs):
        def run(*args):
            nonlocal calls
            calls += 1
            if rank == 1 and calls > 1:
                raise RuntimeError("this rank has no kernel")
            return gm.forward(*args)

        return run

    backend = torchdynamo.optimizations.aot_autograd(lambda gm, inputs: gm.forward, backward)
    inner = torchdynamo.optimize(backend)(module) if compiled is aot else module
    ddp = DistributedDataParallel(inner, bucket_cap_mb=0.0003)
    for _ in range(4):
        ddp(torch.ones(2, 8) + rank).sum().backward()
    return [each.grad for each in module.parameters()]


CASES = {
    "a size on one rank": Case(sizes_on_one_rank),
    "no compiler": Case(with_backend(failing_at(0, compiling=True))),
    "no kernel, first call": Case(with_backend(failing_at(1))),
    "no kernel, tenth call": Case(with_backend(failing_at(10), calls=11)),
    "a bad kernel": Case(with_backend(failing_at(2, late=True), calls=2), ("", "BackendError")),
    "compiled on one rank": Case(compiled_on_one_rank),
    "compiled at other times": Case(compiled_at_other_times),
    "an input": Case(on(lambda x: x)),
    "a view": Case(on(lambda x: x[:1])),
    "not contiguous": Case(on(lambda x: x.t())),
    "complex": Case(on(lambda x: torch.complex(x, x))),
    "saved": Case(saved_for_backward),
    "unused": Case(unused),
    "a rank alone": Case(of_a_rank_alone),
    "no member": Case(of_no_member),
    "raised afterwards": Case(raising_afterwards, ("ValueError", "ValueError")),
    "branches": Case(branching, ("RanksDisagree", "RanksDisagree")),
    "compared": Case(compared),
    "one comes to no graph": Case(alone_in_a_graph, ("", "RanksDisagree")),
    "warmed": Case(warmed),
    "warming fails": Case(warming_fails, ("RanksDisagree", "ValueError")),
    "agreed": Case(agreed),
    "no kernel in the backward": Case(backward_fails),
}


def attempt(case: Case, rank: int, compiled: Compiled, store: str) -> tuple[Any, str, float]:
    """Return what comes of a case in a world of its own, the error, and how long it took."""
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{store}", timeout=TIMEOUT)
    dist.barrier()  # both are there
    started = time.monotonic()
    try:
        return case.run(rank, compiled), "", time.monotonic() - started
    except Exception as error:
        return str(error), type(error).__name__, time.monotonic() - started
    finally:
        compare_graphs(None)
        dist.destroy_process_group()


def main() -> None:
    rank, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    aot(lambda x: x * x)(torch.ones(3))  # what a first compilation imports is no part of what is timed
    wrong = []
    for at, (name, case) in enumerate(CASES.items()):
        if names and name not in names:
            continue
        torchdynamo.reset()
        found, error, seconds = attempt(case, int(rank), aot, f"{folder}/compiled{at}")
        print(name, error, found if error else "", f"{seconds:.1f} s", flush=True)
        if error != case.errors[int(rank)] or seconds > 20:
            wrong.append(f"{name}: {error or 'no error'} after {seconds:.1f} s: {found}")
        if not any(case.errors):
            expected, _, _ = attempt(case, int(rank), lambda fn: fn, f"{folder}/eager{at}")
            try:
                torch.testing.assert_close(found, expected, rtol=0, atol=0)
            except AssertionError as difference:
                wrong.append(f"{name}: {difference}")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
