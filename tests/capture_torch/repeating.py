"""What captures look like with and without recipes for repeated calls (capture/vm/repeated_calls.py)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import capture_retries, pipeline
from torchdynamo.cache import budget
from torchdynamo.capture.vm.call_recipes import Recipe
from torchdynamo.core.call_sites import CallSite
from torchdynamo.graph.tracebacks import PROGRAMS

ADDRESS = re.compile(r"0x[0-9a-f]+|\d{12,}")
EXECUTED, REPEATED = None, capture_retries.BLOCKS


def shown(value: Any) -> str:
    """Return the text of a value, without the addresses in it."""
    return ADDRESS.sub("", str(value))


def stack(site: CallSite | None) -> list[Any]:
    """Return a chain of calls as plain data."""
    return [] if site is None else [(each.code(), each.offset, each.module) for each in site.outermost_first()]


def fake_facts(value: Any, numbers: dict[int, int]) -> Any:
    """Return what a fake result is as plain data, in which tensors and memories are told by the numbers they get."""
    if isinstance(value, (tuple, list)):
        return [fake_facts(each, numbers) for each in value]
    if not isinstance(value, torch.Tensor):
        return repr(value)
    facts = (type(value), tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device)
    memory = value.untyped_storage()._cdata if value.layout is torch.strided else 0
    same = [numbers.setdefault(each, len(numbers)) for each in (id(value), memory)]
    return (*map(str, facts), *same, value.requires_grad, value.is_leaf, value._is_view(), str(type(value.grad_fn)))


def picture(captured: Any, record: Any) -> list[Any]:
    """Return all there is to say of a compiled frame as plain data."""
    vm, gm = captured.machine, record.graph
    nodes: list[Any] = []
    numbers: dict[int, int] = {}
    for node in gm.graph.nodes if gm is not None else ():
        source, meta = node.meta.get("source"), node.meta
        path = None if source is None else (str(source.path), source.static, meta["static_input"])
        what = node.name, node.op, str(node.target), str(node.args), str(node.kwargs), path
        nodes.append((*what, meta.get("stack_trace"), fake_facts(meta.get("example_value"), numbers)))
    program = PROGRAMS.get(gm) if gm is not None else None
    sites = {} if program is None else {name: stack(site) for name, site in program.nodes.items()}
    guards = [(shown(each.source), each.kind, shown(each.arg), each.position) for each in record.guards]
    met = sorted(shown(each.source) for each in vm.heap.entities if each.source is not None)
    inputs = [(shown(each.source), each.node.name) for each in vm.inputs]
    return [
        nodes,
        sites,
        guards,
        met,
        inputs,
        [*map(shown, vm.by_source)],
        len(vm.aliased_dicts),
        vm.ops,
        vm.turns,
    ]


@contextlib.contextmanager
def pictures(patch: pytest.MonkeyPatch, blocks: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Collect pictures of what is compiled in a `with` block, and the paths of objects that recipes were used for."""
    seen: list[Any] = []
    used: list[Any] = []
    entry_of, repeat = pipeline.entry_of, Recipe.repeat

    def noting(found: Any, *rest: Any) -> Any:
        entry = entry_of(found, *rest)
        if getattr(entry, "info", None) is not None:
            seen.append(picture(found.capture, entry.info))
        return entry

    def using(self: Recipe, vm: Any, match: Any, *rest: Any) -> Any:
        used.append(str(match.sources[0]))
        return repeat(self, vm, match, *rest)

    with patch.context() as change:
        change.setenv("TORCHDYNAMO_CACHE", "0")  # a hit is not captured
        change.setattr(pipeline, "entry_of", noting)
        change.setattr(Recipe, "repeat", using)
        change.setattr(capture_retries, "BLOCKS", blocks)
        yield seen, used


def both_ways(patch: pytest.MonkeyPatch, calls: Callable[[Callable[..., Any]], Any], **settings: Any) -> list[str]:
    """Compare what `calls` gives, eagerly and compiled, with recipes and without, and all that is compiled.

    `calls` gets a function that compiles, or does not. Return the paths of the objects that recipes were used for.
    """

    def afresh(make: Callable[..., Any]) -> Any:
        torchdynamo.reset()
        patch.setattr(budget, "credit", budget.Credit(lambda: 0.0))  # what is captured again does not go by the clock
        torch.utils.hooks.RemovableHandle.next_id = 0  # a hook is found by its number
        return calls(make)

    want = afresh(lambda fn: fn)
    with pictures(patch, EXECUTED) as (executed, none):  # backends are given the same in both, if the pictures are
        compared(afresh(lambda fn: torchdynamo.compile(fn, **{**settings, "backend": "eager"})), want)
    with pictures(patch, REPEATED) as (repeated, used):
        compared(afresh(lambda fn: torchdynamo.compile(fn, **settings)), want)
    assert not none
    assert len(executed) == len(repeated)
    for one, other in zip(executed, repeated, strict=True):
        for part, same in zip(one, other, strict=True):
            assert part == same, [each for each in zip(part, same) if each[0] != each[1]][:2]
    return used


def compared(found: Any, want: Any) -> None:
    """Assert that two nests of results are equal, tensors to the bit."""
    assert type(found) is type(want)
    if isinstance(want, torch.Tensor):
        assert found.dtype == want.dtype
        assert found.stride() == want.stride()
        assert found.requires_grad == want.requires_grad
        assert torch.equal(found, want) or (found != found).any()
    elif isinstance(want, (list, tuple)):
        assert len(found) == len(want)
        for one, other in zip(found, want, strict=True):
            compared(one, other)
    elif isinstance(want, dict):
        compared(list(found.items()), list(want.items()))
    else:
        assert found == want
