"""The public function `torchdynamo.export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, overload

import torch
import torch.export
import torch.fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from torchdynamo.contexts import without_compiler
from torchdynamo.exporting.calls import call_of
from torchdynamo.exporting.conditions import Condition
from torchdynamo.exporting.program import Export
from torchdynamo.graph.modules import graph_module
from torchdynamo.optimized_module import OptimizedModule


class ExportResult(NamedTuple):
    """Result of `torchdynamo.export(fn)(*args)`: a graph that is called as `fn` is, and the guards it rests on."""

    graph_module: torch.fx.GraphModule
    guards: list[Condition]


@overload
def export(
    fn: Callable[..., Any],
    /,
    *,
    dynamic_shapes: Any = None,
    strict: bool = True,
    aten_graph: bool = False,
    pre_dispatch: bool = False,
) -> Callable[..., ExportResult]: ...
@overload
def export(
    fn: Callable[..., Any],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = True,
) -> torch.export.ExportedProgram: ...
def export(
    fn: Callable[..., Any],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = True,
    aten_graph: bool = False,
    pre_dispatch: bool = False,
) -> Any:
    """Capture a call as one graph, without running it, and return it with all that it rests on.

    With example arguments the result is a `torch.export.ExportedProgram`, for `torch.export.save`, AOTInductor,
    `torch.onnx` and whatever else takes one. Its conditions, with the lines of the program that rely on them, are in
    `program.graph_module.meta["custom"]["torchdynamo"]`; those on dtypes, sizes and values of arguments are checked by
    `program.module()`, also where the program has been loaded without torchdynamo.

    Without example arguments the result is a function of them: `torchdynamo.export(fn)(*args, **kwargs)` returns a
    graph module that takes the same arguments as `fn` and returns the same results, and its guards.

    fn: a function, method or nn.Module, whose parameters and buffers the program owns under the same names.
    args, kwargs: example arguments; `kwargs={}` exports a call without arguments.
    dynamic_shapes: what may vary, as for `torch.export.export`, but that arguments may be left out, as in
        `{"x": {0: Dim("n")}}`. Without it, the marks on tensors count (`mark_dynamic`), and all else is constant.
    strict: raise ExportError for a call that changes, other than in buffers, what it depends on itself, so that the
        next call is another one; False exports the call as it is.
    aten_graph: in the second form, have the graph in terms of ATen operators, without writes in place.
    pre_dispatch: with `aten_graph`, have it as autograd gets it: with writes in place, and operators undivided.

    Raises `exc.Unsupported` for a program that is not one graph, `exc.ConstraintViolationError` if the program makes a
    constant of what is said to vary, or does not take all of it, and `exc.ExportError` for what cannot be exported;
    TypeError and ValueError for wrong arguments.
    """
    if not callable(fn):
        raise TypeError(f"export takes a function or nn.Module, not {fn!r}")
    if pre_dispatch and not aten_graph:
        raise ValueError("pre_dispatch says what the ATen graph is like: write aten_graph=True as well")
    target = fn._orig_mod if isinstance(fn, OptimizedModule) else without_compiler(fn)
    if args or kwargs is not None:
        if aten_graph:
            raise ValueError(
                "an exported program is an ATen graph; aten_graph is for export(fn, aten_graph=True)(*args)"
            )
        return Export(call_of(target, args, kwargs or {}), dynamic_shapes, strict).program()

    def exported(*args: Any, **kwargs: Any) -> ExportResult:
        made = Export(call_of(target, args, kwargs), dynamic_shapes, strict)
        if not aten_graph:
            return ExportResult(with_trees(made), made.conditions)
        program = made.program()
        return ExportResult((program if pre_dispatch else program.run_decompositions({})).module(), made.conditions)

    return exported


def with_trees(made: Export) -> torch.fx.GraphModule:
    """Return the captured graph as a module that takes arguments and returns results as the program does."""
    made_module = graph_module(made.owned.module, made.flat.graph)
    names = list(made.call.names)
    made_module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, made.call.spec, made.outcome.spec)))
    made_module.recompile()
    return made_module
