"""Say in how many chunks a loss is computed: a number, a size of memory, or what halves the memory for little time."""

from __future__ import annotations

from typing import NamedTuple

SMALL = 2**26
"""Logits of fewer bytes are left as they are, if nobody says how many chunks there are to be."""
MOST_CHUNKS = 16
"""Chunks by themselves: each adds to the whole gradient of the weight."""
ROWS_ON_GPU = 2048
"""Fewest rows of a chunk on a GPU: adding to the gradient takes 5% of the time of such a chunk's products."""


class LossPlan(NamedTuple):
    """Chunks that are asked for: a number of them, or of bytes that logits take at once; neither: as fits."""

    chunks: int | None = None
    bytes: int | None = None

    def rows_at_once(self, rows: int, row_bytes: int, weight_bytes: int, device: str = "cpu") -> int:
        """Return how many rows make a chunk; all of them where chunks gain nothing."""
        if self.chunks is not None:
            return -(-rows // min(self.chunks, max(rows, 1)))
        whole = rows * row_bytes
        if self.bytes is not None:
            target, most = self.bytes, 2 * rows
        elif whole < SMALL:
            return rows
        elif device == "cpu":
            target, most = max(weight_bytes // 2, SMALL // 2), MOST_CHUNKS
        else:
            target, most = SMALL // 2, min(rows // ROWS_ON_GPU, MOST_CHUNKS)
        chunks = 1
        while whole > chunks * target and 2 * chunks <= most:
            chunks *= 2
        return -(-rows // chunks)
