"""Measure what regions save in the first call, and cost or gain in later ones, beside graphs compiled as a whole.

    regions.py cold bert:12 llama:32 [--training]      CPU seconds of the first call, each in a process of its own
    regions.py steady bert:12:768 mixer:12:256         CPU milliseconds of a call, both versions in turns in one process

A model is NAME:LAYERS:HIDDEN; names: bert, llama, gpt2, vit (of transformers, with random weights), mixer. Imports, and
Inductor's own set-up, are not counted; caches on disk are off. One thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

WAYS = ("whole", "regions")
Call = Callable[[], torch.Tensor]


class Mixer(nn.Module):
    """A block of an MLP-mixer: one perceptron over tokens, one over channels."""

    def __init__(self, tokens: int, size: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.over_tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.over_channels = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


def network(name: str, layers: int, size: int) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """Return a model, and a function that calls it on an input of its kind."""
    torch.manual_seed(0)
    if name == "mixer":
        x = torch.randn(1, 64, size)
        return nn.Sequential(*(Mixer(64, size) for _ in range(layers))), lambda model: model(x)
    import transformers as hf

    heads, ids = max(1, size // 64), torch.randint(0, 1000, (1, 32 if size > 64 else 8))
    sizes = {"hidden_size": size, "num_hidden_layers": layers, "num_attention_heads": heads}
    wide = {**sizes, "intermediate_size": 4 * size}
    if name == "bert":
        model: Any = hf.BertModel(hf.BertConfig(vocab_size=1000, **wide))
        return model, lambda model: model(ids).last_hidden_state
    if name == "llama":
        model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=1000, num_key_value_heads=heads, **wide))
        return model, lambda model: model(ids, use_cache=False).logits
    if name == "gpt2":
        config = hf.GPT2Config(
            vocab_size=1000, n_layer=layers, n_embd=size, n_head=heads, bos_token_id=0, eos_token_id=0
        )
        return hf.GPT2LMHeadModel(config), lambda model: model(ids, use_cache=False).logits
    if name == "vit":
        picture = torch.randn(1, 3, 64, 64)
        model = hf.ViTModel(hf.ViTConfig(image_size=64, patch_size=16, **wide))
        return model, lambda model: model(picture).last_hidden_state
    raise SystemExit(f"there is no model {name!r}")


def compiled(spec: str, way: str, training: bool) -> tuple[Call, Call]:
    """Return a call of the compiled model, and one of the model in eager."""
    import torchdynamo

    name, layers, size = [*spec.split(":"), "64"][:3]
    model, call = network(name, int(layers), int(size))
    model.train(False)

    def step() -> torch.Tensor:
        result = call(model)
        if training:
            result.square().mean().backward()
        return result

    run = torchdynamo.compile(
        lambda: call(model), backend="inductor", dynamic=False, options={"regions": way == "regions"}
    )

    def fast() -> torch.Tensor:
        result: torch.Tensor = run()
        if training:
            result.square().mean().backward()
        return result

    return fast, step


def spent() -> tuple[float, float]:
    """Return the CPU seconds of this process, and of its children."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def one_cold(spec: str, way: str, training: bool) -> None:
    """Print the CPU seconds of the first call, and the largest difference from eager."""
    from torch import _inductor

    config: Any = _inductor.config
    warm_up, _ = compiled("mixer:1:16", "whole", training)
    fast, step = compiled(spec, way, training)
    with torch.set_grad_enabled(training), config.patch(force_disable_caches=True, compile_threads=1):
        warm_up()
        want = step()
        before = spent()
        got = fast()
        own, children = (after - begin for after, begin in zip(spent(), before, strict=True))
    print(f"{spec:16} {way:8} own {own:6.2f}  children {children:6.2f}  off by {(got - want).abs().max():.1e}")


def steady(spec: str, training: bool, seconds: float) -> None:
    """Print the median CPU milliseconds of a call of both versions, and their ratio in the same rounds."""
    calls = {way: compiled(spec, way, training)[0] for way in WAYS}
    rounds: dict[str, list[float]] = {way: [] for way in WAYS}
    with torch.set_grad_enabled(training):
        for call in calls.values():
            call(), call()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(rounds["whole"]) < 20:
            for way, call in calls.items() if len(rounds["whole"]) % 2 else reversed(calls.items()):
                begin = time.process_time()
                for _ in range(3):
                    call()
                rounds[way].append((time.process_time() - begin) / 3 * 1e3)
    whole, regions = (statistics.median(rounds[way]) for way in WAYS)
    ratio = statistics.median(b / a for a, b in zip(rounds["whole"], rounds["regions"], strict=True))
    print(
        f"{spec:16} whole {whole:8.3f} ms  regions {regions:8.3f} ms  ratio {ratio:.3f}  rounds {len(rounds['whole'])}"
    )


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cold", "one-cold", "steady"))
    parser.add_argument("models", nargs="+", metavar="NAME:LAYERS:HIDDEN")
    parser.add_argument("--training", action="store_true", help="with gradients, forward and backward")
    parser.add_argument("--way", choices=WAYS, default="regions")
    parser.add_argument("--seconds", type=float, default=20, help="for each model in steady state")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for spec in given.models:
        if given.what == "steady":
            steady(spec, given.training, given.seconds)
        elif given.what == "one-cold":
            one_cold(spec, given.way, given.training)
        else:
            more = ["--training"] if given.training else []
            for way in WAYS:
                subprocess.run([sys.executable, __file__, "one-cold", spec, "--way", way, *more], check=True)


if __name__ == "__main__":
    main()
