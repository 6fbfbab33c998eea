"""Compile models of Hugging Face's transformers with their eager attention: is it replaced, and are results equal?

    python benchmarks/attention.py [--quick] [family ...]

For each family, a small random model: how many layers have attention as one operator in the graph that Inductor gets
(inference; forward and backward in training), and the error against float64 over eager's. `--quick` runs what
AOTAutograd has made operator by operator instead of compiling it.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from functorch.compile import make_boxed_func
from torch._functorch.aot_autograd import aot_module_simplified

import torchdynamo
from torchdynamo.backends.handoff import handoff
from torchdynamo.backends.rewrites import outcome_of, rewritten

DECODERS = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 99,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GROUPED = {**DECODERS, "num_key_value_heads": 2}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {  # family -> model's class without "Model" or head, configuration
    "bert": ("Bert", DECODERS),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64}),
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 8}),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 16}),
    "gemma": ("Gemma", {**GROUPED, "head_dim": 16}),
    "gpt_neox": ("GPTNeoX", DECODERS),
    "opt": ("OPT", {**DECODERS, "ffn_dim": 64, "word_embed_proj_dim": 64}),
    "bloom": ("Bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 99}),
    "falcon": ("Falcon", {**DECODERS, "alibi": False}),
    "phi": ("Phi", DECODERS),
    "t5": ("T5Encoder", {"d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}),
    "vit": ("ViT", {**DECODERS, "image_size": 32, "patch_size": 8}),
}
SETTINGS = ("attention_dropout", "hidden_dropout", "dropout", "dropout_rate", "attn_pdrop", "resid_pdrop", "embd_pdrop")
SETTINGS += ("hidden_dropout_prob", "attention_probs_dropout_prob", "activation_dropout")
Run = Callable[..., Any]


class Quick:
    """A backend that keeps what AOTAutograd makes of rewritten graphs, and runs it operator by operator."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.Graph] = []
        self.captured: list[torch.fx.GraphModule] = []

    def keep(self, gm: torch.fx.GraphModule, _: Any) -> Run:
        self.graphs.append(gm.graph)
        made: Run = make_boxed_func(gm.forward)
        return made

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Run:
        self.captured.append(gm)
        with handoff(gm, inputs) as ready:
            rewritten(ready.module, gm, inputs, {}, by_contents=True)
            made = aot_module_simplified(ready.module, ready.inputs, fw_compiler=self.keep, bw_compiler=self.keep)
        return ready.as_captured(made)


def operators(graphs: list[torch.fx.Graph]) -> list[int]:
    """Return how often each graph calls a fused operator."""
    return [sum("_scaled_dot_product" in str(node.target) for node in graph.nodes) for graph in graphs]


def model_of(family: str) -> Any:
    """Return a small random model whose attention is written out."""
    import transformers

    name, settings = FAMILIES[family]
    config_class = getattr(transformers, f"{name.removesuffix('Encoder')}Config")
    known = {each: 0.0 for each in SETTINGS if hasattr(config_class(), each)}
    config = config_class(**settings, **known, attn_implementation="eager", use_cache=False)
    torch.manual_seed(0)
    return getattr(transformers, f"{name}Model")(config).eval()


def inputs_of(family: str) -> dict[str, torch.Tensor]:
    """Return the inputs of a call: an image, or two sequences of which one is padded."""
    torch.manual_seed(1)
    if family == "vit":
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    return {"input_ids": torch.randint(1, 99, (2, 12)), "attention_mask": mask}


def outcome(model: Any, run: Run, inputs: dict[str, torch.Tensor], train: bool) -> list[torch.Tensor]:
    """Return the result, and in training the gradients."""
    dtype = next(model.parameters()).dtype
    given = {name: each.to(dtype) if each.is_floating_point() else each for name, each in inputs.items()}
    model.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(train):
        out = run(**given).last_hidden_state
        seen = given["attention_mask"].bool() if "attention_mask" in given else torch.ones(out.shape[:2]).bool()
        if train:
            out[seen].square().sum().backward()
    found = [each.grad for each in model.parameters() if each.grad is not None]
    return [out[seen].detach().double(), *(each.double().clone() for each in found)]


def error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """Return the root mean square of the differences."""
    ones, others = (torch.cat([each.flatten() for each in many]) for many in (found, exact))
    return float((ones - others).square().mean().sqrt())


def row(family: str, train: bool, quick: bool) -> str:
    """Measure one family, and return its line of the table."""
    torchdynamo.reset()
    model, inputs, kept = model_of(family), inputs_of(family), Quick()
    seen: list[torch.fx.Graph] = kept.graphs
    options = {"post_grad_custom_pre_pass": seen.append, "fx_graph_cache": False}
    compiled = torchdynamo.compile(model, backend=kept) if quick else torchdynamo.compile(model, options=options)
    found = outcome(model, compiled, inputs, train)
    eager = outcome(model, model, inputs, train)
    exact = outcome(model.double(), model, inputs, train)
    ratio = error(found, exact) / error(eager, exact)
    layers = sum(len(outcome_of(each).found) for each in kept.captured if outcome_of(each)) if quick else "-"
    line = f"{family:10} {'training' if train else 'inference':10} {operators(seen)!s:14} {layers!s:>6} {ratio:8.2f}"
    missed = {line for each in kept.captured for line in (outcome_of(each).lines() if outcome_of(each) else ())}
    return "\n".join([line, *(f"    {each}" for each in sorted(missed) if quick)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'family':10} {'':10} {'operators':14} {'places':>6} {'error':>8}")
    for family in arguments.families:
        for train in (False, True):
            print(row(family, train, arguments.quick), flush=True)


if __name__ == "__main__":
    main()
