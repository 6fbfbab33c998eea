"""torch.compiler, torch.jit and torch.profiler: functions that tell of compiling, or wrap others."""

from __future__ import annotations

import types

import torch
import torch.compiler
import torch.jit
import torch.profiler
import torch.utils.checkpoint

from torchdynamo.capture.types.module import calls_hooks_on_errors
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ends_graph, function, models
from torchdynamo.core import marks, policy
from torchdynamo.core.signals import Break
from torchdynamo.core.source import instance_attr
from torchdynamo.core.value import FALSE, Object, Value, boolean


@function(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, marks.is_compiling)
def is_compiling(vm: Machine) -> Value:
    """Return True, but not to torch's optimizers and to calls of modules that would leave out hooks.

    Optimizers would round otherwise: so an update is the same to the bit.
    """
    return boolean(not policy.in_optimizer(vm.frames) and not calls_hooks_on_errors(vm))


@function(torch.compiler.is_exporting)
def is_exporting(vm: Machine) -> Value:
    """Return True inside of `torchdynamo.export`."""
    return boolean(vm.builder.exporting)


ORIGINAL = "_torchdynamo_inline"  # where torch.jit leaves the Python function it compiled


@models(torch.jit.ScriptFunction, "__call__")
def call_scripted(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Call the Python original of a scripted function. A traced one ends the graph: it has lost its branches."""
    entity = vm.entity(self)
    own = entity.real.__dict__
    original = own.get(ORIGINAL)
    if type(original) is not types.FunctionType or own.get("__name__") != "ScriptFunction":
        raise Break("unknown call", name="a traced function")
    assert entity.source is not None
    return vm.call(vm.wrap(original, instance_attr(entity.source, ORIGINAL)), list(args), dict(kwargs))


def model_label(cls: type) -> None:
    """Model a profiler's label around operators as nothing: the profiler sees the graph instead."""

    def nothing(vm: Machine, self: Value, exc_type: Value, exc_value: Value, traceback: Value) -> Value:
        return FALSE

    def enter(vm: Machine, self: Value) -> Value:
        return self

    function(cls.__dict__["__enter__"])(enter)
    function(cls.__dict__["__exit__"])(nothing)


model_label(torch.autograd.profiler.record_function)


function(torch.compile)(ends_graph("unknown call", name="torch.compile"))
