"""Apply what a program tells torch.compile as a whole: its stance and its settings.

Under the stance `force_eager` (`torch.compiler.set_stance`), the hook runs no compiled code and calls nobody; the
others concern the next compilation. Settings of torch.compile that have no effect are named in a warning, with ours.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from torchdynamo.capture.vm import interop, torch_settings
from torchdynamo.codegen import dynamism_across_breaks, resume
from torchdynamo.core.learned import record
from torchdynamo.core.source import Roots
from torchdynamo.errors import RecompileError, TorchDynamoWarning
from torchdynamo.guards.constants import same_constant
from torchdynamo.hook.user_warnings import warn_user

C = TypeVar("C", bound=Any)
LATER = ("eager_then_compile", "aot_eager_then_compile")


def chosen(compiler: C, compiler_for: Callable[..., C]) -> C:
    """Return the compiler that works in place of one: that of the stance's backend, if the stance has one.

    compiler_for: makes the compiler of a backend, and raises UnknownBackend if there is none.
    """
    backend = interop.stance().backend
    if backend is None:
        return compiler
    return compiler_for(backend, fullgraph=compiler.fullgraph, dynamic=compiler.given_dynamic)


def may_compile(code: CodeType, roots: Roots, where: str, failures: Callable[[], list[Any]]) -> bool:
    """Return whether the stance allows a function to be compiled now, for a frame that begins with `roots`.

    where: the function, for messages. failures: returns the failing guards of its entries. Raises RecompileError under
    the stance "fail_on_recompile".
    """
    stance = interop.stance()
    if stance.name == "fail_on_recompile":
        said = f"{where} would be compiled, and the stance is 'fail_on_recompile'"
        raise RecompileError("\n    ".join([said, *map(str, failures())]))
    if stance.name in LATER and not has_run(code, roots):
        return False
    return stance.name in ("default", *LATER)


def has_run(code: CodeType, roots: Roots) -> bool:
    """Return whether a function has run once under this stance; then numbers that differ now are said to vary."""
    learned = record(resume.origin(code).code)
    now = dynamism_across_breaks.numbers_in(roots)
    before, learned.ran_with = learned.ran_with, {} if learned.ran_with is not None else now
    if before:
        differing = [
            source
            for source, number in before.items()
            if type(now.get(source)) is type(number) and not same_constant(now[source], number)
        ]
        dynamism_across_breaks.record_sources(code, differing)
    return before is not None


_told: set[str] = set()


def warn_of_settings() -> None:
    """Warn about each setting that was made for torch.compile, once."""
    for name, here in torch_settings.settings_of_torch().items():
        if name not in _told:
            _told.add(name)
            instead = f"what it is called here is {here}" if here else "it has no meaning here"
            warn_user(f"{name} was set, which is a setting of torch.compile: {instead}", TorchDynamoWarning)
