"""The rules of the house that a machine can check: what may be named where, and who may import whom."""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docstrings import docstrings

PACKAGE = Path(__file__).parent.parent / "torchdynamo"
SOURCES = sorted(path for suffix in ("py", "pyi", "c", "cpp", "h") for path in PACKAGE.rglob(f"*.{suffix}"))
PYTHON = [path for path in SOURCES if path.suffix == ".py"]

ORDER = ("hook", "bytecode", "core", "graph", "capture", "backends", "codegen", "guards", "cache", "report")
LEAVES = ("config", "errors", "events")  # import nothing of the package; anybody may import them


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def mentions(pattern: str, paths: list[Path], allowed: str = "") -> list[str]:
    """`file:line: text` wherever the pattern is found outside the allowed files (a pattern for their names)."""
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in paths
        if not (allowed and re.fullmatch(allowed, name_of(path)))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules imported anywhere under a node, by full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_torchs_own_front_end_is_named_in_three_files() -> None:
    named = r"torch\._dynamo|torch\._C\._dynamo|from torch import .*_dynamo"
    assert mentions(named, SOURCES, r"capture/vm/(interop|torch_names|torch_settings)\.py") == []


def test_no_other_tracer_is_used() -> None:
    """But where a backend is named for it, a captured graph is translated for a runtime, or a peer is measured."""
    tracers = r"torch\.compile\(|torch\.export|symbolic_trace|make_fx"
    named_for_it = r"(backends/(builtin/pre_dispatch|ensemble/exported)|exporting/\w+|cli/export|bench/peers)\.py"
    assert mentions(tracers, SOURCES, named_for_it) == []


def test_python_versions_are_named_in_two_places() -> None:
    named = r"version_info|hexversion|PY_VERSION_HEX|PY_MINOR_VERSION|\b3\.(8|9|1[0-9])\b"
    assert mentions(named, SOURCES, r"bytecode/.*|hook/csrc/compat\w*\.h") == []


def test_torch_versions_are_named_in_two_files() -> None:
    named = r"TORCH_VERSION_M|torch\.version\b|TorchVersion|(?<![\w.])2\.(9|1[0-9])\b"
    assert mentions(named, SOURCES, r"graph/(torch_compat|compiled_nodes)\.py") == []


def test_bytecode_needs_no_torch() -> None:
    for path in (PACKAGE / "bytecode").rglob("*.py"):
        for module in imports(ast.parse(path.read_text())):
            assert module.split(".")[0] != "torch", f"{name_of(path)} imports {module}"
            if module.startswith("torchdynamo."):
                assert module.startswith("torchdynamo.bytecode."), f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_imports_point_up_the_list(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    for module in imports(ast.parse(path.read_text())):
        if not module.startswith("torchdynamo."):
            continue
        imported = module.split(".")[1]
        if parts[0] in LEAVES:
            assert imported == parts[0], f"{parts[0]} imports {module}"
        elif parts[0] in ORDER:
            allowed = (*ORDER[: ORDER.index(parts[0]) + 1], *LEAVES, "_native")
            assert imported in allowed, f"{name_of(path)} imports {module}, which comes later"


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_only_heavy_or_optional_packages_are_imported_inside_functions(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for module in imports(function):
                root = module.split(".")[0]
                assert root != "torchdynamo", f"{name_of(path)}: {function.name} imports {module}"
                assert root not in sys.stdlib_module_names, f"{name_of(path)}: {function.name} imports {module}"


# What a docstring of a function does not begin with: it says what the function does, verb first.
NO_VERBS = frozenset(
    "A After All Also An And Any As Asked At Before Below Between Both But By Called Counted Each Every "
    "Everything For From Has Here How If In Inside Is It Its Like More Names No None Nobody Nothing Of On Once "
    "One Only Other Per Same Since So Something That The Their There These They This Those Two Until What When "
    "Where Whether Which While Who Whose Why With Without".split()
)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    assert [
        f"{name_of(each.path)}:{each.line}: {each.text.splitlines()[0]}"
        for each in docstrings()
        if each.is_function and each.text.split()[0].rstrip(",.:;") in NO_VERBS
    ] == []


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_are_short(path: Path) -> None:
    most = 400 if path.suffix in (".py", ".pyi") else 500
    assert len(path.read_text().splitlines()) <= most


def test_no_class_name_stands_for_two_things() -> None:
    """But for what backends of one recipe are called, and protocols that files of types are written against."""
    found: dict[str, list[str]] = {}
    for path in PYTHON:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name_of(path))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def runtime_imports(path: Path) -> set[str]:
    """The files of the package that one imports as it is imported: not for annotations, not inside of functions."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for module in imports(node):
                parts = module.split(".")[1:] if module.startswith("torchdynamo.") else []
                for end in (len(parts), len(parts) - 1):
                    file = PACKAGE.joinpath(*parts[:end]).with_suffix(".py")
                    if end > 0 and file.exists():
                        found.add(name_of(file))
                        break
    return found


def test_imports_go_round_nowhere() -> None:
    graph = {name_of(path): runtime_imports(path) for path in PYTHON}
    done = [*graphlib.TopologicalSorter(graph).static_order()]  # raises CycleError
    assert len(done) == len(graph)


DOCS = sorted((PACKAGE.parent / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_files_that_the_documentation_names_are_there(path: Path) -> None:
    root = PACKAGE.parent
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|c|h|cpp|md))`", path.read_text())
    assert [
        name
        for name in named
        if not any(
            (base / name).exists() for base in (PACKAGE, PACKAGE / "hook", PACKAGE / "capture", root, root / "tests")
        )
    ] == []


def test_nothing_is_left_for_later() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "raise NotImplemented" + "Error")
    assert mentions(r"\b(" + "|".join(words) + r")\b", SOURCES) == []


# -- side effects -----------------------------------------------------------------------------------------------------
# Where a store of side effects is changed past their owner, and why that is no side effect.
NO_WRITES = {
    ("capture/vm/state.py", "new"): "what an object is made with",
    ("capture/vm/heap.py", "__init__"): "there is nothing yet",
}
STORES = frozenset({"attrs", "touched", "attrs_at", "items_at"})
CHANGING = frozenset("update pop popitem setdefault clear append extend add discard remove".split())


def private_stores() -> set[str]:
    """The stores that the owner of side effects has to itself."""
    owner = ast.parse((PACKAGE / "capture/vm/effects.py").read_text())
    assigned = [node for node in ast.walk(owner) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return {node.attr for node in assigned if node.attr.startswith("_")}


def base_of(node: ast.AST) -> ast.AST:
    """What an item or an attribute is of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def is_store(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr in STORES


def store_changes(function: ast.AST) -> Iterator[int]:
    """The lines of a function that change a store of an object, by its own name or by another."""
    names = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr in STORES
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        changed: ast.AST | None = None
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in STORES):
            changed = None if isinstance(node.ctx, ast.Load) else base_of(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            changed = node.func.value
        if changed is not None and is_store(changed, names):
            yield node.lineno


def test_one_owner_changes_the_stores_of_side_effects() -> None:
    found = [
        f"{name_of(path)}:{line} in {function.name}"
        for path in PYTHON
        if name_of(path) != "capture/vm/effects.py"
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and (name_of(path), function.name) not in NO_WRITES
        for line in store_changes(function)
    ]
    assert found == []


def test_nobody_else_names_the_stores_of_side_effects() -> None:
    stores = private_stores()
    assert {"_names", "_names_set_again", "_spaces", "_deferred", "_exit", "_changes"} <= stores
    found = [
        f"{name_of(path)}:{node.lineno}: {node.attr}"
        for path in PYTHON
        if name_of(path) != "capture/vm/effects.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in stores
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert found == []


# -- hooks and payloads -----------------------------------------------------------------------------------------------
def texts_that_select(node: ast.AST) -> Iterator[str]:
    """Yield the strings that a subscript, a dict display or a call of `models` or of a `get` selects by."""
    if isinstance(node, ast.Subscript):
        parts: list[ast.AST | None] = [node.slice, *(node.slice.elts if isinstance(node.slice, ast.Tuple) else ())]
    elif isinstance(node, ast.Dict):
        parts = [*node.keys]
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        parts = [*node.args] if name in ("models", "get", "write", "drop") else []
    else:
        parts = []
    yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


@pytest.mark.parametrize("path", [path for path in PYTHON if "capture" in path.parts], ids=name_of)
def test_nothing_is_kept_under_a_name_in_angle_brackets(path: Path) -> None:
    """Tables of `capture/vm/model.py` and payloads have types, which mypy checks."""
    tree = ast.parse(path.read_text())
    found = [text for node in ast.walk(tree) for text in texts_that_select(node) if re.fullmatch(r"<[\w' ]+>", text)]
    assert found == []


def test_what_models_remember_of_objects_has_types() -> None:
    """`Entity.payload` is an object of a class that `payload_as` names; there is no `note` of any type beside it."""
    found = []
    for path in PYTHON:
        tree = ast.parse(path.read_text())
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "note" and id(node) not in called:
                found.append(f"{name_of(path)}:{node.lineno}")
            if isinstance(node, ast.keyword) and node.arg == "note":
                found.append(f"{name_of(path)}:{node.value.lineno}")
    assert found == []
    heap = (PACKAGE / "capture/vm/heap.py").read_text()
    assert "self.payload: object = None" in heap
