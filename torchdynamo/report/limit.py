"""Say that a function is not compiled any more: it has reached its limit of entries, or these are hardly used."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from torchdynamo import config
from torchdynamo.codegen import resume
from torchdynamo.core.reasons import explained
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.explain import first_failure
from torchdynamo.report.recompiles import remedy


def limit_text(
    code: CodeType, guards: Sequence[Guard], roots: Roots, own_limit: int | None, dynamic: bool | None
) -> str:
    """Return a message that names the function, the guard that kept failing, and what to do.

    own_limit: the `recompile_limit` that the function was compiled with, if it has one.
    """
    limit = own_limit or config.cache_size_limit
    which = "its recompile_limit" if own_limit else "torchdynamo.config.cache_size_limit"
    text = (
        f"{named(code)} has reached its limit of {limit} versions ({which}); "
        f"calls that fit none of them run eagerly.{reason(guards, roots, dynamic)}"
    )
    return explained(text, "cache limit")


def unprofitable_text(
    code: CodeType, guards: Sequence[Guard], roots: Roots, versions: int, calls: int, dynamic: bool | None
) -> str:
    """Return a message for a function whose entries are hardly used: the failing guard, and what to do."""
    text = (
        f"{named(code)} was compiled {versions} times, and its versions served {calls} more calls: compiling costs "
        f"more than it saves, so other calls of it run eagerly for some time.{reason(guards, roots, dynamic)}"
    )
    return explained(text, "seldom used")


def reason(guards: Sequence[Guard], roots: Roots, dynamic: bool | None) -> str:
    """Return a sentence on what keeps changing and what to do about it."""
    failure = first_failure(guards, roots)
    what = f" What kept changing: {failure}." if failure else ""
    return f"{what} {remedy(failure, roots, dynamic)}"


def named(code: CodeType) -> str:
    """Return the name and place of the function that code belongs to; it may be a continuation."""
    users = resume.origin(code)
    return f"{users.code.co_name} ({users.code.co_filename}:{users.line})"
