"""The frame hook, as the rest of the package speaks to it."""

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
    """Asked about a function that is being called and has no entry that fits.

    None lets the function run as it is, this time. An Entry is kept with the function's code, and runs if its guards
    hold. An exception is raised from the call. An attribute `owner_id` of the callback (0 if there is none) says whose
    entries may serve it. While it runs, no callback is on in its thread. Its attribute `shield`, if it has one, is used
    where another frame hook is in too: `shield(callback)` is called in its place, out of that hook's sight.
    """

    def __call__(
        self, frame: Frame, cache_entry: Entry | None, frame_state: dict[str, Any], /
    ) -> Entry | BaseException | None: ...


Setting: TypeAlias = FrameCallback | Literal[False] | None
"""What a thread can have on: a callback; False, what is cached and nothing new; None, nothing at all."""
