"""Limit the number of recordings of a graph, and collect why calls ran without one."""

from __future__ import annotations

from collections import Counter

from torchdynamo.errors import RecordingError

MOST_RECORDINGS = 8  # of one graph, at different sizes or inputs; calls for others run plain
WATCHED = 2  # calls that run plain before the one that records

# Reasons for calls without a recording. The first two are the course of things, and never an error.
WATCHING = "the first calls are watched"
INSIDE_CAPTURE = "somebody is capturing"
BUSY = "another thread was replaying"
OTHER_STREAM = "on another stream than recorded"
KEPT = "the backward keeps what was saved (retain_graph=True)"
HOOKED = "hooks on saved tensors are active"
PENDING = "too many forwards before their backwards"
NOT_OURS = "its forward ran without a recording"
OVERWRITES = "a result that was handed out uncopied is alive"
ALIASED = "an input that is written to shares memory with another"
TOO_MANY = "the limit of recordings is reached"
REFUSED = "recording failed"
ORDINARY = frozenset({WATCHING, INSIDE_CAPTURE})


class Ledger:
    """Count the calls of one captured graph, forward and backward: recorded, replayed, run plain and why.

    limit: number of recordings of each of the two. required: raise RecordingError where a call would be without one.
    """

    def __init__(self, limit: int = MOST_RECORDINGS, required: bool = False) -> None:
        self.limit, self.required = limit, required
        self.refused: dict[str, str] = {}  # forward, backward -> why it is never recorded
        self.recordings: Counter[str] = Counter()
        self.replays: Counter[str] = Counter()
        self.plain: Counter[tuple[str, str]] = Counter()

    def refuse(self, kind: str, why: str) -> None:
        """Note that a graph is never recorded. Raises RecordingError if recordings are required."""
        self.refused[kind] = why
        if self.required:
            raise RecordingError(f"no CUDA graph of the {kind}, which option 'cudagraphs' requires: {why}")

    def count_plain(self, kind: str, why: str) -> None:
        """Count a call without a recording. Raises RecordingError if that is against the options."""
        self.plain[kind, why] += 1
        if self.required and why not in ORDINARY:
            raise RecordingError(f"a call of the {kind} cannot replay a CUDA graph, which is required: {why}")

    def describe(self) -> list[str]:
        """Return a line for the forward and one for the backward: recordings, replays, and why calls ran plain."""
        kinds = dict.fromkeys([*self.refused, *self.recordings, *(kind for kind, _ in self.plain)])
        return [self._line(kind) for kind in kinds]

    def _line(self, kind: str) -> str:
        if kind in self.refused:
            return f"{kind}: not recorded, because {self.refused[kind]}"
        whys = [f"{count} ({why})" for (which, why), count in self.plain.items() if which == kind]
        plain = f", plain calls: {', '.join(whys)}" if whys else ""
        recordings, replays = self.recordings[kind], self.replays[kind]
        return f"{kind}: {recordings} recording{'s'[: recordings != 1]}, {replays} replay{'s'[: replays != 1]}{plain}"
