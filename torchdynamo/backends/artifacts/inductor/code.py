"""Write the kernels of one compiled graph with the Python code that calls them, and make a callable of these.

That code is kept as bytecode, because compiling it anew takes longer than all else. It is read only when its digest has
been checked, in a file that nobody else can write to.
"""

from __future__ import annotations

import importlib.util
import marshal
import re
from collections.abc import Callable
from types import CodeType, NoneType
from typing import Any

import torch

from torchdynamo.backends.artifacts.aot.noting import unwrapped
from torchdynamo.backends.artifacts.artifact import (
    BadArtifact,
    CannotStore,
    NotReady,
    ReadBlob,
    Run,
    Value,
    add_blob,
    field,
    read_verified,
)
from torchdynamo.backends.artifacts.inductor import wrapper_code
from torchdynamo.backends.artifacts.inductor.alignment import with_alignment, without_alignment
from torchdynamo.backends.artifacts.inductor.kernels import library_of, load_kernel
from torchdynamo.backends.artifacts.inductor.namespace import EXTERNS, name_of_extern, namespace
from torchdynamo.backends.artifacts.inductor.triton_kernels import NOT_RUN, decode_launch, encode_launch
from torchdynamo.backends.artifacts.values import DEVICES, decode_tensor, encode_tensor

THREADS = re.compile(r"#pragma omp parallel num_threads\((\d+)\)")
RUN_ONCE = "_torchdynamo_run_once"  # attribute of Inductor's record of a graph that has run
MAGIC = importlib.util.MAGIC_NUMBER  # of the bytecode of this Python


def graph_of(run: Any) -> Any:
    """Return Inductor's record of a compiled graph, which AOTAutograd calls. Raises CannotStore for anything else."""
    from torch._functorch._aot_autograd.runtime_wrappers import SerializableCompiledFunction
    from torch._inductor.output_code import CompiledFxGraph

    return unwrapped(run, CompiledFxGraph, "kernels", SerializableCompiledFunction)


def encode_code(run: Any, blobs: dict[str, bytes]) -> Value:
    """Return what AOTAutograd calls as data. Raises CannotStore if it needs more than kernels of CPU and GPU."""
    graph = graph_of(run)
    if others := graph.device_types - set(DEVICES):
        raise CannotStore(f"kernels run on {', '.join(sorted(others))}")
    if graph.frozen_param_names or graph.torchbind_constants or graph.opaque_value_type_classes:
        raise CannotStore("the graph has frozen parameters, or constants that are no tensors")
    entry, alignment = without_alignment(graph.current_callable)
    scope = getattr(getattr(entry, "__func__", entry), "__globals__", {})
    if isinstance(entry, WatchedEntry):
        raise NotReady(NOT_RUN)
    if scope.get(wrapper_code.ENTRY) != entry:
        raise CannotStore("kernels are called through a wrapper, such as a recording of CUDA graphs")
    code = wrapper_code.read(graph.source_code)
    constants = graph.constants or {}
    if missing := [name for name in code.constants if name not in constants]:
        raise CannotStore(f"the constant {missing[0]!r} has no value")
    externs = {name: name_of_extern(getattr(scope[EXTERNS], name, None)) for name in code.externs}
    if unnamed := [name for name, real in externs.items() if real is None]:
        raise CannotStore(f"the external kernel {unnamed[0]!r} is no operator of torch's own")
    launches = {name: encode_launch(name, scope[name], blobs) for name in code.launched}
    bytecode = {
        wrapper_code.ENTRY: compile(code.source, "<torchdynamo artifact>", "exec"),
        **{name: launcher for name, (_, launcher) in launches.items()},
    }
    return {
        "bytecode": add_blob(blobs, MAGIC + marshal.dumps(bytecode)),
        "kernels": {name: add_blob(blobs, library_of(scope[name])) for name in code.kernels},
        "launches": {name: about for name, (about, _) in launches.items()},
        "externs": externs,
        "constants": {name: encode_tensor(constants[name], blobs) for name in code.constants},
        "threads": threads_of(graph.source_code),
        "alignment": alignment,
    }


def threads_of(source: str) -> int | None:
    """Return the number of threads that kernels have been written for; None if they run on one, or on any number."""
    numbers = set(map(int, THREADS.findall(source)))
    if len(numbers) > 1:
        raise CannotStore("kernels are for different numbers of threads")
    return numbers.pop() if numbers else None


def decode_code(data: dict[str, Value], read_blob: ReadBlob) -> Run:
    """Return the entry of a compiled graph. Raises BadArtifact for what `encode_code` did not write, and for kernels
    that were written for another number of threads.
    """
    threads = data["threads"]
    if threads not in (None, torch.get_num_threads()):
        raise BadArtifact(f"kernels are for {threads} threads, and there are {torch.get_num_threads()}")
    kernels = {name: load_kernel(digest, read_blob) for name, digest in field(data, "kernels", dict).items()}
    constants = {name: decode_tensor(each, read_blob) for name, each in field(data, "constants", dict).items()}
    bytecode = decode_bytecode(field(data, "bytecode", str), read_blob)
    launched = {
        name: decode_launch(about, bytecode.get(name), read_blob)
        for name, about in field(data, "launches", dict).items()
    }
    scope = namespace(field(data, "externs", dict), {**kernels, **launched, **constants})
    exec(bytecode[wrapper_code.ENTRY], scope)
    run: Run = scope[wrapper_code.ENTRY]
    alignment = field(data, "alignment", (dict, NoneType))
    return run if alignment is None else with_alignment(run, alignment)


def decode_bytecode(name: str, read_blob: ReadBlob) -> dict[str, CodeType]:
    """Return code by name: the module's by that of its entry, and launchers by those of kernels. Raises BadArtifact."""
    _, content = read_verified(name, read_blob)
    if not content.startswith(MAGIC):
        raise BadArtifact("the code of a graph is for another version of Python")
    found: dict[str, CodeType] = marshal.loads(content[len(MAGIC) :])
    return found


def after_first_run(run: Any, call: Callable[[], object]) -> bool:
    """Call a function when a graph has run once, and so has chosen how its kernels are launched.

    run: what AOTAutograd calls. Returns whether that is still to come.
    """
    graph = graph_of(run)
    entry = graph.current_callable
    if isinstance(entry, WatchedEntry):
        entry.then.append(call)
    elif getattr(graph, RUN_ONCE, False):
        return False
    else:
        graph.current_callable = WatchedEntry(graph, entry, call)
    return True


class WatchedEntry:
    """Runs a graph for the first time, and puts its entry back in its own place."""

    def __init__(self, graph: Any, entry: Run, call: Callable[[], object]) -> None:
        self.graph, self.entry, self.then = graph, entry, [call]

    def __call__(self, args: list[Any]) -> Any:
        made = self.entry(args)
        if self.graph.current_callable is self:
            self.graph.current_callable = self.entry
            setattr(self.graph, RUN_ONCE, True)
            for each in self.then:
                each()
        return made
