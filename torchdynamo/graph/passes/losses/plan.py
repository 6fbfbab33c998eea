"""Say in how many chunks a loss is computed: a number, a size of memory, or what halves the memory for little time."""

from __future__ import annotations

from typing import NamedTuple

SMALL = 2**26
"""Logits of fewer bytes are left as they are, if nobody says how many chunks there are to be."""
MOST_CHUNKS = 16
"""Chunks by themselves: each adds to the whole gradient of the weight."""


class LossPlan(NamedTuple):
    """Chunks that are asked for: a number of them, or of bytes that logits take at once; neither: as fits."""

    chunks: int | None = None
    bytes: int | None = None

    def rows_at_once(self, rows: int, row_bytes: int, weight_bytes: int) -> int:
        """Return how many rows make a chunk; all of them where chunks gain nothing."""
        if self.chunks is not None:
            return -(-rows // min(self.chunks, max(rows, 1)))
        whole = rows * row_bytes
        if self.bytes is None and whole < SMALL:
            return rows
        target = max(weight_bytes // 2, SMALL // 2) if self.bytes is None else self.bytes
        chunks = 1
        while whole > chunks * target and chunks < rows and (self.bytes is not None or chunks < MOST_CHUNKS):
            chunks *= 2
        return -(-rows // chunks)
