"""Guards asked both ways: what their kinds say in Python, and what the native program says, which must be one."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from torchdynamo import _native
from torchdynamo.core.source import Guard, Roots, Source, local
from torchdynamo.guards.kind import MISSING, read
from torchdynamo.guards.kinds import KINDS
from torchdynamo.guards.program import complete, lower

G = Guard
X = local("x")


def frame_of_x(x: Any = None, y: Any = None) -> None:
    """Whose frame most tests guard."""


def roots_of(function: Callable[..., Any], /, **arguments: Any) -> Roots:
    """The frame a call of the function would make."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return Roots(arguments, function.__globals__, vars(builtins), cells)


class Guarded:
    """Guards of a call, made while they hold. Asked again later, both readings must agree."""

    def __init__(
        self,
        guards: Sequence[Guard],
        function: Callable[..., Any] = frame_of_x,
        /,
        bound: Sequence[Source] = (),
        settled: bool = True,
        **arguments: Any,
    ) -> None:
        self.roots = roots_of(function, **arguments)
        self.guards = complete(guards, self.roots) if settled else list(guards)
        self.program: _native.GuardProgram = lower(self.guards, bound, function.__code__)

    def native(self) -> bool:
        roots = self.roots
        return self.program.check(roots.locals, roots.globals, roots.builtins, roots.closure)

    def python(self) -> bool:
        return all(self.one(guard) for guard in self.guards)

    def one(self, guard: Guard) -> bool:
        value = read(guard.source, self.roots)
        if value is MISSING and guard.kind != "UNBOUND":
            return False
        return KINDS[guard.kind].holds(value, guard.arg, self.roots)

    def holds(self) -> bool:
        """What both say, natively twice: the second time from what the first remembered."""
        first, python, second = self.native(), self.python(), self.native()
        assert first is python, f"native says {first}, Python {python}; {self.program.failed}"
        assert second is first
        return first

    def fetch(self) -> tuple[Any, ...] | None:
        roots = self.roots
        return self.program.fetch(roots.locals, roots.globals, roots.builtins, roots.closure)


def agree(guard: Guard, roots: Roots) -> bool:
    """Whether a guard, taken as it is, holds for a frame: both readings."""
    asked = Guarded([guard], settled=False)
    asked.roots = roots
    return asked.holds()
