"""Build the object that a captured call returns, with the fake tensors of their nodes for graph outputs in it.

The code that would replace the frame is made and run once, with these in place of what the graph would give. It
changes nothing of the program's: of the side effects only those on the call's own containers are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.capture.exits import Return
from torchdynamo.capture.vm.effect_kinds import EffectKind, Write
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.codegen import codegen
from torchdynamo.codegen.emit import CodeEmitter
from torchdynamo.codegen.replay import REPLAYS
from torchdynamo.core.source import Source
from torchdynamo.core.value import Symbol, TensorNode, Value
from torchdynamo.exporting.capturing import Captured
from torchdynamo.hook.install import callback_active

GRAPH = "__graph"


class Rebinding(NamedTuple):
    """A buffer of a module that is replaced by another tensor."""

    source: Source
    node: torch.fx.Node


class CallOutcome(NamedTuple):
    """Result and effects of a captured call."""

    leaves: list[Any]  # of the result: nodes, tensors that existed, constants
    spec: pytree.TreeSpec
    rebindings: list[Rebinding]
    lost: list[str]  # side effects that an exported program has no place for


class ResultEmitter(CodeEmitter):
    """Emits code that takes every tensor and number from the graph, also those that are its inputs."""

    def computed(self, value: TensorNode | Symbol) -> None:
        super().computed(type(value)(value.node, value.fake, value.pytype))


def outcome(made: Captured) -> CallOutcome:
    """Return what a captured call returns and leaves behind."""
    captured = made.found.capture
    assert isinstance(captured.exit, Return)
    emit = ResultEmitter(captured)
    rebindings: list[Rebinding] = []
    lost: list[str] = []
    for write in captured.machine.effects.pending():
        owner = write.owner.source if isinstance(write.owner, Entity) else None
        if made.call.is_argument(owner) and write.kind in (EffectKind.ITEMS, EffectKind.ATTRIBUTE):
            REPLAYS[write.kind](emit, write)
            lost += told(write, owner)  # of the example's own containers: a loaded program returns what it has made
        elif owner is not None and is_buffers(owner) and write.kind is EffectKind.ITEMS:
            for name, value in rebound(write.owner):
                source = Source("key", owner, name)
                if isinstance(value, TensorNode) and takes_the_place(value, owner, name, made):
                    rebindings.append(Rebinding(source, value.node))
                else:
                    lost.append(f"{source} is set")
        else:
            lost += told(write, owner)
    emit.value(captured.exit.value)
    emit.op("RETURN")
    result = run(emit, made)
    leaves, spec = pytree.tree_flatten(result)
    nodes = {id(node.meta["example_value"]): node for node in emit.outputs}
    return CallOutcome([nodes.get(id(leaf), leaf) for leaf in leaves], spec, rebindings, lost)


def run(emit: CodeEmitter, made: Captured) -> Any:
    """Run what was emitted, and return what it returns."""
    call = made.call
    draft = codegen.Draft(
        call.code, [], emit.items, list(emit.outputs), list(emit.bound), [], [], None, None, does_nothing_else=True
    )
    written = codegen.finish(draft, GRAPH, (), 0, discard=False)
    code = written.assembled(call.code)
    extra = [name for name in written.variables if name in ("__bound", GRAPH)]
    arguments = argument_names(call.code)
    fn: Callable[..., Any] = FunctionType(
        code.replace(co_argcount=len(arguments) + len(extra)), made.roots.globals, "call"
    )
    stand_ins = tuple(node.meta["example_value"] for node in emit.outputs)
    given = {GRAPH: lambda: stand_ins, "__bound": tuple(source.load(made.roots) for source in emit.bound)}
    with callback_active(None), torch._C.DisableTorchFunctionSubclass():
        return fn(*(call.locals[name] for name in arguments), *(given[name] for name in extra))


def is_buffers(source: Source) -> bool:
    """Return whether a source is the dictionary of a module's buffers."""
    return source.how == "key" and source.arg == "_buffers"


def rebound(buffers: Entity) -> Iterator[tuple[str, Value]]:
    """Yield the names and new values of those buffers that are not what they were."""
    for key, value in buffers.items.values():
        if getattr(value, "source", None) is not Source("key", buffers.source, key.obj):
            yield key.obj, value


def takes_the_place(value: TensorNode, owner: Source, name: str, made: Captured) -> bool:
    """Return whether a tensor of the graph can be copied into the buffer that was there."""
    there = owner.load(made.roots).get(name)
    if not isinstance(there, torch.Tensor):
        return False
    return value.fake.shape == there.shape and value.fake.dtype == there.dtype


def told(write: Write, owner: Source | None) -> list[str]:
    """Return what is lost of a side effect, in a few words; nothing for process state that the graph itself sets."""
    if write.kind is EffectKind.STATE:
        return []
    if write.kind is EffectKind.ITEMS and owner is not None and owner.arg == "_non_persistent_buffers_set":
        return []
    if write.kind is EffectKind.DEFERRED:
        return [write.owner.text]
    place = owner if owner is not None else getattr(write.owner, "source", None) or "an object"
    return [f"{place}.{write.name} is set" if write.name else f"{place} is changed"]
