"""Take from the Python module that Inductor writes for a graph what its entry, `call`, reaches.

Imports, example inputs, benchmarks and the compilation of kernels are left behind. Each name that remains must be in
the closed table of `namespace.py`, a kernel, a constant of the graph, or defined in the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from torchdynamo.backends.artifacts.artifact import BadArtifact, CannotStore
from torchdynamo.backends.artifacts.inductor.namespace import BUILTINS, EXTERNS, NAMES, OF_DEVICES
from torchdynamo.backends.artifacts.operators import of_torch

ENTRY = "call"
COMPILER = "async_compile"
CPP, TRITON = "cpp_pybinding", "triton"  # its methods
LAUNCH = "run"  # the method of a Triton kernel that launches it
IGNORED = (f"{COMPILER}.wait(globals())", f"del {COMPILER}")
OPERATORS = {"aten": "aten", "inductor_ops": "inductor", "_quantized": "_quantized"}  # name -> namespace
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign


class WrapperCode(NamedTuple):
    """The code of a graph, and the names in it that are given to it."""

    source: str
    kernels: tuple[str, ...]  # in C++
    launched: tuple[str, ...]  # kernels of Triton
    constants: tuple[str, ...]
    externs: tuple[str, ...]  # attributes of `extern_kernels`


def read(source: str) -> WrapperCode:
    """Return what the entry of a module reaches. Raises CannotStore for a name that has no meaning without Inductor."""
    definitions, origins = definitions_of(ast.parse(source))
    if ENTRY not in definitions:
        raise CannotStore(f"Inductor's code has no {ENTRY!r}")
    kept: dict[str, Definition] = {}
    kernels: dict[str, str] = {}  # by name: who compiles it
    constants: list[str] = []
    used = Names()
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in kept or name in kernels or name in constants:
            continue
        node = definitions.get(name)
        if node is None:
            check_given(name, origins)
        elif compiler := compiler_of(node):
            kernels[name] = compiler
        elif is_constant(node):
            constants.append(name)
        elif name in NAMES:
            check_given(name, origins)
        else:
            kept[name] = node
            waiting.extend(used.read(node))
    for name, compiler in kernels.items():
        if used.attributes.get(name, set()) - ({LAUNCH} if compiler == TRITON else set()):
            raise CannotStore(f"Inductor's code uses an attribute of the kernel {name!r}")
        if compiler == TRITON and name in used.whole:
            raise CannotStore(f"Inductor's code does something else with the kernel {name!r} than launch it")
    body = [node for node in definitions.values() if node in kept.values()]
    text = ast.unparse(ast.Module(body=list(dict.fromkeys(body)), type_ignores=[]))
    in_cpp, launched = (tuple(sorted(name for name in kernels if kernels[name] == each)) for each in (CPP, TRITON))
    return WrapperCode(text, in_cpp, launched, tuple(sorted(constants)), tuple(sorted(used.externs)))


def definitions_of(module: ast.Module) -> tuple[dict[str, Definition], dict[str, str]]:
    """Return the definitions of a module, and what each imported or assigned name comes from."""
    definitions: dict[str, Definition] = {}
    origins: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.Import):
            origins.update({each.asname or each.name: each.name for each in node.names})
        elif isinstance(node, ast.ImportFrom):
            origins.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            define(definitions, node.name, node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            define(definitions, node.targets[0].id, node)
            origins[node.targets[0].id] = ast.unparse(node.value)
        elif not is_ignored(node):
            raise CannotStore(f"Inductor's code does {ast.unparse(node).splitlines()[0]!r} when it is loaded")
    return definitions, origins


def define(definitions: dict[str, Definition], name: str, node: Definition) -> None:
    if name in definitions:
        raise CannotStore(f"Inductor's code defines {name!r} twice")
    definitions[name] = node


def is_ignored(node: ast.stmt) -> bool:
    """Return whether a statement is about compiling or measuring, or says nothing."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return ast.unparse(node) in IGNORED


def compiler_of(node: Definition) -> str:
    """Return which compiler a definition asks for a kernel; "" for other definitions. Raises CannotStore for compilers
    whose kernels cannot be written.
    """
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return ""
    path = path_of(node.value.func)
    if path[:1] != [COMPILER]:
        return ""
    if path[1:] not in ([CPP], [TRITON]):
        raise CannotStore(f"a kernel is compiled by {'.'.join(path)}")
    return path[1]


def is_constant(node: Definition) -> bool:
    """Return whether a definition is a tensor that the graph has as a constant: Inductor sets it afterwards."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None


def check_given(name: str, origins: dict[str, str]) -> None:
    """Raise CannotStore for a name that does not stand for what the table says."""
    if name == EXTERNS or (name in BUILTINS and name not in origins):
        return
    known, origin = NAMES.get(name), origins.get(name, "not known")
    if known is None or not (origin.endswith(known.origin) if known.origin.startswith(".") else origin == known.origin):
        raise CannotStore(f"Inductor's code uses {name!r}, which is {origin}")


def path_of(node: ast.expr) -> list[str]:
    """Return the names of `a.b.c`; none if it does not begin with a name."""
    if isinstance(node, ast.Attribute):
        before = path_of(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


class Names:
    """Collects what definitions read, and checks the attributes of what is given to them."""

    def __init__(self) -> None:
        self.externs: set[str] = set()
        self.attributes: dict[str, set[str]] = {}  # by name: those that were asked for
        self.whole: set[str] = set()  # names that are used in another way

    def read(self, definition: Definition) -> Iterator[str]:
        """Yield the names that a definition reads and does not bind itself."""
        bound = set(bound_in(definition))
        inner = {id(each.value) for each in ast.walk(definition) if isinstance(each, ast.Attribute)}
        for node in ast.walk(definition):
            if isinstance(node, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
                raise CannotStore(f"Inductor's code does {ast.unparse(node)!r} in {definition_name(definition)}")
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                path = path_of(node)
                if path and path[0] not in bound:
                    self.check(path)
                elif any(part.startswith("_") for part in path[1:]) or node.attr.startswith("_"):
                    raise CannotStore(f"Inductor's code uses {ast.unparse(node)!r}")
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
                if id(node) not in inner:
                    self.whole.add(node.id)
                yield node.id

    def check(self, path: list[str]) -> None:
        """Check the attributes of a name that is not bound in the function."""
        owner, *rest = path
        self.attributes.setdefault(owner, set()).update(rest[:1])
        if owner == EXTERNS:
            self.externs.add(rest[0])
        elif owner == "torch" and rest in OF_DEVICES:
            pass
        elif owner == "torch" or owner in OPERATORS:
            try:
                of_torch(rest if owner == "torch" else ["ops", OPERATORS[owner], *rest])
            except BadArtifact:
                raise CannotStore(f"Inductor's code uses {'.'.join(path)}") from None
        elif any(part.startswith("_") for part in rest) or (owner in NAMES and owner != "math"):
            raise CannotStore(f"Inductor's code uses {'.'.join(path)}")


def bound_in(definition: Definition) -> Iterator[str]:
    """Yield the names that a function or class binds: parameters, variables, functions inside."""
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            yield node.arg
        elif (
            isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and not isinstance(definition, ast.Assign)
        ):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node is not definition:
            yield node.name


def definition_name(definition: Definition) -> str:
    return definition.name if not isinstance(definition, ast.Assign) else ast.unparse(definition.targets[0])
