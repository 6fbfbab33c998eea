"""Text from a model whose cache of keys and values grows by one token in each step: at most three compiles.

The prompt is one, the first token after it another (the sizes are constants), the third takes any length of the cache.
Needs `transformers`.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import torchdynamo

TOKENS = 64


def generate(run: Any, prompt: torch.Tensor) -> torch.Tensor:
    """The likeliest token, over and over."""
    cache, ids, made = DynamicCache(), prompt, []
    with torch.no_grad():
        for _ in range(TOKENS):
            logits = run(input_ids=ids, past_key_values=cache, use_cache=True).logits
            ids = logits[:, -1:].argmax(-1)
            made.append(ids)
    return torch.cat(made, 1)


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    ).eval()
    graphs: list[torch.fx.GraphModule] = []

    def counting(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(model, backend=counting)
    for batch, length in ((2, 11), (1, 5), (4, 23)):
        prompt = torch.randint(0, 512, (batch, length))
        same = torch.equal(generate(compiled, prompt), generate(model, prompt))
        print(f"{batch} prompts of {length}: {TOKENS} tokens each, as in eager: {same}; compiles so far: {len(graphs)}")


if __name__ == "__main__":
    main()
