"""Decide whether a function may have another version: the limit of entries, and whether they pay for themselves."""

from __future__ import annotations

from types import CodeType

from torchdynamo import config
from torchdynamo.cache import budget
from torchdynamo.cache.entries import CompiledEntry, entries_of
from torchdynamo.codegen import resume
from torchdynamo.core.source import Roots
from torchdynamo.errors import CacheLimitWarning, FailOnRecompileLimitHit
from torchdynamo.hook import frames
from torchdynamo.hook.user_warnings import warn_user
from torchdynamo.report import recompiles
from torchdynamo.report.limit import limit_text, unprofitable_text
from torchdynamo.specialization import CompilerSettings


def over_limit(code: CodeType, compiler: CompilerSettings, roots: Roots) -> bool:
    """Return whether the function has as many entries as allowed; warn the first time, and ask less and less often.

    Raises FailOnRecompileLimitHit under `fullgraph` and `config.fail_on_recompile_limit_hit`.
    """
    known = entries_of(code, compiler.owner_id)
    if len(known) < (compiler.recompile_limit or config.cache_size_limit):
        return False
    if compiler.fullgraph or config.fail_on_recompile_limit_hit:
        raise FailOnRecompileLimitHit(text_of_limit(code, known[-1], roots))
    if budget.miss(code, compiler.owner_id) == 1:
        report_limit(code, text_of_limit(code, known[-1], roots))
    return True


def affordable(code: CodeType, compiler: CompilerSettings, roots: Roots) -> bool:
    """Return whether another entry may pay for itself; log the first refusal."""
    if compiler.fullgraph:
        return True
    refused = budget.refusal(code, resume.origin(code).code, compiler.owner_id)
    known = entries_of(code, compiler.owner_id)
    if refused is not None and refused.times == 1 and known and recompiles.wanted():
        guards, versions, calls = known[-1].guards, refused.versions, refused.calls
        recompiles.say(unprofitable_text(code, guards, roots, versions, calls, compiler.dynamic))
    return refused is None


def text_of_limit(code: CodeType, newest: CompiledEntry, roots: Roots) -> str:
    """Return a message that says which limit a function has reached, and why."""
    compiler = newest.compiler
    return limit_text(code, newest.guards, roots, compiler.recompile_limit, compiler.dynamic)


def report_limit(code: CodeType, text: str) -> None:
    """Report that a function has reached its limit: by a warning, or in the log for functions of libraries."""
    if frames.is_library(resume.origin(code).code):
        recompiles.say(text)
    else:
        warn_user(text, CacheLimitWarning)
