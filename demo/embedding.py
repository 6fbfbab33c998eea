"""Sentence embeddings with a real model; `demo/sentences.py` shows more of the same."""

from __future__ import annotations

import torch
from contest import Compile, Program, Run

BATCHES, BATCH = 4, 16


def prepare(compile: Compile) -> Run:
    """Load the model; a run embeds batches of sentences of different lengths."""
    from encoder import SentenceEncoder, read_sentences  # it brings transformers

    encoder = SentenceEncoder()
    batches = encoder.batches(read_sentences()[: BATCHES * BATCH])
    compiled = compile(encoder)
    return lambda: torch.cat([compiled(batch.ids, batch.mask) for batch in batches])


PROGRAM = Program(
    title=f"Sentence embeddings: all-MiniLM-L6-v2, {BATCHES * BATCH} sentences in {BATCHES} batches",
    about="A real model whose kernels take the time: both compilers give Inductor the same graph.",
    unit="sentence",
    units=BATCHES * BATCH,
    runs=1,
    prepare=prepare,
)
