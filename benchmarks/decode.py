"""One token through 36 layers shaped as Qwen3's: what the host pays per token, here and under torch.compile.

    python benchmarks/decode.py                        # on the GPU if there is one; as wide as Qwen3-4B
    python benchmarks/decode.py --hidden 256 --device cpu
    python benchmarks/decode.py --backend inductor     # also the time per token of a loop with that backend
    python benchmarks/decode.py --first inductor       # the first call with that backend alone, Inductor's caches empty
    python benchmarks/decode.py --first inductor --again    # and in a second process, with what the first has stored

Weights are random and there is no cache: a token goes in, the likeliest next one comes out and goes in. *Overhead* is a
call whose graph computes nothing, over the call of an empty function: guards and the way to the graph. *Token* is the
wall time per token of such a loop with a real backend, which the GPU bounds where it is slower than the host; *host* is
the processor's time until all of a token's work is queued. Every figure is the better of seven rounds, each front end
in a process of its own, so that neither's hook is in the other's way. *First call* is that of a process that finds the
modules of PyTorch byte-compiled, as pip leaves them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

FRONT_ENDS = ("torchdynamo", "torch.compile")
ROUNDS = 7


class Norm(nn.Module):
    """Root mean square, as Qwen3 writes it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, groups: int, width: int) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, width
        self.q_proj = nn.Linear(hidden, heads * width, bias=False)
        self.k_proj = nn.Linear(hidden, groups * width, bias=False)
        self.v_proj = nn.Linear(hidden, groups * width, bias=False)
        self.o_proj = nn.Linear(heads * width, hidden, bias=False)
        self.q_norm, self.k_norm = Norm(width), Norm(width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = turned(self.q_norm(self.q_proj(x).view(batch, length, self.heads, self.width)).transpose(1, 2), cos, sin)
        k = turned(self.k_norm(self.k_proj(x).view(batch, length, self.groups, self.width)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(batch, length, self.groups, self.width).transpose(1, 2)
        k, v = (each.repeat_interleave(self.heads // self.groups, dim=1) for each in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Gated(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, groups: int, width: int, inner: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(hidden, heads, groups, width), Gated(hidden, inner)
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden), Norm(hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Qwen3's shape; eight query heads of 128 for each group of keys, and four times as wide inside, at full size."""

    def __init__(self, hidden: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        width = min(128, hidden // 4)
        heads, groups = max(4, hidden // 80), max(2, hidden // 320)
        self.embed_tokens = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, groups, width, hidden * 19 // 5) for _ in range(layers))
        self.norm = Norm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.register_buffer("inverse", 1e6 ** (-torch.arange(0, width, 2) / width), persistent=False)
        self.inverse: torch.Tensor

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        place = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * self.inverse.to(torch.float32)
        angles = torch.cat((place, place), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def best(run: Callable[[], Any], count: int, clock: Callable[[], float], settle: Callable[[], Any]) -> float:
    """Microseconds of one run, the better of some rounds; what is queued is waited for outside of them."""
    found = float("inf")
    for _ in range(ROUNDS):
        settle()
        start = clock()
        for _ in range(count):
            run()
        found = min(found, (clock() - start) / count)
        settle()
    return found * 1e6


def front_end(name: str) -> Callable[..., Any]:
    """Its `compile`."""
    if name == "torch.compile":
        return torch.compile
    import torchdynamo

    return torchdynamo.compile


def measured(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one front end."""
    compile_ = front_end(name)
    device = torch.device(options.device)
    settle = torch.cuda.synchronize if device.type == "cuda" else int
    with torch.device(device):
        torch.manual_seed(0)
        model = Decoder(options.hidden, options.layers, options.vocabulary).to(options.dtype).eval()
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    if options.first:
        with torch.no_grad():
            return first_call(compile_(model, backend=options.first), token, settle, options.caches)
    graphs: list[int] = []

    def nothing(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(sum(node.op.startswith("call_") for node in gm.graph.nodes))
        result = gm.forward(*inputs)
        return lambda *given: result

    figures: dict[str, float] = {}
    with torch.no_grad():
        start = time.perf_counter()
        compiled = compile_(model, backend=nothing)
        compiled(token)
        figures["first call, s"] = time.perf_counter() - start
        for _ in range(50):
            compiled(token)
        empty = best(lambda: 0, 20_000, time.perf_counter, settle)
        figures["overhead, us"] = best(lambda: compiled(token), 2_000, time.perf_counter, settle) - empty
        figures["graphs"], figures["operators"] = len(graphs), sum(graphs)
        figures["parameters"] = sum(1 for _ in model.parameters())
        for backend in options.backend:
            real = compile_(Again(model), backend=backend)
            last = [token]

            def step(real: Callable[..., Any] = real, last: list[torch.Tensor] = last) -> None:
                last[0] = real(last[0])[:, -1:].argmax(-1)

            for _ in range(5):
                step()
            figures[f"{backend}: token, us"] = best(lambda: (step(), settle()), 50, time.perf_counter, settle)
            figures[f"{backend}: host, us"] = best(step, 20, time.process_time, settle)
    return figures


def first_call(
    compiled: Callable[..., Any], token: torch.Tensor, settle: Callable[[], Any], caches: str | None
) -> dict[str, float]:
    """Measure the first call of a process, by the clock and in processor seconds of the process itself, and the next.

    caches: the folder of Inductor's caches; None for one of its own.
    """
    own_folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with own_folder if caches is None else contextlib.nullcontext(caches) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # Triton's is in it
        settle()
        start, before = time.perf_counter(), os.times()
        compiled(token)
        settle()
        wall, after = time.perf_counter() - start, os.times()
    own = after.user + after.system - before.user - before.system
    start = time.perf_counter()
    result = compiled(token)
    settle()
    return {
        "first call, s": wall,
        "own CPU, s": own,
        "next call, s": time.perf_counter() - start,
        "sum of the result": float(result.double().sum()),
        "Inductor imported": float("torch._inductor.compile_fx" in sys.modules),
    }


class Again(nn.Module):
    """The same model under another function, so that what was compiled for one backend is not asked for the next."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens)


def alone(name: str, folder: str, bytecode: str = "") -> dict[str, float]:
    """Measure one front end in a process of its own. folder: for what it stores; "" if it stores nothing. bytecode:
    folder for that of modules; "" if it lies where it does.
    """
    command, environment = [sys.executable, __file__, *sys.argv[1:], "--front-end", name], dict(os.environ)
    if bytecode:
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if folder:
        command += ["--caches", f"{folder}/inductor"]
        environment.update(TORCHDYNAMO_CACHE="1", TORCHDYNAMO_CACHE_DIR=f"{folder}/store")
    told = subprocess.run(command, stdout=subprocess.PIPE, env=environment)
    return json.loads(told.stdout.splitlines()[-1]) if told.returncode == 0 else {}


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description="What the host pays per decoded token.")
    parser.add_argument("--hidden", type=int, default=2560)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default=torch.bfloat16)
    parser.add_argument("--backend", action="append", default=[], help="also a loop with this backend; may be repeated")
    parser.add_argument("--first", metavar="BACKEND", help="only what the first call with this backend takes")
    parser.add_argument("--again", action="store_true", help="with --first: in a second process, too")
    parser.add_argument("--caches", help="folder of Inductor's caches, for a front end alone")
    parser.add_argument("--front-end", choices=FRONT_ENDS, help="this one alone, as JSON")
    options = parser.parse_args()
    if options.front_end:
        print(json.dumps(measured(options.front_end, options)))
        return
    table = {}
    for name in FRONT_ENDS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            bytecode = f"{folder}/bytecode" if options.first else ""
            if options.first:
                alone(name, "", bytecode)  # which writes it
            table[name] = alone(name, folder if options.again else "", bytecode)
            if options.again:
                again = alone(name, folder, bytecode)
                table[name].update({f"again: {what}": figure for what, figure in again.items()})
    print(f"{'':24}" + "".join(f"{name:>16}" for name in FRONT_ENDS) + f"{'ratio':>8}")
    for what in dict.fromkeys(key for figures in table.values() for key in figures):
        ours, theirs = (table[name].get(what, float("nan")) for name in FRONT_ENDS)
        print(f"{what:24}{ours:16.2f}{theirs:16.2f}{theirs / ours if ours else 0:8.1f}")


if __name__ == "__main__":
    main()
