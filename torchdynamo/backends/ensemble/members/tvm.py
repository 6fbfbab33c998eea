"""Run graphs in Apache TVM, compiled by LLVM as they are: tuning takes hours to pay off, and has crashed processes."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from torchdynamo.backends.ensemble.exported import Exported, exported, last_line, undisturbed_build
from torchdynamo.backends.ensemble.foreign_run import ForeignRun
from torchdynamo.backends.ensemble.integer_values import Integers, index_checks
from torchdynamo.backends.ensemble.member import Declined, Member, register_member
from torchdynamo.backends.ensemble.requirements import FOREIGN, on_cpu, package
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.ensemble.trusted_operators import must_be_trusted

_DTYPES = frozenset({torch.float32, torch.float64, torch.bool, torch.int64, torch.int32})
_ONE_THREAD_A_CORE = 0  # a mode of TVM's thread pools


def build(subgraph: Subgraph) -> ForeignRun:
    """Compile the graph for this CPU. Raises Declined for what TVM cannot do."""
    form = exported(subgraph)
    threads = torch.get_num_threads()
    with undisturbed_build():
        integers = Integers(form.program)
        must_be_trusted(form.program, integers, dtypes=_DTYPES)
        checks = index_checks(form.program, integers, from_the_end=False)
        run = ForeignRun(form, Machines(form, threads), checks, threads)
        return run.tried([subgraph.example_inputs[position] for position in subgraph.moving])


class Machines:
    """A compiled module with a virtual machine for each call that runs at once."""

    def __init__(self, form: Exported, threads: int) -> None:
        hook = sys.excepthook
        import tvm
        from tvm import relax
        from tvm.relax.frontend.torch import from_exported_program

        sys.excepthook = hook  # importing TVM puts another in its place
        try:
            module = tvm.compile(from_exported_program(form.program), target=tvm.target.Target("llvm"))
        except Exception as error:
            raise Declined(f"TVM cannot compile it: {last_line(error)}") from error
        self.threads = threads
        self.made: Callable[[], Any] = lambda: relax.VirtualMachine(module, tvm.cpu())
        self.idle: deque[Any] = deque()
        self.shared = tvm.runtime.from_dlpack
        self.configure = tvm.get_global_func("runtime.config_threadpool")
        self.configured = threading.local()

    def __call__(self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Run the module. Raises what the runtime raises."""
        if not getattr(self.configured, "done", False):  # TVM has a pool of workers for each thread that calls it
            self.configure(_ONE_THREAD_A_CORE, self.threads)
            self.configured.done = True
        try:
            machine = self.idle.pop()
        except IndexError:
            machine = self.made()
        found = machine["main"](*(self.shared(each.detach()) for each in inputs))
        for result, each in zip(results, found, strict=True):
            result.copy_(from_dlpack(each))
        self.idle.append(machine)


MEMBER = register_member(
    Member(
        name="tvm",
        build=build,
        requires=(*FOREIGN, on_cpu, package("tvm", "tvm")),
        cost=5.0,
        rank=90,
        isolated=True,
        makes_constants=True,
    )
)
