"""The warning when a function has been compiled as often as it may be."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from torchdynamo.capture.source import Guard, Roots
from torchdynamo.codegen import resume
from torchdynamo.guards.explain import first_failure
from torchdynamo.report.recompiles import remedy


def limit_text(code: CodeType, guards: Sequence[Guard], roots: Roots, limit: int, dynamic: bool | None) -> str:
    """Names the function, the guard that kept failing, and what to do."""
    failure = first_failure(guards, roots)
    what = f" What kept changing: {failure}." if failure else ""
    users = resume.origin(code)
    return (
        f"{users.code.co_name} ({users.code.co_filename}:{users.line}) was compiled {limit} times, which is "
        f"torchdynamo.config.cache_size_limit; other calls of it now run eagerly.{what} "
        f"{remedy(failure, roots, dynamic)}"
    )
