"""Write the kernels of one compiled graph with the Python code that calls them, and make a callable of these.

That code is kept as bytecode, because compiling it anew takes longer than all else. It is read only when its digest has
been checked, in a file that nobody else can write to.
"""

from __future__ import annotations

import importlib.util
import marshal
import re
from typing import Any

import torch

from torchdynamo.backends.artifacts.aot.noting import unwrapped
from torchdynamo.backends.artifacts.artifact import (
    BadArtifact,
    CannotStore,
    ReadBlob,
    Run,
    Value,
    add_blob,
    field,
    read_verified,
)
from torchdynamo.backends.artifacts.inductor import wrapper_code
from torchdynamo.backends.artifacts.inductor.kernels import library_of, load_kernel
from torchdynamo.backends.artifacts.inductor.namespace import EXTERNS, name_of_extern, namespace
from torchdynamo.backends.artifacts.values import decode_tensor, encode_tensor

THREADS = re.compile(r"#pragma omp parallel num_threads\((\d+)\)")
MAGIC = importlib.util.MAGIC_NUMBER  # of the bytecode of this Python


def graph_of(run: Any) -> Any:
    """Return Inductor's record of a compiled graph, which AOTAutograd calls. Raises CannotStore for anything else."""
    from torch._functorch._aot_autograd.runtime_wrappers import SerializableCompiledFunction
    from torch._inductor.output_code import CompiledFxGraph

    return unwrapped(run, CompiledFxGraph, "kernels", SerializableCompiledFunction)


def encode_code(run: Any, blobs: dict[str, bytes]) -> Value:
    """Return what AOTAutograd calls as data. Raises CannotStore if it needs more than kernels of the CPU."""
    graph = graph_of(run)
    if graph.device_types - {"cpu"}:
        raise CannotStore(f"kernels run on {', '.join(sorted(graph.device_types - {'cpu'}))}")
    if graph.frozen_param_names or graph.torchbind_constants or graph.opaque_value_type_classes:
        raise CannotStore("the graph has frozen parameters, or constants that are no tensors")
    scope = getattr(getattr(graph.current_callable, "__func__", graph.current_callable), "__globals__", {})
    if scope.get(wrapper_code.ENTRY) != graph.current_callable:
        raise CannotStore("kernels are called through a wrapper of Inductor")
    code = wrapper_code.read(graph.source_code)
    constants = graph.constants or {}
    if missing := [name for name in code.constants if name not in constants]:
        raise CannotStore(f"the constant {missing[0]!r} has no value")
    externs = {name: name_of_extern(getattr(scope[EXTERNS], name, None)) for name in code.externs}
    if unnamed := [name for name, real in externs.items() if real is None]:
        raise CannotStore(f"the external kernel {unnamed[0]!r} is no operator of torch's own")
    return {
        "bytecode": add_blob(blobs, MAGIC + marshal.dumps(compile(code.source, "<torchdynamo artifact>", "exec"))),
        "kernels": {name: add_blob(blobs, library_of(scope[name])) for name in code.kernels},
        "externs": externs,
        "constants": {name: encode_tensor(constants[name], blobs) for name in code.constants},
        "threads": threads_of(graph.source_code),
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
    scope = namespace(field(data, "externs", dict), {**kernels, **constants})
    _, content = read_verified(field(data, "bytecode", str), read_blob)
    if not content.startswith(MAGIC):
        raise BadArtifact("the code of a graph is for another version of Python")
    exec(marshal.loads(content[len(MAGIC) :]), scope)
    run: Run = scope[wrapper_code.ENTRY]
    return run
