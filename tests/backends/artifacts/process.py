"""Write the graphs of programs as artifacts, or read them and compare what they do with what eager did.

python process.py write FOLDER BACKEND NAME...    prints, as JSON, the reasons for what is not stored
python process.py read FOLDER             prints, as JSON, the differences by program, and what was imported
With `write:cuda` and `read:cuda` all tensors are on a GPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import torchdynamo
from torchdynamo.backends import artifacts
from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import lookup

Observed = dict[str, Any]


def observe(run: Callable[..., Any], args: Sequence[Any], train: bool) -> Observed:
    """What a call returns, shares with its arguments, changes in them, and raises; and gradients."""
    with torch.set_grad_enabled(train):
        found = called(run, args)
    if train and "raised" not in found:
        found["gradients"] = {name: gradients(run, args, **how) for name, how in GRADIENTS.items()}
    return found


# Which results get a gradient, in which layout, and how often it is asked for.
GRADIENTS: dict[str, dict[str, Any]] = {
    "of all": {},
    "of the first": {"which": slice(0, 1)},
    "of the last": {"which": slice(-1, None)},
    "twice": {"times": 2},
    "strided": {"strided": True},
}


def gradients(
    run: Callable[..., Any], args: Sequence[Any], which: slice = slice(None), times: int = 1, strided: bool = False
) -> Any:
    """The gradients of a call, and what they raise."""
    args = copied(args)
    results = torch.utils._pytree.tree_leaves(run(*args))
    results = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad][which]
    inputs = [each for each in args if isinstance(each, torch.Tensor) and each.requires_grad]
    given = [torch.linspace(-1, 1, each.numel()).view(each.shape).to(each.dtype) for each in results]
    if strided:
        given = [each.t().contiguous().t() if each.dim() == 2 else each for each in given]
    found: list[Any] = []
    for at in range(times):
        try:
            made = torch.autograd.grad(results, inputs, given, allow_unused=True, retain_graph=at + 1 < times)
        except Exception as error:
            return [*found, f"{type(error).__name__}: {error}"]
        found += [described(each, args, results) for each in made]
    try:
        torch.autograd.grad(results, inputs, given, allow_unused=True)
    except RuntimeError as error:
        found.append(str(error).partition(" (")[0])
    return found


def called(run: Callable[..., Any], args: Sequence[Any]) -> Observed:
    args = copied(args)
    torch.manual_seed(5)
    versions = [version(each) for each in args]
    try:
        results = run(*args)
    except Exception as error:
        return {"raised": type(error).__name__}
    leaves, spec = torch.utils._pytree.tree_flatten(results)
    return {
        "structure": str(spec),
        "results": [described(each, args, leaves) for each in leaves],
        "inputs": [described(each, args, ()) for each in args],
        "versions": [None if old is None else version(each) - old for each, old in zip(args, versions, strict=True)],
        "random": torch.rand(1),
        "grad_mode": torch.is_grad_enabled(),
    }


def version(value: Any) -> Any:
    return value._version if isinstance(value, torch.Tensor) else None


def copied(args: Sequence[Any]) -> list[Any]:
    """Copies of arguments; those that share memory share it still, and one that comes twice is one object."""
    memories: dict[int, torch.UntypedStorage] = {}
    made: dict[int, Any] = {}
    for each in args:
        if isinstance(each, torch.Tensor) and id(each) not in made:
            memory = each.untyped_storage()
            memory = memories.setdefault(memory._cdata, memory.clone())
            new = torch.empty(0, dtype=each.dtype).set_(memory, each.storage_offset(), each.shape, each.stride())
            made[id(each)] = new.requires_grad_(each.requires_grad and each.is_leaf)
    return [made.get(id(each), each) for each in args]


def described(value: Any, args: Sequence[Any], results: Sequence[Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    tensors = [each for each in (*args, *results) if isinstance(each, torch.Tensor)]
    return {
        "value": value.detach().clone(),
        "dtype": value.dtype,
        "strides": value.stride(),
        "offset": value.storage_offset(),
        "requires_grad": value.requires_grad,
        "is": [at for at, each in enumerate(tensors) if each is value],
        "shares": [at for at, each in enumerate(tensors) if memory_of(each) == memory_of(value)],
        "is_view": value._is_view(),
        "base": [at for at, each in enumerate(tensors) if each is value._base],
    }


def memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def loosely(found: Observed) -> Observed:
    """What compiled graphs have in common with eager. Their results come in a list, gradients may have other strides,
    a view that nobody shares may be none, and a backward frees all that it has saved.
    """
    kept = {name: each for name, each in found.items() if name not in ("structure", "versions", "gradients")}
    for name in ("results", "inputs"):
        kept[name] = [
            {key: part for key, part in each.items() if key not in ("is_view", "base")}
            if isinstance(each, dict)
            else each
            for each in found.get(name, ())
        ]
    kept["gradients"] = {
        name: [each["value"] if isinstance(each, dict) else each for each in made if not isinstance(each, str)]
        for name, made in found.get("gradients", {}).items()
    }
    return kept


def differences(one: Any, other: Any, exact: bool, place: str = "") -> list[str]:
    """Where two observations differ; not exact: numbers may be rounded in another way."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return [f"{place}: {one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}"]
        tolerance = 0.0 if exact else 2e-2 if one.dtype in (torch.half, torch.bfloat16) else 1e-5
        equal = torch.allclose(
            one.to(torch.complex128), other.to(torch.complex128), tolerance, tolerance, equal_nan=True
        )
        return [] if equal else [f"{place}: {one} and {other}"]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for key in one for d in differences(one[key], other[key], exact, f"{place}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [d for at, (a, b) in pairs for d in differences(a, b, exact, f"{place}[{at}]")]
    return [] if one == other else [f"{place}: {one!r} and {other!r}"]


class Made:
    """Graphs of one program: the inputs of their calls, with what eager and what the compiled graph did with them."""

    def __init__(self, backend: str) -> None:
        self.compile = lookup(backend)
        self.graphs: list[tuple[Any, Any, list[list[Any]]]] = []

    def backend(self, gm: Any, inputs: Any) -> Any:
        compiled = self.compile(gm, inputs)
        calls: list[list[Any]] = []
        self.graphs.append((gm, compiled, calls))

        def run(*args: Any) -> Any:
            calls.append(copied(args))
            return (compiled or gm.forward)(*args)

        return run


def write(folder: Path, backend_name: str, *names: str) -> None:
    import programs

    told = {}
    for name in names:
        program = programs.PROGRAMS[name]
        torchdynamo.reset()
        made = Made(backend_name)
        backend = leaves_inputs_alone(lambda gm, inputs, made=made: made.backend(gm, inputs))
        compiled = torchdynamo.compile(program.fn, backend=backend, dynamic=program.dynamic)
        with torch.set_grad_enabled(program.train):
            for args in program.calls:
                try:
                    compiled(*copied(args))
                except Exception:
                    continue
            told[name] = [
                write_graph(folder / f"{name}.{at}", *graph, program.train) for at, graph in enumerate(made.graphs)
            ]
    print(json.dumps(told))


def write_graph(place: Path, gm: Any, compiled: Any, calls: list[list[Any]], train: bool) -> str | None:
    if compiled is None:
        return "the backend declined"
    if train and calls:  # the backward is compiled when it is first called
        results = torch.utils._pytree.tree_leaves(compiled(*copied(calls[0])))
        torch.autograd.backward([each.sum() for each in results if each.requires_grad])
    artifact = artifacts.dump(compiled)
    if isinstance(artifact, artifacts.NotStored):
        return artifact.reason
    for name, content in artifact.blobs.items():
        (place.parent / name).write_bytes(content)
    place.with_suffix(place.suffix + ".json").write_text(json.dumps(artifact.data))
    eager, ours = [[observe(run, args, train) for args in calls] for run in (gm.forward, compiled)]
    torch.save(
        {"calls": calls, "train": train, "eager": eager, "compiled": ours}, place.with_suffix(place.suffix + ".pt")
    )
    return None


def read(folder: Path) -> None:
    before = set(sys.modules)
    told = {}
    for place in sorted(folder.glob("*.json")):
        run = artifacts.load(
            json.loads(place.read_text()),
            lambda name: artifacts.BlobFile(str(folder / name), (folder / name).read_bytes()),
        )
        known = torch.load(place.with_suffix(".pt"), weights_only=False)
        loaded = [observe(run, args, known["train"]) for args in known["calls"]]
        told[place.stem] = {
            "calls": len(loaded),
            "eager": differences([*map(loosely, known["eager"])], [*map(loosely, loaded)], exact=False),
            "compiled": differences(known["compiled"], loaded, exact=True),
            "raised": [each.get("raised") for each in loaded],
        }
    print(json.dumps({"programs": told, "imported": sorted(set(sys.modules) - before)}))


if __name__ == "__main__":
    way, _, device = sys.argv[1].partition(":")
    if device:
        torch.set_default_device(device)
    {"write": write, "read": read}[way](Path(sys.argv[2]), *sys.argv[3:])
