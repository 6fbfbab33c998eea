"""Keep communication under the backward where DistributedDataParallel trains a compiled module.

DDP reduces gradients bucket by bucket, as soon as all of a bucket are there. So the backward of each graph is compiled
in parts, cut at DDP's buckets (`cut_backward.py`); the forward stays whole. DDP makes its buckets in the order in which
the gradients of its first backward come: until then graphs run operator by operator, which gives them eager's order.
None of this changes results, only when gradients come.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.fx
from torch.nn.parallel import DistributedDataParallel

from torchdynamo.backends.cut_backward import MOST_PARTS, Order
from torchdynamo.backends.preserve import state_restored
from torchdynamo.errors import UnknownSetting
from torchdynamo.graph.numbers import has_numbers
from torchdynamo.graph.sizes import sizes_of

OPTION = "ddp_parts"
MOST_ORDERS = 4  # variants of a graph; with further buckets, the newest one runs
MOST_CALLS = 500  # calls for which a graph waits for a module's buckets
MARKS = "_torchdynamo_"  # how attributes begin that tell others of a compiled graph
Run = Callable[..., Any]
B = TypeVar("B", bound=Callable[..., Any])


def active() -> Any:
    """Return the DistributedDataParallel whose forward runs, the innermost one; None outside of any."""
    return DistributedDataParallel._get_active_ddp_module()


def has_final_buckets(module: Any) -> bool:
    """Return whether a DistributedDataParallel keeps the buckets that it has, rather than making others."""
    return bool(module._has_rebuilt_buckets or (module.find_unused_parameters and not module.static_graph))


def wanted_order(inputs: Sequence[Any]) -> Order:
    """Return when the gradients of a graph's inputs are wanted, by the buckets of the module that is active.

    Empty if there are fewer than two buckets, or none that stay.
    """
    module = active() if dist.is_available() else None
    if module is None or not has_final_buckets(module):
        return ()
    numbers = numbers_of(module)
    order = tuple(numbers.get(id(each)) for each in inputs)
    return order if len({*order} - {None}) > 1 else ()


_numbers: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()


def numbers_of(module: Any) -> dict[int, int]:
    """Return the bucket of each parameter of a DistributedDataParallel, by its id."""
    found = _numbers.get(module)
    if found is None:
        reducer = getattr(module, "reducer", None)  # which one that reduces in Python does not have
        buckets = [] if reducer is None else reducer._get_zeros_like_grad_buckets()
        found = _numbers[module] = {id(each): bucket.index() for bucket in buckets for each in bucket.parameters()}
    return found


def by_buckets(backend: B) -> B:
    """Wrap a backend by AOTAutograd so that graphs which train under DistributedDataParallel follow its buckets."""

    @functools.wraps(backend)
    def following(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Run | None:
        compile_one = functools.partial(backend, gm, **options)
        waits = dist.is_available() and dist.is_initialized() and trains(example_inputs)
        if waits and active() is not None:
            return ByBuckets(gm, compile_one, example_inputs)
        whole: Run | None = compile_one(example_inputs)
        return whole if whole is None or not waits else ByBuckets(gm, compile_one, example_inputs, whole)

    return following  # type: ignore[return-value]


def trains(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)


def parts_in(options: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any] | None]:
    """Split options into how many parts a backward has at most, and the other options.

    Raises UnknownSetting for "ddp_parts" that is no positive number.
    """
    if not options or OPTION not in options:
        return MOST_PARTS, options
    rest = dict(options)
    most = rest.pop(OPTION)
    if type(most) is not int or most < 1:
        raise UnknownSetting(f"options[{OPTION!r}] is a number of parts, and not {most!r}")
    return most, rest or None


class ByBuckets:
    """Runs a graph by what was compiled for the buckets of the DistributedDataParallel that is active.

    With symbolic sizes a graph is compiled once, for what is active then: guards must be known before it is called.
    """

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        compile_one: Callable[..., Run | None],
        inputs: Sequence[Any],
        whole: Run | None = None,
    ) -> None:
        """Compile the graph if it need not wait. whole: what was compiled while no module is active."""
        self.gm, self.compile_one = gm, compile_one
        self.made: dict[Order, Run] = {}
        self.run: Run | None = None
        self.met: Callable[[], Any] = lambda: None  # refers to the module whose buckets `run` is for
        self.waited = 0
        self.once = has_numbers(gm) or sizes_of(gm) is not None
        if whole is not None:
            self.run = self.made[()] = whole
            vars(self).update({name: value for name, value in vars(whole).items() if name.startswith(MARKS)})
        elif has_final_buckets(active()) or self.once:
            self.run = self.made[wanted_order(inputs)] = compile_one(inputs) or gm.forward
            self.know(active())

    def __call__(self, *args: Any) -> Any:
        module = active()
        if self.run is not None and (module is None or module is self.met()):
            return self.run(*args)
        return self.choose(module, args)(*args)

    def choose(self, module: Any, args: Sequence[Any]) -> Run:
        """Return what runs the graph in this call; compile it if need be."""
        if module is not None and not has_final_buckets(module) and self.waited < MOST_CALLS:
            self.waited += 1
            return self.gm.forward
        order = wanted_order(args)
        if order not in self.made and not (self.made and self.once) and len(self.made) < MOST_ORDERS:
            self.made[order] = self.gm.forward  # if compiling fails
            with state_restored(self.gm, args, self.compile_one):
                self.made[order] = self.compile_one(args) or self.gm.forward
        self.run = run = self.made.get(order) or [*self.made.values()][-1]
        self.know(module)
        return run

    def know(self, module: Any) -> None:
        """Remember that `run` follows a module's buckets, if it has its last ones."""
        if module is not None and has_final_buckets(module):
            self.met = weakref.ref(module)
