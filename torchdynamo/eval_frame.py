"""The frame hook for users with a callback of their own.

    def callback(frame, cache_entry, frame_state):
        new_code = rewrite(frame.f_code)                                  # None: let this call run as it is
        return GuardedCode(new_code, lambda f_locals: f_locals["n"] > 0)  # kept, and run while the check says yes

    prior = set_eval_frame(callback)
    try:
        ...                         # each function called here that has no code for its arguments is shown to callback
    finally:
        set_eval_frame(prior)

The callback belongs to the thread, and is inactive while it runs itself and while a check runs. A frame has `f_code`,
`f_locals` (the arguments by name), `f_globals`, `f_builtins`, `f_func` and `closure`, for as long as the callback
runs. `cache_entry` is what was cached last for the same code, or None; `frame_state` is a dict that stays
with the code.

Code runs in place of other code only if nobody who calls the function can tell: it must take the same arguments, under
the same names and in the same order, have the same free variables and be of the same kind (function, generator,
coroutine). Otherwise the call raises ValueError. An error in a callback or in a check is reported through
`sys.unraisablehook`, and the function runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from torchdynamo.hook import install
from torchdynamo.hook.install import Entry, Frame, FrameCallback, callback_active, set_eval_frame

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Entry",
    "Frame",
    "FrameCallback",
    "GuardedCode",
    "cache_entries",
    "callback_active",
    "code_of",
    "set_eval_frame",
    "skip_code",
]


class GuardedCode(Entry):
    """Code that runs in place of a function's own whenever `check_fn(f_locals)` is true."""

    __slots__ = ()

    def __new__(cls, code: CodeType, check_fn: Callable[[dict[str, Any]], object]) -> Self:
        return super().__new__(cls, code, check_fn)

    @property
    def check_fn(self) -> Any:
        return self.check


_STEPS = ("__wrapped__", "_orig_mod", "__func__", "func", "forward", "__call__")


def code_of(fn: Any) -> CodeType:
    """Return the code object that a call of `fn` runs.

    fn: a function, method, compiled function, partial, module, or code object. Raises TypeError for others.
    """
    seen = fn
    for _ in range(32):
        if type(seen) is CodeType:
            return seen
        code = getattr(seen, "__code__", None)
        if type(code) is CodeType:
            return code
        step = next((name for name in _STEPS if hasattr(seen, name)), None)
        if step is None:
            break
        seen = getattr(seen, step)
    raise TypeError(f"{fn!r} is not a Python function, nor does it wrap one")


def cache_entries(fn: Any) -> list[Entry]:
    """Return a function's entries, the oldest first: objects with `.code`, `.guards`, `.graph` and `.hits`."""
    return install.cache_entries(code_of(fn))


def skip_code(fn: Any, reason: object = "skipped by the user") -> None:
    """Never call callbacks for this function again. Its existing entries stay in use."""
    install.skip_code(code_of(fn), reason)
