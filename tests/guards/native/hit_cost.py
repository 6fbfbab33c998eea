"""Checks the guards of a model of so many layers so often, for an instruction counter: hit_cost.py LAYERS ROUNDS.

The layers are objects with the dicts of an nn.Module, guarded as those of an `nn.Linear` are; no torch is needed. The
difference between two numbers of rounds is what the rounds between cost (docs/performance.md).
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

from torchdynamo import _native

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
Row = tuple[str, int, Any]


class Layer:
    def __init__(self) -> None:
        for name in HOOKS:
            setattr(self, name, {})
        self._parameters = {"weight": object(), "bias": object()}
        self._modules: dict[str, Layer] = {}


def forward(self: Any, x: Any) -> None:
    """Whose frame is guarded."""


def guarded(layers: int) -> _native.GuardProgram:
    """The guards of so many layers; the code is given their parameters."""
    nodes: list[Row] = []
    checks: list[tuple[int, str, Any]] = []
    bound: list[int] = []

    def node(how: str, parent: int, arg: Any) -> int:
        nodes.append((how, parent, arg))
        return len(nodes) - 1

    root = node("local", -1, "self")
    children = node("key", node("dict", root, None), "_modules")
    checks += [(root, "type", Layer), (children, "type", dict)]
    for index in range(layers):
        layer = node("key", children, str(index))
        fields = node("dict", layer, None)
        checks += [(layer, "type", Layer), *((fields, "no_key", ("equal", name)) for name in ("forward", "weight"))]
        for name in HOOKS:
            hooks = node("key", fields, name)
            checks += [(hooks, "type", dict), (hooks, "length", 0)]
        parameters = node("key", fields, "_parameters")
        checks.append((parameters, "type", dict))
        bound += [node("key", parameters, name) for name in ("weight", "bias")]
    return _native.GuardProgram(forward.__code__, tuple(nodes), tuple(checks), tuple(bound))


def main(layers: int, rounds: int) -> None:
    root = Layer()
    root._modules = {str(index): Layer() for index in range(layers)}
    held = guarded(layers).repeat(rounds, {"self": root, "x": 1}, globals(), vars(builtins))
    assert held == rounds


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
