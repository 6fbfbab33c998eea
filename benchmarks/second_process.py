"""Measure the first result of a first and a second process: CPU seconds after the imports, beside torch.compile.

    python benchmarks/second_process.py [--programs bert12 ...] [--fronts torchdynamo torch.compile] [--rounds 3]

Each (front end, program) has a folder of caches of its own. A round is a process that finds it empty, and one that
finds what the first has left; the contenders take turns. What is counted begins after `import torch`, the model's
package and the front end, and ends with the first result (of a training step, with its gradients): user and system
time of the process (`own`) and of the processes that it starts (`children`), and the time that passes (`wall`).
Medians of the rounds are printed, with the modules of compilers that were imported meanwhile. Needs
transformers==5.23.0; sizes are small, one thread: what is measured is the compiler, not the kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
COMPILERS = ("torch._dynamo", "torch._inductor.compile_fx", "torch._functorch.aot_autograd", "sympy")
Step = Callable[[Callable[..., Any]], torch.Tensor]
"""Called with the front end's `compile`; returns what is compared with eager."""


def forward(model: torch.nn.Module, **inputs: Any) -> Step:
    """Return the step that calls a model for inference."""
    model.eval()

    def step(compiled: Callable[..., Any]) -> torch.Tensor:
        with torch.no_grad():
            return first_tensor(compiled(model)(**inputs))

    return step


def first_tensor(result: Any) -> torch.Tensor:
    """Return a result's first tensor."""
    values = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
    return next(value for value in values if isinstance(value, torch.Tensor))


def bert12() -> Step:
    """Return BERT with 12 layers."""
    from transformers import BertConfig, BertModel

    return forward(BertModel(BertConfig(num_hidden_layers=12, vocab_size=128, **SMALL)), input_ids=tokens())


def vit12() -> Step:
    """Return ViT with 12 layers."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(num_hidden_layers=12, image_size=32, patch_size=8, **SMALL)
    return forward(ViTModel(config), pixel_values=torch.randn(1, 3, 32, 32))


def llama(layers: int) -> Step:
    """Return Llama with so many layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_hidden_layers=layers, vocab_size=128, **SMALL)
    return forward(LlamaForCausalLM(config), input_ids=tokens(), use_cache=False)


def resnet50() -> Step:
    """Return ResNet-50, of transformers, for images of 64 x 64."""
    from transformers import ResNetConfig, ResNetModel

    return forward(ResNetModel(ResNetConfig()), pixel_values=torch.randn(1, 3, 64, 64))


def gpt2_step() -> Step:
    """Return a training step of GPT-2 with 12 layers: the loss's gradients."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=12, n_embd=64, n_head=4, vocab_size=128, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = GPT2LMHeadModel(config).train()

    def step(compiled: Callable[..., Any]) -> torch.Tensor:
        compiled(model)(input_ids=tokens(), labels=tokens(), use_cache=False).loss.backward()
        return torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None])

    return step


class Broken(torch.nn.Module):
    """Four blocks with a branch on a tensor's value between each two: three breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on one side or the other."""
        a, b, c, d = self.blocks
        x = a(x)
        if x.sum() > 0:
            x = x + 1
        x = b(x)
        if x.mean() > 1:
            x = x * 2
        x = c(x)
        if x.amax() > 3:
            x = x - 1
        return d(x)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "bert12": bert12,
    "vit12": vit12,
    "llama8": lambda: llama(8),
    "llama32": lambda: llama(32),
    "resnet50": resnet50,
    "gpt2_step": gpt2_step,
    "three_breaks": lambda: forward(Broken(), x=torch.randn(4, 64)),
}


def tokens() -> torch.Tensor:
    """Return a batch of one sequence of eight tokens."""
    return torch.arange(8).unsqueeze(0)


def spent() -> tuple[float, float]:
    """Return the CPU seconds of this process so far, and of its children that have ended."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def child(front: str, program: str) -> None:
    """Measure one process, and print what it took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = PROGRAMS[program]()
    if front == "torchdynamo":
        import torchdynamo

        compile_ = torchdynamo.compile
    else:
        compile_ = torch.compile
    before = frozenset(sys.modules)  # transformers imports torch._dynamo itself
    started, wall = spent(), time.perf_counter()
    result = step(lambda model: compile_(model, backend="inductor"))
    wall = time.perf_counter() - wall
    own, children = (after - before for after, before in zip(spent(), started, strict=True))
    imported = [name for name in COMPILERS if name in sys.modules and name not in before]
    torch.manual_seed(0)
    equal = torch.allclose(result, PROGRAMS[program]()(lambda model: model), rtol=1e-3, atol=1e-4)
    print(json.dumps({"own": own, "children": children, "wall": wall, "equal": equal, "imported": imported}))


def run(front: str, program: str, folder: Path) -> dict[str, Any]:
    """Return what a new process measures that finds its caches in this folder."""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHDYNAMO_CACHE": "1",
        "TORCHDYNAMO_CACHE_DIR": str(folder / "torchdynamo"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    command = [sys.executable, __file__, "--child", front, program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{front}, {program}: {done.stderr.strip()}")
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def main() -> None:
    """Measure, and print a row for each program, front end and process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--fronts", nargs="*", default=["torchdynamo", "torch.compile"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", nargs=2, metavar=("FRONT", "PROGRAM"))
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return
    print(f"{'program':14}{'front end':16}{'process':10}{'own':>8}{'children':>10}{'wall':>8}  equal  imports")
    for program in given.programs:
        rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for _ in range(given.rounds):
            for front in given.fronts:
                with tempfile.TemporaryDirectory() as folder:
                    for process in ("first", "second"):
                        rows.setdefault((front, process), []).append(run(front, program, Path(folder)))
        for (front, process), found in sorted(rows.items()):
            own, children, wall = (
                statistics.median(each[key] for each in found) for key in ("own", "children", "wall")
            )
            equal, imports = all(each["equal"] for each in found), " ".join(found[-1]["imported"]) or "none"
            print(f"{program:14}{front:16}{process:10}{own:8.2f}{children:10.2f}{wall:8.2f}  {equal!s:5}  {imports}")


if __name__ == "__main__":
    main()
