"""The tables of torch's private names and of patches, held against the sources and the torch that is installed."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.graph import patches
from torchdynamo.graph.foreign_kernels import foreign_kernels
from torchdynamo.graph.torch_private import PRIVATE, SOME_VERSIONS

PACKAGE = Path(torchdynamo.__file__).parent


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def chain(node: ast.AST) -> list[str]:
    """Return the names of `a.b.c`, from the first on; none if it does not begin with a name."""
    if isinstance(node, ast.Attribute):
        before = chain(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def names_of_torch(tree: ast.AST) -> Iterator[str]:
    """Yield what a file imports or reads of torch, by full names."""
    meaning: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meaning.update({each.asname: each.name for each in node.names if each.asname})
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            meaning.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
            yield from (f"{node.module}.{each.name}" for each in node.names)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner and (names := chain(node)):
            yield ".".join([meaning.get(names[0], names[0]), *names[1:]])


@functools.cache
def used() -> dict[str, list[str]]:
    """By private name of torch: the files that use it."""
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for name in names_of_torch(ast.parse(path.read_text())):
            if name.split(".")[0] == "torch" and is_private(name) and not is_elsewhere(name):
                found.setdefault(name, []).append(path.relative_to(PACKAGE).as_posix())
    return found


def is_elsewhere(name: str) -> bool:
    """Whether torch itself exports this under a public name, or it has one file, which test_layout.py sees to."""
    return name.startswith("torch._dynamo") or name in (
        "torch._C",
        "torch._C.TensorBase",
        "torch._C.DisableTorchFunctionSubclass",
    )


def covers(row: str, name: str) -> bool:
    return name == row or name.startswith((f"{row}.", f"{row}_"))


def test_each_private_name_of_torch_has_a_row() -> None:
    assert {name: files for name, files in used().items() if not any(covers(row, name) for row in PRIVATE)} == {}


@pytest.mark.parametrize("row", PRIVATE)
def test_each_row_is_used_and_is_there(row: str) -> None:
    named = {*used(), *patches.PATCHES}
    assert any(covers(row, name) for name in named), f"nothing uses {row} any more"
    assert found(row) is not None


@pytest.mark.parametrize("name", SOME_VERSIONS)
def test_what_some_versions_lack_is_asked_for(name: str) -> None:
    last = name.rpartition(".")[2]
    assert any(f'"{last}"' in path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "torch_private.py")


def found(name: str) -> Any:
    """Return what torch has under a full name."""
    path, _, last = name.rpartition(".")
    if not path:
        return importlib.import_module(name)
    try:
        return getattr(found(path), last)
    except AttributeError:
        return importlib.import_module(name)


@pytest.mark.parametrize("target", patches.PATCHES)
def test_each_patch_has_a_target_and_is_undone(target: str) -> None:
    owner, name = patches.place(target)
    before, other = patches.held(owner, name), object()
    if patches.PATCHES[target].stays:
        assert callable(before)
        return
    if isinstance(before, bool):
        other = not before  # type: ignore[assignment]
    with patches.replaced({target: other}):
        assert patches.held(owner, name) is other
    assert patches.held(owner, name) is before


def test_what_somebody_else_has_put_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "torch._inductor.codegen.cpp.stride_at_vec_range"
    owner, name = patches.place(target)
    monkeypatch.setattr(owner, name, patches.held(owner, name))
    theirs = object()
    with patches.replaced({target: object()}):
        setattr(owner, name, theirs)
    assert patches.held(owner, name) is theirs


# What a program does itself where it runs in Python, and a capture does for it.
PROGRAMS_OWN = {"torch_utils.py": "counts the handles of hooks"}


def test_only_patches_change_what_is_torchs() -> None:
    """Attributes of torch's modules and classes are assigned to nowhere else."""
    assigned = []
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        modules = {
            each.asname or each.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            and str(getattr(node, "module", "torch")).startswith("torch.")
            for each in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names = chain(node)
                if names and names[0] in {*modules, "torch"} and path.name not in PROGRAMS_OWN:
                    assigned.append(f"{path.name}:{node.lineno}: {'.'.join(names)}")
    assert assigned == []


def test_kernels_of_a_program_are_told_from_those_of_torch() -> None:
    before = foreign_kernels()
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("view_as_complex", lambda x: x.new_empty(x.shape[:-1], dtype=torch.complex64), "Meta")
        library.impl("special_i0e", torch.zeros_like, "XPU")
        assert {*foreign_kernels()} - {*before} == {"aten/view_as_complex/Meta", "aten/special_i0e/XPU"}
    finally:
        library._destroy()
    assert foreign_kernels() == before


def test_a_kernel_that_replaces_one_of_torchs_own_in_python_is_told_apart() -> None:
    """In a process of its own: PyTorch goes on calling such a kernel when its library has gone."""
    text = """
import torch
from torchdynamo.graph.foreign_kernels import foreign_kernels
name = "aten/index_select/Meta"
assert name in torch.library._impls and foreign_kernels() == []
with torch.library._scoped_library("aten", "IMPL") as library:
    library.impl("index_select", lambda x, dim, index: x.new_empty(3), "Meta", allow_override=True)
    assert foreign_kernels() == [name]
assert foreign_kernels() == []
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_kernel_that_a_decorator_has_registered_is_told_apart() -> None:
    with torch.library._scoped_library("aten", "IMPL") as library:
        torch.library.impl("aten::special_i0e", "XPU", torch.zeros_like, lib=library)
        assert foreign_kernels() == ["aten/special_i0e/XPU"]
    text = """
import torch
from torchdynamo.graph.foreign_kernels import foreign_kernels
assert foreign_kernels() == []
torch.library.impl("aten::special_i0e", "XPU", torch.zeros_like)
assert foreign_kernels() == ["aten/special_i0e/XPU"]
import torch._dynamo, torch._inductor.compile_fx, torch.distributed.tensor, torch.nested, torch.sparse
import torch.ao.quantization, torch.utils.flop_counter
assert foreign_kernels() == ["aten/special_i0e/XPU"]
"""
    subprocess.run([sys.executable, "-c", text], check=True)
