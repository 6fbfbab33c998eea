"""Run what was made of a function, without hook and native guards: sources are walked in Python."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any

from torchdynamo.capture.capture import Return, capture
from torchdynamo.capture.source import Roots
from torchdynamo.codegen import codegen
from torchdynamo.graph import check
from torchdynamo.graph.build import GraphBuilder


def captured_call(fn: types.FunctionType, args: tuple[Any, ...]) -> Any:
    """What the replacement of `fn` gives. Raises Break if it is not one graph."""
    code = fn.__code__
    cells = dict(zip(code.co_freevars, fn.__closure__ or ()))
    roots = Roots(dict(zip(code.co_varnames, args)), fn.__globals__, vars(builtins), cells)
    builder = GraphBuilder()
    captured = capture(code, roots, builder)
    if not isinstance(captured.exit, Return):
        raise captured.ended
    draft = codegen.draft(captured)
    inputs = captured.machine.inputs
    gm = builder.finish(draft.outputs, [value.node for value in inputs])
    check.check(gm)
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    sources = [value.source for value in inputs if value.node.name in names and value.source is not None]
    new = codegen.finish(draft, gm.forward, [], len(sources), discard=not draft.outputs)
    bound = tuple(source.load(roots) for source in [*sources, *draft.bound])
    extra = "__bound" in new.co_varnames
    consts = tuple(from_tuple(gm.forward) if each == gm.forward else each for each in new.co_consts)
    code = new.replace(co_consts=consts, co_argcount=new.co_argcount + extra)
    replaced = types.FunctionType(code, fn.__globals__, closure=fn.__closure__)
    return replaced(*args, *([bound] if extra else []))


def from_tuple(graph: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: graph(*args[0]) if args else graph()
