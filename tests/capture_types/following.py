"""Follow a small function to its end, run what was made of it, and hold that against eager: result and mutations.

This needs neither the hook nor compiled guards: the graph is executed as it is, and what the replacement code takes
from the entry state is fetched by walking the sources.
"""

from __future__ import annotations

import builtins
import copy
import types
from collections.abc import Callable
from typing import Any

import torch

from torchdynamo.capture.capture import Return, capture
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Roots
from torchdynamo.codegen import codegen
from torchdynamo.graph.build import GraphBuilder

SCALARS = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, types.CodeType)


class Same:
    """Equality of two worlds: same types, same values, same sharing inside."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is given twice

    def __call__(self, a: Any, b: Any, where: str = "result") -> None:
        assert type(a) is type(b), f"{where}: {type(a)} against {type(b)}"
        if isinstance(a, SCALARS):
            assert a == b or (a != a and b != b), f"{where}: {a!r} against {b!r}"
            return
        self.kept += [a, b]
        known = self.pairs.setdefault(id(a), id(b))
        assert known == id(b), f"{where}: shared differently"
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape, where
            assert torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True), where
        elif known != id(a):
            self.inside(a, b, where)

    def inside(self, a: Any, b: Any, where: str) -> None:
        if isinstance(a, BaseException):
            self(a.args, b.args, f"{where}.args")
        elif isinstance(a, dict):
            self(list(a), list(b), f"{where}.keys()")
            self(list(a.values()), list(b.values()), f"{where}.values()")
        elif isinstance(a, (set, frozenset)):
            assert a == b, f"{where}: {a} against {b}"
        elif hasattr(a, "__len__") and hasattr(a, "__iter__"):
            assert len(a) == len(b), f"{where}: {a} against {b}"
            for at, (x, y) in enumerate(zip(a, b)):
                self(x, y, f"{where}[{at}]")
        slots = [name for base in type(a).__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__"]
        own = {name: getattr(a, name) for name in slots if hasattr(a, name)} | dict(getattr(a, "__dict__", {}))
        other = {name: getattr(b, name) for name in slots if hasattr(b, name)} | dict(getattr(b, "__dict__", {}))
        if type(a).__flags__ & 1 << 9 or own:
            assert list(own) == list(other), f"{where}: attributes {list(own)} against {list(other)}"
            for name, value in own.items():
                self(value, other[name], f"{where}.{name}")


def follow(fn: types.FunctionType, args: tuple[Any, ...]) -> Any:
    """What the replacement of `fn` gives for these arguments. Break if it cannot be captured as a whole."""
    code = fn.__code__
    local = dict(zip(code.co_varnames, args))
    cells = dict(zip(code.co_freevars, fn.__closure__ or ()))
    roots = Roots(local, fn.__globals__, vars(builtins), cells)
    builder = GraphBuilder()
    try:
        captured = capture(code, roots, builder)
    except Break as why:
        raise AssertionError(f"{why.reason} {why.fields} at {why.where}") from why
    assert isinstance(captured.exit, Return)
    draft = codegen.draft(captured)
    inputs = captured.machine.inputs
    gm = builder.finish(draft.outputs, [value.node for value in inputs])
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    sources = [value.source for value in inputs if value.node.name in names]
    new = codegen.finish(draft, gm.forward, [], len(sources), discard=not draft.outputs)
    replaced = types.FunctionType(unsplat(new, gm.forward), fn.__globals__, closure=fn.__closure__)
    bound = tuple(source.load(roots) for source in [*sources, *draft.bound])
    return replaced(*args, *([bound] if has_bound(new) else []))


def has_bound(code: types.CodeType) -> bool:
    return "__bound" in code.co_varnames


def unsplat(code: types.CodeType, graph: Callable[..., Any]) -> types.CodeType:
    """The code with the tuple of bound objects as one more argument, and a graph that takes its inputs from it."""
    consts = tuple((lambda *a: graph(*a[0]) if a else graph()) if c == graph else c for c in code.co_consts)
    extra = has_bound(code)
    return code.replace(co_consts=consts, co_argcount=code.co_argcount + extra)


def check(fn: types.FunctionType, args: tuple[Any, ...]) -> None:
    """The replacement of `fn` does what `fn` does."""
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    state = torch.get_rng_state()
    wanted = fn(*theirs)
    torch.set_rng_state(state)
    got = follow(fn, mine)
    Same()((wanted, theirs), (got, mine))
