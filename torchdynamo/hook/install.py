"""The interface of the frame hook for the rest of the package."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from torchdynamo._native import (
    Compiled,
    CompiledGraph,
    Entry,
    Frame,
    cache_entries,
    callback_active,
    check_compatible,
    clear_all,
    clear_code,
    drop_owner,
    hook_is_in,
    set_eval_frame,
    skip_code,
    skip_reason,
)

__all__ = [
    "Compiled",
    "CompiledGraph",
    "Entry",
    "Frame",
    "FrameCallback",
    "Setting",
    "cache_entries",
    "callback_active",
    "check_compatible",
    "clear_all",
    "clear_code",
    "drop_owner",
    "hook_is_in",
    "set_eval_frame",
    "skip_code",
    "skip_reason",
]


class FrameCallback(Protocol):
    """A callback that is asked about a function call that no entry serves.

    None runs the call as it is, this time. An Entry is kept with the function's code and runs if its guards hold. An
    exception is raised from the call. The callback's attribute `owner_id` (0 if missing) selects the entries that may
    serve it. While it runs, no callback is active in its thread. If another frame hook is installed too, the callback's
    attribute `shield`, if it has one, is called as `shield(callback)` in its place, unseen by that hook.
    """

    def __call__(
        self, frame: Frame, cache_entry: Entry | None, frame_state: dict[str, Any], /
    ) -> Entry | BaseException | None: ...


Setting: TypeAlias = FrameCallback | Literal[False] | None
"""A thread's setting: a callback; False for existing entries only; None for no hook at all."""
