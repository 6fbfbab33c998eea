"""torch.distributed: process groups, and what they say of the ranks in them.

A group's rank, size, name and ranks never change, so they are constants under a guard on the group's identity. A group
that was destroyed and made again is another one, and so is the default group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Model, enters, function, models
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import NONE, Known, Object, Value, is_none


def enter_group(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a process group, which is guarded to be this one. One of a subclass may answer as it likes."""
    if type(obj) is dist.ProcessGroup:
        vm.of_process["a process group"] = None
        vm.guard(source, "ID_MATCH", obj)
    else:
        vm.guard(source, "TYPE_MATCH", type(obj))
    return vm.heap.adopt(obj, source)


def real_group(vm: Machine, value: Value, name: str) -> Any:
    """Return the process group that a value is. Raises Break for anything else. name: what is asked of it."""
    if not isinstance(value, Object) or value.pytype is not dist.ProcessGroup:
        raise Break("unknown call", name=name)
    return vm.entity(value).real


def fact(name: str) -> Model:
    """Return the model of a method of groups whose answer never changes."""

    def row(vm: Machine, self: Value) -> Value:
        return Known(getattr(real_group(vm, self, name), name)())

    return row


def group_name(vm: Machine, self: Value) -> Value:
    return Known(real_group(vm, self, "group_name").group_name)


# -- what the world knows of its groups -------------------------------------------------------------------------------
def backend_of(group: Any) -> str | None:
    """Return the backend of a group; None for one that was destroyed."""
    known = dist.distributed_c10d._world.pg_map.get(group)
    return None if known is None else str(known[0])


def ranks_of(group: Any) -> tuple[int, ...] | None:
    """Return the global ranks in a group; None for one that was destroyed."""
    known = dist.distributed_c10d._world.pg_group_ranks.get(group)
    return None if known is None else tuple(known)


def default_group(vm: Machine, group: Value) -> Value:
    """Return a group, the default one for None."""
    return vm.call(Known(dist.distributed_c10d._get_default_group), [], {}) if is_none(group) else group


def asked(vm: Machine, group: Value, ask: Callable[[Any], Any], fn: Callable[..., Any]) -> Any:
    """Return what the world knows of a group, guarded. Raises Break for one that it does not know."""
    given = default_group(vm, group)
    real = real_group(vm, given, fn.__name__)
    answer = ask(real)
    source = vm.entity(given).source  # type: ignore[arg-type]
    if answer is None or source is None:
        raise Break("unknown call", name=fn.__name__)
    vm.guard(Source("asked", source, ask), "EQUALS_MATCH", answer)
    return answer


def get_backend(vm: Machine, group: Value = NONE) -> Value:
    return vm.constant(dist.Backend(asked(vm, group, backend_of, dist.get_backend)))


def get_process_group_ranks(vm: Machine, group: Value = NONE) -> Value:
    return vm.constant(list(asked(vm, group, ranks_of, dist.get_process_group_ranks)))


def get_group_rank(vm: Machine, group: Value, global_rank: Value) -> Value:
    """Return a global rank's place in a group. One that is not in it ends the graph: torch says so."""
    ranks, rank = asked(vm, group, ranks_of, dist.get_group_rank), vm.known(global_rank, "rank")
    if rank not in ranks:
        raise Break("unknown call", name="get_group_rank")
    return Known(ranks.index(rank))


def get_global_rank(vm: Machine, group: Value, group_rank: Value) -> Value:
    """Return the global rank at a place in a group. A place that is not there ends the graph: torch says so."""
    ranks, rank = asked(vm, group, ranks_of, dist.get_global_rank), vm.known(group_rank, "rank")
    if rank not in range(len(ranks)):
        raise Break("unknown call", name="get_global_rank")
    return Known(ranks[rank])


def resolve_group(vm: Machine, name: Value) -> Value:
    """Return the group of a name, which is asked for again before each call."""
    resolve, given = torch._C._distributed_c10d._resolve_process_group, vm.known(name, "group")
    try:
        real = resolve(given)
    except (RuntimeError, TypeError):
        raise Break("unknown call", name="_resolve_process_group") from None
    return vm.wrap(real, Source("call", Source("pinned", None, Pinned(resolve)), (given,)))


if dist.is_available():
    function(torch._C._distributed_c10d._resolve_process_group)(resolve_group)
    enters(dist.ProcessGroup)(enter_group)
    for _name in ("rank", "size", "name"):
        function(vars(dist.ProcessGroup)[_name].__func__)(fact(_name))
    models(dist.ProcessGroup, ".group_name")(group_name)
    for _row in (get_backend, get_process_group_ranks, get_group_rank, get_global_rank):
        function(getattr(dist, _row.__name__))(_row)
