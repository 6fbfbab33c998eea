"""Sentence embeddings with a real model; `demo/sentences.py` shows more of the same."""

from __future__ import annotations

from contest import Compile, Program, Run

SENTENCES = 16  # one batch, so that one compile is enough; a batch of another length would need one more


def prepare(compile: Compile) -> Run:
    """Load the model; a run embeds a batch of sentences."""
    from encoder import SentenceEncoder, read_sentences  # it brings transformers

    encoder = SentenceEncoder()
    (batch,) = encoder.batches(read_sentences()[:SENTENCES])
    compiled = compile(encoder)
    return lambda: compiled(batch.ids, batch.mask)


PROGRAM = Program(
    title=f"Sentence embeddings: all-MiniLM-L6-v2, {SENTENCES} sentences at once",
    about="A real model, whose kernels take the time: a compiler's own time hardly counts.",
    unit="sentence",
    units=SENTENCES,
    runs=1,
    prepare=prepare,
)
