"""Export the models of a corpus, load each in a process without torchdynamo, and compare with eager.

    python benchmarks/export.py [--corpus FOLDER] [--only REGEX] [--ways ours,non-strict,strict] [--aoti] [--out ROWS]

Each model is called once, exported by `torchdynamo.export`, and by torch.export in its two modes, saved, loaded by
another process, and called on the same and on fresh inputs. Shares are of the models that are whole graphs: those for
which `torchdynamo.export` does not raise Unsupported. `--aoti` compiles what was saved by AOTInductor as well, and
compares that. Classes of arguments and results are registered with torch's pytree for all of them. Seconds are CPU
seconds of the export. One thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.export
from torch.utils import _pytree as pytree

WAYS = ("ours", "non-strict", "strict")
Row = dict[str, Any]


def export(way: str, model: Any, args: Any, kwargs: Any) -> torch.export.ExportedProgram:
    """Export a call in one of the ways."""
    if way != "ours":
        return torch.export.export(model, tuple(args), kwargs, strict=way == "strict")
    import torchdynamo

    return torchdynamo.export(model, *args, kwargs=kwargs)


def exporting(case: Any, way: str, file: str) -> Row:
    """Export a case and save it."""
    model, args, kwargs = case.build()
    model(*args, **kwargs)  # some set up tables and hooks in their first call
    _, args, kwargs = case.inputs_for(model, 0)
    if way == "ours":
        import torchdynamo  # noqa: F401  # not counted
    started = time.process_time()
    try:
        program = export(way, model, args, kwargs)
    except Exception as error:  # whatever an exporter raises is its answer
        return {"stage": "export", "error": type(error).__name__, "text": " ".join(str(error).split())[:300]}
    seconds = time.process_time() - started
    try:
        torch.export.save(program, file)
    except Exception as error:
        return {"stage": "save", "error": type(error).__name__, "text": " ".join(str(error).split())[:300]}
    return {"seconds": seconds}


def loading(case: Any, file: str, differ: Callable[..., Any], reseed: Callable[[int], None], aoti: bool) -> Row:
    """Load a program, and compare it with eager on the example's inputs and on fresh ones."""
    try:
        program = torch.export.load(file)
        if aoti:
            package = torch._inductor.aoti_compile_and_package(program, package_path=f"{file}.aoti.pt2")
            call: Any = torch._inductor.aoti_load_package(package)
        else:
            call = program.module()
        model, args, kwargs = case.build()
        model(*args, **kwargs)  # as before the export: some draw their parameters in it
        for seed in (0, 1):
            _, args, kwargs = case.inputs_for(model, seed)
            reseed(7)
            want = model(*args, **kwargs)
            _, args, kwargs = case.inputs_for(model, seed)
            reseed(7)
            difference, _ = differ(want, call(*args, **kwargs))
            if difference:
                return {"stage": "compare", "error": "differs", "text": f"seed {seed}: {difference}"}
    except Exception as error:
        return {"stage": "load", "error": type(error).__name__, "text": " ".join(str(error).split())[:300]}
    assert "torchdynamo" not in sys.modules
    return {"right": True}


def apart(work: Callable[[], Any], limit: int) -> Any:
    """Return what a process of its own makes of some work in so many CPU seconds, or ten times as many by the clock."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.setitimer(signal.ITIMER_PROF, limit)
        signal.alarm(10 * limit)
        try:
            row = work()
        except BaseException as error:
            row = {"stage": "crash", "error": type(error).__name__, "text": str(error)[:300]}
        with os.fdopen(writer, "w") as pipe:
            json.dump(row, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"stage": "crash", "error": "killed", "text": f"after {limit} CPU s at most"}


def register_classes() -> None:
    """Tell torch's pytree how to flatten and save classes of the corpus that it does not know, as a user of any
    exporter has to: transformers' cache, TensorDict, a named tuple, and data of torch_geometric.
    """
    with contextlib.suppress(ImportError):
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()
    with contextlib.suppress(ImportError):
        import tensordict

        row = pytree.SUPPORTED_NODES.pop(tensordict.TensorDict)  # registered by itself, without what is saved
        pytree._private_register_pytree_node(
            tensordict.TensorDict,
            lambda td: by_dimensions(td, *row.flatten_fn(td)),
            row.unflatten_fn,
            serialized_type_name="tensordict.TensorDict",
            flatten_with_keys_fn=lambda td: by_dimensions(td, *row.flatten_with_keys_fn(td)),
            to_dumpable_context=dumped,
            from_dumpable_context=lambda text: tensordict_context(row, text),
        )
        # tensordict gives that name to a class of its own, so lists were loaded as that
        pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE["builtins.list"] = list
    with contextlib.suppress(ImportError):
        from vector_quantize_pytorch import lookup_free_quantization

        pytree._register_namedtuple(lookup_free_quantization.Return, serialized_type_name="vector_quantize.Return")
    with contextlib.suppress(ImportError):
        from torch_geometric.data import Data

        pytree.register_pytree_node(
            Data,
            lambda data: (list(data.to_dict().values()), list(data.to_dict())),
            lambda values, names: Data(**dict(zip(names, values, strict=True))),
            serialized_type_name="torch_geometric.Data",
            flatten_with_keys_fn=lambda data: (
                [(pytree.GetAttrKey(name), value) for name, value in data.to_dict().items()],
                list(data.to_dict()),
            ),
        )


def by_dimensions(td: Any, values: Any, context: Row) -> tuple[Any, Row]:
    """Return a flattened TensorDict, with the number of its batch dimensions in place of their sizes. TensorDict keeps
    the one while torch compiles, the other else.
    """
    context.pop("batch_size", None)
    return values, context | {"batch_dims": td.batch_dims}


def dumped(context: Row) -> Row:
    """Return what pytree keeps of a TensorDict beside its tensors, as JSON."""
    assert not context["non_tensor_data"]
    kept = {name: context[name] for name in ("keys", "names", "batch_dims")}
    return kept | {"device": None if context["device"] is None else str(context["device"])}


def tensordict_context(row: Any, kept: Row) -> Row:
    """Return the reverse of `dumped`. row: how pytree flattens a TensorDict."""
    import tensordict

    context: Row = row.flatten_fn(tensordict.TensorDict({}, []))[1]
    device = None if kept["device"] is None else torch.device(kept["device"])
    return {name: context[name] for name in ("non_tensor_data", "constructor", "cls")} | kept | {"device": device}


def measured(case: Any, ways: list[str], corpus: Any, runner: Any, aoti: bool, folder: str) -> list[Row]:
    """Return a row for each way in which a case is exported."""
    grad = torch.enable_grad if "grad" in case.tags else torch.no_grad
    rows = []
    for way in ways:
        file = str(Path(folder) / f"{way}.pt2")
        with grad():
            row = apart(lambda way=way, file=file: exporting(case, way, file), 300)  # type: ignore[misc]
            if "stage" not in row:
                row |= apart(lambda file=file: loading(case, file, runner.differ, corpus.reseed, False), 300)  # type: ignore[misc]
            if row.get("right") and aoti:
                made = apart(lambda file=file: loading(case, file, runner.differ, corpus.reseed, True), 900)  # type: ignore[misc]
                row["aoti"] = made
        rows.append({"case": case.name, "group": case.group, "way": way, **row})
    return rows


def all_of(case: Any, ways: list[str], corpus: Any, runner: Any, aoti: bool) -> list[Row]:
    """Return the rows of a case; none if its packages are not installed or it does not run in eager."""
    try:
        model, args, kwargs = case.build()
        with torch.no_grad() if "grad" not in case.tags else torch.enable_grad():
            model(*args, **kwargs)
    except Exception:
        return []
    with tempfile.TemporaryDirectory() as folder:
        return measured(case, ways, corpus, runner, aoti, folder)


def summary(rows: list[Row], ways: list[str]) -> str:
    """Return a table of the shares."""
    broken = {row["case"] for row in rows if row["way"] == "ours" and row.get("error") == "Unsupported"}
    whole = {row["case"] for row in rows} - broken
    lines = [f"{len(whole)} whole graphs of {len(whole | broken)} models", ""]
    lines += [
        "| | exported, saved, loaded, equal | export, median CPU s | through AOTInductor |",
        "|---|---:|---:|---:|",
    ]
    for way in ways:
        own = [row for row in rows if row["way"] == way and row["case"] in whole]
        right = [row for row in own if row.get("right")]
        seconds = [row["seconds"] for row in right]
        aoti = [row["aoti"] for row in right if "aoti" in row]
        through = f"{sum('right' in row for row in aoti)} of {len(aoti)}" if aoti else ""
        share = f"{len(right)} of {len(own)}: {100 * len(right) / max(1, len(own)):.1f}%"
        lines.append(f"| {way} | {share} | {statistics.median(seconds) if seconds else 0:.2f} | {through} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table and what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="../shared/corpus", help="the folder with corpus.py and runner.py")
    parser.add_argument("--only", default="", help="a regular expression for the names of models")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--aoti", action="store_true", help="compile what was saved by AOTInductor, too")
    parser.add_argument("--out", help="write the rows as lines of JSON")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(given.corpus).resolve()))
    import corpus
    import runner
    import torch.export._trace  # not counted

    corpus.tvshim.install()
    register_classes()
    torch.set_num_threads(1)
    ways, rows = given.ways.split(","), []
    for name, case in corpus.CASES.items():
        if not re.search(given.only, name):
            continue
        found = apart(lambda case=case: all_of(case, ways, corpus, runner, given.aoti), 3600)  # type: ignore[misc]
        if isinstance(found, dict):
            found = [{"case": name, "group": case.group, "way": way, **found} for way in ways]
        rows += found
        for row in found:
            print(
                name, row["way"], "equal" if row.get("right") else f"{row['stage']}: {row['error']} {row['text'][:120]}"
            )
            if "aoti" in row and "right" not in row["aoti"]:
                print(name, row["way"], f"AOTInductor {row['aoti']['error']}: {row['aoti']['text'][:120]}")
        sys.stdout.flush()
        if given.out:
            Path(given.out).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print(summary(rows, ways))


if __name__ == "__main__":
    main()
