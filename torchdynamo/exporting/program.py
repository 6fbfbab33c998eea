"""From a captured call to torch's ExportedProgram."""

from __future__ import annotations

import cmath
import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.export
from torch.utils import _pytree as pytree

from torchdynamo.capture.torch.tensor_subclasses import overrides
from torchdynamo.core.source import Source
from torchdynamo.errors import ConstraintViolationError, ExportError, TorchDynamoError
from torchdynamo.exporting.calls import ExampleCall
from torchdynamo.exporting.capturing import Captured, captured, guards_of
from torchdynamo.exporting.carried import carried_over
from torchdynamo.exporting.conditions import KEY, Condition, SizeConditions, checks, conditions
from torchdynamo.exporting.flat_graph import FlatGraph
from torchdynamo.exporting.modes import complete_stretches
from torchdynamo.exporting.results import outcome
from torchdynamo.exporting.shapes import Varying
from torchdynamo.exporting.state import Owned
from torchdynamo.graph import shape_env, torch_compat
from torchdynamo.guards.aliases import memory_apart, written_apart
from torchdynamo.guards.kind import read
from torchdynamo.report.recompiles import decisions


class Export:
    """A captured call, with all that the forms of its export are made of."""

    def __init__(self, call: ExampleCall, dynamic_shapes: Any, strict: bool) -> None:
        """Capture a call. Raises what `torchdynamo.export` raises."""
        self.call, self.owned = call, Owned(call.fn)
        self.owned.module.forward = signed(call, lambda *args, **kwargs: None)
        self.varying = Varying(call, dynamic_shapes, self.owned.module)
        made = captured(call, self.varying)
        try:
            self.outcome = outcome(made)
            self.flat = FlatGraph(made, self.outcome, self.owned)
            refuse_shared_memory(made, self.flat)
            carried = carried_over(made, self.flat.module, self.outcome.rebindings)
            if strict and carried:
                raise ExportError(about_state(carried))
            self.guards = guards_of(made, self.flat.module)
            self.sizes = SizeConditions(self.guards, call, leaves_of(made))
            self.checks = checks(self.guards, call, leaves_of(made))
            self.conditions = conditions(self.guards, call)
        finally:
            made.found.capture.machine.let_go()

    def program(self) -> torch.export.ExportedProgram:
        """Return torch's form of the export.

        Raises ConstraintViolationError if torch finds what is said to vary to be a constant or bounded, and ExportError
        if it cannot express the graph.
        """

        def forward(*args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves((args, kwargs))
            self.sizes.hold(leaves)
            return tuple(self.flat.run(*leaves))

        self.owned.module.forward = signed(self.call, forward)
        args, kwargs = pytree.tree_unflatten(self.call.leaves, self.call.spec)  # a capture may change its containers
        depth = torch_compat.count_layers()
        with self.varying.unmarked(), shape_env.sizes_zero_and_one_like_others(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = torch.export.export(
                    self.owned.module, args, kwargs, dynamic_shapes=self.varying.given, strict=False
                )
            except TorchDynamoError:
                raise
            except Exception as error:
                raise self.refused(error) from error
            finally:
                torch_compat.close_layers(depth)
        complete_stretches(made)
        refuse_misprinted(made.graph_module)
        made.module_call_graph[0].signature.out_spec = self.outcome.spec
        note(made, self.conditions, self.outcome.lost, self.checks)
        return made

    def refused(self, error: Exception) -> TorchDynamoError:
        """Return the error for a graph that torch.export does not take."""
        text = first_part(error)
        if "constraint" in text.lower():
            return ConstraintViolationError("\n".join([text, *map(str, decisions(self.guards))]))
        return ExportError(f"torch cannot express the captured graph as an exported program: {text}")


def refuse_shared_memory(made: Captured, flat: FlatGraph) -> None:
    """Raise ExportError if tensors share memory that the graph writes to, or are of classes that act on operators."""
    vm = made.found.capture.machine
    if not (written_apart(vm, flat.module) and memory_apart(vm, flat.module)):
        raise ExportError("tensors share memory that the program writes to: pass copies of them")
    classes = {type(vm.input_objects[value.node]) for value in vm.inputs}
    acting = sorted(cls.__name__ for cls in classes if overrides(cls))
    if acting:
        raise ExportError(f"the program takes tensors of classes that act on operators: {', '.join(acting)}")


def refuse_misprinted(module: torch.nn.Module) -> None:
    """Raise ExportError if the graphs of a module compute with a complex number of which torch.fx prints a name."""

    def refuse(arg: Any) -> Any:
        if type(arg) is complex and not cmath.isfinite(arg):
            raise ExportError(f"the program computes with {arg}, which torch writes into programs as a name")
        return arg

    for each in module.modules():
        for node in each.graph.nodes if isinstance(each, torch.fx.GraphModule) else ():
            torch.fx.node.map_aggregate((node.args, node.kwargs), refuse)


def signed(call: ExampleCall, forward: Any) -> Any:
    """Return a function with a parameter for each argument of the call."""
    positional, others = call.names[: len(call.args)], call.names[len(call.args) :]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in others]
    forward.__signature__ = inspect.Signature(parameters)
    return forward


def leaves_of(made: Captured) -> Any:
    """Return the function from the source of an argument's leaf to the position of the leaf; None for other sources."""
    tensors = {id(leaf): at for at, leaf in enumerate(made.call.leaves) if isinstance(leaf, torch.Tensor)}
    others = {source: at for at, source in enumerate(made.call.sources) if source is not None}

    def leaf_of(source: Source) -> int | None:
        return others.get(source, tensors.get(id(read(source, made.roots))))

    return leaf_of


def note(made: Any, held: Sequence[Condition], lost: Sequence[str], checked: Sequence[str]) -> None:
    """Keep conditions with a program, where saving and loading keep them, and have its `module()` check some."""
    custom = made.graph_module.meta.setdefault("custom", {})
    custom[KEY] = {"guards": [each._asdict() for each in held], "lost": list(lost)}
    made._guards_code = [*made._guards_code, *checked]


def about_state(carried: Sequence[str]) -> str:
    """Return the message about state that the call carries over to the next one."""
    return (
        f"the call changes what it depends on itself: {', '.join(carried)}. An exported program keeps parameters and "
        f"buffers only, and would repeat this call for ever. If this is set up in a first call, call once before the "
        f"export; else keep it in a buffer of the same shape, or take it as an argument and return it. strict=False "
        f"exports the call as it is"
    )


def first_part(error: Exception) -> str:
    """Return the message of an error up to torch's advice about other functions."""
    return str(error).partition("\n\nThe error above occurred when calling")[0].strip() or type(error).__name__
