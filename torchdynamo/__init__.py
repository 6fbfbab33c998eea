"""A just-in-time compiler for unmodified PyTorch programs.

    @torchdynamo.compile
    def f(x, y): ...

See `compile`, `optimize`, `run`, `disable` and `explain`.
"""

from __future__ import annotations

import os
import sys

from torchdynamo.cli import doctor

if doctor.is_asked(sys.argv, sys.orig_argv):  # before what it checks is imported, since that may fail
    sys.exit(doctor.main(sys.argv[2:]))

from torchdynamo import hook  # noqa: F401 - first: it loads the extension, or says why it does not load and what to do

# isort: split

from torchdynamo import config, distributed, eval_frame, exc, optimizations
from torchdynamo.api import (
    allow_in_graph,
    assume_constant_result,
    compile,
    compile_in_place,
    disable,
    disallow_in_graph,
    explain,
    optimize,
    reset,
    run,
    skip,
)
from torchdynamo.backends import list_backends, register_backend
from torchdynamo.backends.ensemble.record import record
from torchdynamo.capture.torch.dynamic_marks import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
from torchdynamo.core.marks import graph_break, is_compiling
from torchdynamo.drop_in import install
from torchdynamo.exporting.api import ExportResult, export
from torchdynamo.optimized_module import OptimizedModule
from torchdynamo.report import logs, saving
from torchdynamo.report.logs import set_logs
from torchdynamo.report.summary import Report, report
from torchdynamo.tuning.search import tune

set_logs(logs.from_environment(os.environ))
saving.follow_environment(os.environ)
__version__ = "1.0.0"
__all__ = [
    "ExportResult",
    "OptimizedModule",
    "Report",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_in_place",
    "config",
    "disable",
    "disallow_in_graph",
    "distributed",
    "eval_frame",
    "exc",
    "explain",
    "export",
    "graph_break",
    "install",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "optimizations",
    "optimize",
    "record",
    "register_backend",
    "report",
    "reset",
    "run",
    "set_logs",
    "skip",
    "tune",
]
