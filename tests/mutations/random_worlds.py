"""Random objects, and programs that read them along random paths. One seed always makes the same world."""

from __future__ import annotations

import itertools
import linecache
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

NAMES = ("a", "b", "c", "d")
PRELUDE = '''
def use(acc, v):
    """Something that differs with whatever v is."""
    if isinstance(v, torch.Tensor):
        acc = acc + v.sum() * (3 if v.requires_grad else 2) + v.dim() + len(v.stride())
        return acc + (5 if v.dtype is torch.float64 else 6) + (7 if v.is_contiguous() else 8)
    if v is None:
        return acc + 11
    if isinstance(v, bool):
        return acc + (13 if v else 17)
    if isinstance(v, (int, float)):
        return acc + v
    if isinstance(v, str):
        return acc * 1.25 + len(v)
    if isinstance(v, (list, tuple, set)):
        return acc + 100 * len(v)
    if isinstance(v, dict):
        return acc * 0.5 + len(v)
    if isinstance(v, nn.Module):
        return acc + (19 if v.training else 23)
    return acc + (29 if isinstance(v, World.First) else 31)
'''
_numbers = itertools.count()


class World:
    """Classes, instances, containers, modules and functions of one world's own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.classes = make_classes()
        self.root = self.instance(3)
        self.net = self.module(2)
        self.items: Any = [self.grow(2) for _ in range(3)]
        self.table = {name: self.grow(2) for name in NAMES[:3]}
        self.globals: dict[str, Any] = {
            "torch": torch,
            "nn": nn,
            "np": np,
            "World": self.classes,
            "G": self.grow(1),
            "H": self.root,
        }
        run(PRELUDE, self.globals)
        self.cell = types.CellType(self.grow(1))

    # ---- making things ----------------------------------------------------------------------------------------------
    def leaf(self) -> Any:
        """A constant or a tensor."""
        if self.rng.random() < 0.45:
            return self.tensor()
        return self.rng.choice([0, 1, 2, 7, True, False, 1.0, 0.5, -0.0, "x", "word", None, (1, 2), (1, (2, "y"))])

    def tensor(self) -> torch.Tensor:
        """Small, of any kind."""
        kind = self.rng.randrange(6)
        made = torch.arange(6.0).reshape(2, 3)
        if kind == 0:
            return made.double()
        if kind == 1:
            return made.t()
        if kind == 2:
            return made.requires_grad_()
        return made[0] if kind == 3 else made[:, 1:] if kind == 4 else made

    def grow(self, depth: int) -> Any:
        """Something, of things."""
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf()
        kind = self.rng.choice(["list", "tuple", "dict", "set", "instance", "instance", "module"])
        if kind == "set":
            return set(self.rng.sample(range(6), self.rng.randrange(4)))
        if kind == "dict":
            return {self.rng.choice([*NAMES, 0, 1]): self.grow(depth - 1) for _ in range(self.rng.randrange(4))}
        if kind in ("list", "tuple"):
            made = [self.grow(depth - 1) for _ in range(self.rng.randrange(4))]
            return made if kind == "list" else tuple(made)
        return self.instance(depth) if kind == "instance" else self.module(depth - 1)

    def instance(self, depth: int) -> Any:
        """Of one of the classes; attributes may be missing."""
        made = self.rng.choice(CLASS_NAMES)
        obj = getattr(self.classes, made)()
        for name in NAMES:
            if self.rng.random() < 0.7:
                setattr(obj, name, self.grow(depth - 1))
        return obj

    def module(self, depth: int) -> nn.Module:
        """A module with a parameter, a buffer and perhaps children."""
        made: nn.Module = self.classes.Net()
        for name in NAMES[:2]:
            if depth > 0 and self.rng.random() < 0.6:
                setattr(made, name, self.module(depth - 1))
        return made


CLASS_NAMES = ("First", "Second", "Third", "Slotted")


def make_classes() -> Any:
    """Fresh ones, so that patching them stays within a world."""

    class First:
        c = 4
        size = property(lambda self: 5)

        def step(self, acc: Any) -> Any:
            return acc + 2

    class Second(First):
        d = "second"

        def step(self, acc: Any) -> Any:
            return super().step(acc) * 1.5

    class Third(Second):
        size = 6

    class Slotted:
        __slots__ = NAMES

        def step(self, acc: Any) -> Any:
            return acc - 1

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("mean", torch.full((2,), 0.5))

        def forward(self, acc: Any) -> Any:
            for child in self.children():
                acc = child(acc)
            return acc * self.weight.sum() + self.mean.sum() + (1 if self.training else 0)

    return types.SimpleNamespace(First=First, Second=Second, Third=Third, Slotted=Slotted, Net=Net)


def run(text: str, space: dict[str, Any]) -> None:
    """Execute source that tracebacks, and whoever asks for lines, can find."""
    name = f"<random {next(_numbers)}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    exec(compile(text, name, "exec"), space)


# ---- Programs -------------------------------------------------------------------------------------------------------


def path(rng: random.Random, world: World) -> str:
    """An expression that leads somewhere in this world, or nearly."""
    text, obj = rng.choice(
        [("root", world.root), ("items", world.items), ("table", world.table), ("G", world.globals["G"])]
        + [("net", world.net), ("H", world.globals["H"]), ("free", world.cell.cell_contents)]
    )
    for _ in range(rng.randrange(1, 4)):
        step = step_from(rng, obj)
        if step is None:
            break
        text, obj = text + step[0], step[1]
    return text


def step_from(rng: random.Random, obj: Any) -> tuple[str, Any] | None:
    """One step on from an object."""
    if isinstance(obj, dict):
        return next(((f"[{key!r}]", obj[key]) for key in rng.sample(list(obj), len(obj))), None)
    if isinstance(obj, (list, tuple)):
        index = rng.randrange(len(obj)) if obj else 0
        return (f"[{index}]", obj[index]) if obj else None
    if isinstance(obj, nn.Module):
        name = rng.choice([*NAMES[:2], "weight", "mean", "training"])
        return (f".{name}", getattr(obj, name)) if hasattr(obj, name) else None
    if hasattr(obj, "step"):
        name = rng.choice([*NAMES, "size"])
        return (f".{name}", getattr(obj, name)) if hasattr(obj, name) else None
    return None


STATEMENTS: list[Callable[[str, str, str], str]] = [
    *[lambda p, q, name: f"acc = use(acc, {p})"] * 4,
    lambda p, q, name: f"acc = acc + (1 if hasattr({p}, {name!r}) else 2)",
    lambda p, q, name: f"acc = use(acc, getattr({p}, {name!r}, 41))",
    lambda p, q, name: f"acc = acc + (1 if {p} is {q} else 2)",
    lambda p, q, name: f"acc = acc + (1 if type({p}) is type({q}) else 2)",
    lambda p, q, name: f"acc = {p}.step(acc) if hasattr({p}, 'step') else acc + 1",
    lambda p, q, name: f"acc = {p}(acc) if isinstance({p}, nn.Module) else acc + 3",
    lambda p, q, name: f"acc = acc + ({name!r} in {p} if isinstance({p}, (dict, set, list)) else 4)",
    lambda p, q, name: f"for v in {p} if isinstance({p}, (list, tuple)) else ():\n        acc = use(acc, v)",
    lambda p, q, name: (
        f"for k, v in {p}.items() if isinstance({p}, dict) else ():\n        acc = use(acc * 1.5, v) + len(str(k))"
    ),
    lambda p, q, name: f"if isinstance({p}, torch.Tensor) and not {p}.requires_grad:\n        {p}.add_(1)",
    lambda p, q, name: f"acc = use(acc, {p}.get(1, 37) if isinstance({p}, dict) else 4)",
    lambda p, q, name: "try:\n        acc = acc + shared\nexcept NameError:\n        acc = acc + 43",
    lambda p, q, name: "acc = acc + len(str(np.full(2, 1.23456789)))",
    lambda p, q, name: (
        "try:\n        acc = acc + float(np.exp(np.float64(-1000)))\nexcept FloatingPointError:\n        acc = acc + 47"
    ),
    lambda p, q, name: (
        "try:\n        from shared_module import k\n        acc = acc + k\nexcept ImportError:\n        acc = acc + 53"
    ),
    lambda p, q, name: "acc = net(acc)",
    lambda p, q, name: "acc = acc + helper(acc)",
]


LEADS_NOWHERE = "except (AttributeError, KeyError, IndexError, TypeError):"


def program(seed: int, world: World) -> Callable[..., Any]:
    """A function of this world: the same text for every world of the seed."""
    rng = random.Random(seed)
    lines = ["def make(cell):", "    free = None", "    def inner(acc, root, items, table, net):"]
    for _ in range(rng.randrange(6, 14)):
        for variable in "pq":
            lines += [f"        try:\n            {variable} = {path(rng, world)}", f"        {LEADS_NOWHERE}"]
            lines += [f"            {variable} = 'nothing'"]
        statement = rng.choice(STATEMENTS)("p", "q", rng.choice(NAMES))
        lines += [f"        {line}" if not line.startswith(" ") else f"    {line}" for line in statement.split("\n")]
    lines += ["        free", "        return acc", "    return inner"]
    lines += ["def helper(acc, by=2, *, plus=1):", "    return acc * by + plus"]
    run("\n".join(lines), world.globals)
    made = world.globals["make"](None)
    index = made.__code__.co_freevars.index("free")
    cells = tuple(world.cell if at == index else cell for at, cell in enumerate(made.__closure__))
    return types.FunctionType(made.__code__, world.globals, "inner", None, cells)
