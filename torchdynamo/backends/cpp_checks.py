"""Let checks of indices in Inductor's CPU kernels raise from any OpenMP thread.

An exception that leaves a loop shared among OpenMP threads ends the process. So such loops store the exception, and the
kernel rethrows it when all threads are done.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

SHARED = re.compile(r" *#pragma omp for(?: collapse\((\d+)\))?")
SIGNATURE = re.compile(r'extern "C".*?\)\n\{\n', re.DOTALL)
KEPT = "torchdynamo_kept"
CATCH = f'}} catch (...) {{ _Pragma("omp critical") {KEPT} = std::current_exception(); }}'


def raising_at_the_end(codegen_group: Callable[..., str]) -> Callable[..., str]:
    """Wrap Inductor's `codegen_group`, which writes a kernel, so that the kernel stores and rethrows."""

    def write(group: Any, *args: Any, **kwargs: Any) -> str:
        return keep_exceptions(codegen_group(group, *args, **kwargs))

    return write


def keep_exceptions(source: str) -> str:
    """Return the C++ source of a kernel whose parallel loops store exceptions and rethrow them at its end."""
    if "TORCH_CHECK(" not in source or "#pragma omp parallel" not in source:
        return source
    lines: list[str] = []
    ends: list[str] = []  # of loops that are open: the lines that close them
    depth = None  # how many loops are to come before the body
    for line in source.splitlines():
        if ends and line == ends[-1]:
            lines.append(CATCH)
            ends.pop()
        lines.append(line)
        if (found := SHARED.match(line)) is not None:
            depth = int(found[1] or 1)
        elif depth and line.strip() == "{":
            depth -= 1
            if not depth:
                lines.append("try {")
                ends.append(line.replace("{", "}"))
    text = "\n".join(lines)
    end = text.rindex("}")
    text = f"{text[:end]}    if ({KEPT}) std::rethrow_exception({KEPT});\n{text[end:]}\n"
    return SIGNATURE.sub(lambda found: f"{found[0]}    std::exception_ptr {KEPT};\n", text, count=1)
