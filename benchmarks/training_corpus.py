"""A training step of other people's models, by a backend: equal to eager, and how many backward graphs were compiled.

    python benchmarks/training_corpus.py --corpus ../shared/corpus                       # or `make training-corpus`
    python benchmarks/training_corpus.py --corpus ../shared/corpus --backend aot_eager --only 'hf/'

For each case of the corpus that is meant to train: forward, the mean of squares of all that comes out, backward;
the loss and all gradients are held against eager's. Each case in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import torchdynamo


def differentiable(values: Any) -> Iterator[torch.Tensor]:
    """What of these a gradient can be taken of."""
    tensors = (value for _, value in values if isinstance(value, torch.Tensor))
    return (tensor for tensor in tensors if tensor.is_floating_point())


def stepped(leaves: Any, reseed: Any, forward: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """One training step: the loss, and all gradients by name. Models without parameters train their inputs."""
    reseed(7)
    if not any(p.requires_grad for p in module.parameters()):
        for tensor in differentiable(leaves((args, kwargs))):
            tensor.requires_grad_()
    result = forward(*args, **kwargs)
    loss = sum(each.float().square().mean() for each in differentiable(leaves(result)) if each.requires_grad)
    loss.backward()
    given = {name: t.grad for name, t in leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.is_leaf}
    return loss.detach(), {name: p.grad for name, p in module.named_parameters()}, given


def backwards() -> int:
    """How many backward graphs were compiled so far: AOTAutograd makes a class for each pair of graphs, and compiles
    its backward when that first runs."""
    made = [each for each in torch.autograd.Function.__subclasses__() if each.__name__ == "CompiledFunction"]
    return sum(each.compiled_bw is not None for each in made)


def run_case(name: str, backend: str) -> dict[str, Any]:
    """In this process."""
    import corpus  # type: ignore[import-not-found]
    import runner  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    case, compiles = corpus.CASES[name], 0

    def counting(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal compiles
        compiles += 1
        return torchdynamo.backends.lookup(backend)(gm, inputs)

    module, args, kwargs = case.build()
    expected = stepped(runner.leaves, corpus.reseed, module, module, args, kwargs)
    module, args, kwargs = case.build()
    compiled = torchdynamo.compile(module, backend=counting)
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", torchdynamo.errors.TorchDynamoWarning)
        got = stepped(runner.leaves, corpus.reseed, compiled, module, args, kwargs)
    ours = [each for each in seen if issubclass(each.category, torchdynamo.errors.TorchDynamoWarning)]
    why, exact = runner.differ(expected, got, grads=True)
    return {
        "equal": why is None,
        "to the bit": exact,
        "graphs": compiles,
        "backward graphs": backwards(),
        "seconds": round(time.perf_counter() - begin, 1),
        **({"difference": why} if why else {}),
        **({"warnings": [str(each.message)[:300] for each in ours]} if ours else {}),
    }


def in_a_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--corpus", options.corpus, "--backend", options.backend, "--one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return {"equal": False, "backward graphs": 0, "error": f"more than {options.timeout} s"}
    if done.returncode:
        return {"equal": False, "backward graphs": 0, "error": done.stderr[-600:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="../shared/corpus", help="the folder of corpus.py and runner.py")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--out", default="build/training_corpus.jsonl")
    parser.add_argument("--only", default="", help="a regular expression for the cases' names")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for each case")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.corpus = str(Path(options.corpus).resolve())
    sys.path.insert(0, options.corpus)
    if options.one:
        warnings.filterwarnings("ignore")
        print(json.dumps(run_case(options.one, options.backend)))
        return
    import corpus

    names = [name for name, case in corpus.CASES.items() if "train" in case.tags and re.search(options.only, name)]
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with out.open("w") as lines:
        for name in names:
            rows.append({"case": name, "backend": options.backend, **in_a_process(name, options)})
            lines.write(json.dumps(rows[-1]) + "\n")
            lines.flush()
            print(json.dumps(rows[-1]), flush=True)
    equal, compiled = sum(row["equal"] for row in rows), sum(row["backward graphs"] >= 1 for row in rows)
    total = sum(row["backward graphs"] for row in rows)
    print(
        f"{options.backend}: {equal} of {len(rows)} equal to eager, {compiled} with a backward graph compiled here, "
        f"{total} backward graphs in all"
    )


if __name__ == "__main__":
    main()
