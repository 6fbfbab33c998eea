"""Tell a listener, or raise an error, when no entry of a function serves a call."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import NamedTuple

from torchdynamo import config
from torchdynamo.cache.entries import entries_of
from torchdynamo.codegen import resume
from torchdynamo.core.source import Roots
from torchdynamo.errors import RecompileError
from torchdynamo.guards.explain import first_failure


class GuardFail(NamedTuple):
    """An entry of a function that does not serve a call: the failed guard, and the function's code."""

    reason: str
    orig_code: CodeType


def announce(code: CodeType, owner_id: int, roots: Roots, listener: Callable[[GuardFail], object] | None) -> None:
    """Report to the listener, the newest entry first, which guard fails.

    Raises RecompileError under `config.error_on_recompile`.
    """
    if listener is None and not config.error_on_recompile:
        return
    reasons = [str(first_failure(entry.guards, roots)) for entry in reversed(entries_of(code, owner_id))]
    users = resume.origin(code)
    for reason in reasons if listener is not None else ():
        listener(GuardFail(reason, users.code))  # type: ignore[misc]
    if reasons and config.error_on_recompile:
        where = f"{users.code.co_name} ({users.code.co_filename}:{users.line})"
        raise RecompileError("\n    ".join([f"{where} would be compiled again:", *reasons]))
