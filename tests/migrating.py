"""What becomes of each name of torch.compile's: the rows of the first two tables of docs/migrating.md.

"same": it works as there. "own name": torchdynamo has another name for it. "refused": it has no effect, for the reason
that the row gives; it raises, or warns once.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    verdict: str
    text: str


SAME, OWN, REFUSED = "same", "own name", "refused"
FILTER = Row(REFUSED, "all guards are kept: `guard_filter_fn` is ignored, with a warning")

KEYWORDS: dict[str, Row] = {
    "model": Row(
        SAME, "a function, method, callable object, module, or class of these; left out, `compile` is a decorator"
    ),
    "fullgraph": Row(SAME, "`exc.Unsupported`; under `install()` that is a `torch._dynamo.exc.Unsupported` as well"),
    "dynamic": Row(SAME, ""),
    "backend": Row(SAME, "a name of ours, then one registered with PyTorch, then an entry point of a package"),
    "mode": Row(SAME, "a backend without modes ignores it, and says so in the log"),
    "options": Row(
        SAME,
        "checked where they are written, for every backend; "
        "`guard_filter_fn` is ignored with a warning, `use_aoti` raises",
    ),
    "name": Row(SAME, "shown in messages"),
    "disable": Row(SAME, ""),
    "recompile_limit": Row(
        SAME, "versions of each function that the call compiles, in place of `config.cache_size_limit`"
    ),
    "isolate_recompiles": Row(SAME, "no versions are shared, not even those that are there already"),
    **dict.fromkeys(
        ("shapes_spec", "dynamic_shapes"),
        Row(REFUSED, "mark sizes by `torchdynamo.mark_dynamic`, `mark_static` and `mark_unbacked`"),
    ),
}

NAMES: dict[str, Row] = {
    "compile": Row(OWN, "`torchdynamo.compile`; the same after `torchdynamo.install()`"),
    "config": Row(
        OWN, "`torchdynamo.config`; a setting that is changed there holds under `install()`, or is named in a warning"
    ),
    "assume_constant_result": Row(SAME, "also `torchdynamo.assume_constant_result`"),
    "reset": Row(
        OWN, "`torchdynamo.reset()`; PyTorch's forgets what PyTorch has compiled, and under `install()` calls ours"
    ),
    "allow_in_graph": Row(
        SAME, "a function that can be followed is followed; `torchdynamo.allow_in_graph` never looks inside"
    ),
    "substitute_in_graph": Row(SAME, ""),
    "list_backends": Row(OWN, "`torchdynamo.list_backends()`"),
    "disable": Row(SAME, "also `torchdynamo.disable` and, for `recursive=False`, `torchdynamo.skip`"),
    "set_default_backend": Row(SAME, "for `compile` without a backend"),
    "get_default_backend": Row(SAME, ""),
    "set_stance": Row(SAME, "`skip_guard_eval_unsafe` changes nothing"),
    "set_enable_guard_collectives": Row(REFUSED, "guards ask no other process; a warning says so, once"),
    "cudagraph_mark_step_begin": Row(SAME, ""),
    "load_compiled_function": Row(
        REFUSED, "it loads what PyTorch has compiled; functions of ours have no `aot_compile`"
    ),
    "wrap_numpy": Row(SAME, "followed where a compiled function calls it; by itself it runs as it is"),
    "is_compiling": Row(SAME, "also `torchdynamo.is_compiling`"),
    "is_dynamo_compiling": Row(SAME, ""),
    "is_exporting": Row(SAME, "True inside of `torchdynamo.export`, else False while torchdynamo captures"),
    "save_cache_artifacts": Row(SAME, "what Inductor and AOTAutograd have compiled; captures are made again"),
    "load_cache_artifacts": Row(SAME, ""),
    "keep_portable_guards_unsafe": FILTER,
    "skip_guard_on_inbuilt_nn_modules_unsafe": FILTER,
    "skip_guard_on_all_nn_modules_unsafe": FILTER,
    "keep_tensor_guards_unsafe": FILTER,
    "skip_guard_on_globals_unsafe": FILTER,
    "skip_all_guards_unsafe": FILTER,
    "nested_compile_region": Row(SAME, "followed in each call, in place of being compiled once"),
}


def table(first: str, rows: dict[str, Row]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [f"| {first} | here | |", "|---|---|---|"]
    return lines + [f"| `{name}` | {row.verdict} | {row.text} |" for name, row in rows.items()]


TABLES = {"keyword": KEYWORDS, "`torch.compiler`": NAMES}

if __name__ == "__main__":  # what docs/migrating.md should hold
    for each, rows in TABLES.items():
        print("\n".join(table(each, rows)), end="\n\n")
