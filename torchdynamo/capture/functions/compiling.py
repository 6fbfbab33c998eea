"""Whether anybody compiles: True while capturing, in all its spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.compiler

from torchdynamo.capture.types.module import calls_hooks_on_errors
from torchdynamo.capture.vm.model import function
from torchdynamo.core import marks, policy
from torchdynamo.core.value import FALSE, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@function(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, marks.is_compiling)
def is_compiling(vm: Machine) -> Value:
    """Return True; but False to torch's optimizers, which would round otherwise, so that an update is the same to the
    bit, and to calls of modules that would leave out hooks.
    """
    return boolean(not policy.in_optimizer(vm.frames) and not calls_hooks_on_errors(vm))


@function(torch.compiler.is_exporting)
def is_exporting(vm: Machine) -> Value:
    return FALSE
