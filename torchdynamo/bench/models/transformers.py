"""Language models of Hugging Face's transformers, of some layers each."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import nn

from torchdynamo.bench.models import add

TOKENS = 64


class FirstResult(nn.Module):
    """Takes token ids, and returns the first result of a model: its hidden states or logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids)[0]


def make(model: str, config: str, settings: dict[str, Any]) -> nn.Module:
    """Return a model with random weights. Raises ImportError without transformers."""
    package = importlib.import_module("transformers")
    return FirstResult(getattr(package, model)(getattr(package, config)(**settings)))


def tokens(batch: int) -> tuple[torch.Tensor, ...]:
    """Return token ids that every vocabulary has."""
    return (torch.randint(0, 1000, (batch, TOKENS)),)


BERT = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
DECODER = {**SMALL, "num_key_value_heads": 2, "use_cache": False, "vocab_size": 8000}

ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "minilm": ("BertModel", "BertConfig", BERT),
    "bert_base_4": ("BertModel", "BertConfig", {"num_hidden_layers": 4}),
    "roberta_small": ("RobertaModel", "RobertaConfig", SMALL),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {"n_layers": 4, "dim": 384, "hidden_dim": 1536, "n_heads": 6},
    ),
    "electra_small": ("ElectraModel", "ElectraConfig", {"num_hidden_layers": 6}),
    "albert": ("AlbertModel", "AlbertConfig", {**SMALL, "embedding_size": 128}),
    "mpnet": ("MPNetModel", "MPNetConfig", SMALL),
    "gpt2_6": ("GPT2Model", "GPT2Config", {"n_layer": 6, "use_cache": False}),
    "gpt_neox": ("GPTNeoXModel", "GPTNeoXConfig", {**SMALL, "use_cache": False, "vocab_size": 8000}),
    "opt": (
        "OPTModel",
        "OPTConfig",
        {"hidden_size": 256, "num_hidden_layers": 4, "ffn_dim": 1024, "num_attention_heads": 4, "use_cache": False},
    ),
    "llama_small": ("LlamaModel", "LlamaConfig", DECODER),
    "mistral_small": ("MistralModel", "MistralConfig", DECODER),
    "qwen2_small": ("Qwen2Model", "Qwen2Config", DECODER),
    "t5_encoder": ("T5EncoderModel", "T5Config", {"num_layers": 4, "d_model": 256, "d_ff": 1024, "num_heads": 4}),
}

for _name, _row in ROWS.items():
    add(_name, functools.partial(make, *_row), tokens)
