"""Name a graph, a machine and the versions at work, so that another process finds what was measured."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.core.processor import first_processor
from torchdynamo.graph.modes import Modes

_PACKAGES = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "torch_tensorrt": "torch-tensorrt",
    "tvm": "apache-tvm",
}
"""Modules, and the packages that they are installed by."""
_OWNERS = ("torch", "torch.nn.functional", "torch._C._nn", "torch._C._VariableFunctions", "builtins")
_LITERALS = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout)


Numbers = dict[torch.fx.Node, int]
"""Positions of nodes in their graph."""


class HasNoName(Exception):
    """Raised for a value that has no name by which another process knows it."""


def graph_hash(subgraph: Subgraph) -> str | None:
    """Return a hash of a graph and what its speed depends on; None if a value in it has no name.

    It covers operators, arguments, inputs' metadata, which inputs are static, results, modes and the permission to make
    constants, and nothing that differs between two processes: no names of nodes, ids or contents of tensors.
    """
    try:
        numbers = {node: index for index, node in enumerate(subgraph.gm.graph.nodes)}
        functions: dict[Any, str] = {}
        lines = [_line(node, numbers, functions) for node in numbers]
    except HasNoName:
        return None
    inputs = [
        _described(value, bool(node.meta.get("static_input")))
        for node, value in zip(subgraph.placeholders, subgraph.example_inputs, strict=True)
    ]
    modes = Modes.now(), torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled()
    text = "\n".join([*lines, *inputs, repr(modes), repr(subgraph.constants), repr(subgraph.wants_gradients)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _line(node: torch.fx.Node, numbers: Numbers, functions: dict[Any, str]) -> str:
    """Return a node as text. functions: those that nodes before have called, with their names."""
    if node.op == "call_function":
        target = functions.get(node.target) or functions.setdefault(node.target, _target(node))
    else:
        target = "" if node.op in ("placeholder", "output") else _target(node)
    return f"{node.op} {target} {_sequence(node.args, numbers)} {_mapping(node.kwargs, numbers)}"


def _target(node: torch.fx.Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    if node.op == "get_attr":
        owner: Any = node.graph.owning_module
        for part in str(node.target).split("."):
            owner = getattr(owner, part, None)
        return _described(owner, True)
    return node.target if isinstance(node.target, str) else name_of(node.target)


def name_of(value: Any) -> str:
    """Return the name under which a function or class can be imported, or a method in C be found in its class.

    Raises HasNoName if there is none.
    """
    home = getattr(getattr(value, "__objclass__", None), "__module__", None)
    for owner in (getattr(value, "__module__", None), home, *_OWNERS):
        for name in (getattr(value, "__qualname__", None), getattr(value, "__name__", None)):
            if isinstance(owner, str) and isinstance(name, str) and _found(owner, name) is value:
                return f"{owner}.{name}"
    raise HasNoName(repr(value))


def _found(owner: str, name: str) -> Any:
    found: Any = sys.modules.get(owner) or functools.reduce(_part, owner.split(".")[1:], torch)
    return functools.reduce(_part, name.split("."), found)


def _part(owner: Any, name: str) -> Any:
    return getattr(owner, name, None)


def _argument(value: Any, numbers: Numbers) -> str:
    cls: Any = type(value)
    if cls is torch.fx.Node:
        return f"%{numbers[value]}"
    return _writer(cls)(value, numbers)


def _sequence(value: Sequence[Any], numbers: Numbers) -> str:
    return f"({','.join([_argument(item, numbers) for item in value])})"


def _mapping(value: Mapping[str, Any], numbers: Numbers) -> str:
    return f"({','.join([f'{key}={_argument(item, numbers)}' for key, item in value.items()])})"


def _slice(value: slice, numbers: Numbers) -> str:
    return f"slice{_sequence((value.start, value.stop, value.step), numbers)}"


Writer = Callable[[Any, Numbers], str]
_WRITERS: dict[type, Writer] = {
    **dict.fromkeys(_LITERALS, lambda value, numbers: f"{type(value).__name__}:{value!r}"),
    tuple: _sequence,
    list: _sequence,
    dict: _mapping,
    slice: _slice,
    object: lambda value, numbers: name_of(value),
}
"""How an argument of each class is written; that of a subclass as its first base here."""


@functools.lru_cache(256)
def _writer(cls: type) -> Writer:
    return next(_WRITERS[each] for each in cls.__mro__ if each in _WRITERS)


def _described(value: Any, static: bool) -> str:
    """Return a tensor's metadata, or a number's type, as text."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat)):
            return type(value).__name__
        raise HasNoName(repr(type(value)))
    layout = tuple(value.shape), tuple(value.stride()) if value.layout is torch.strided else ()
    return f"{type(value).__name__} {value.dtype} {layout} {value.device.type} {value.requires_grad} {static}"


@functools.cache
def _processor() -> str:
    """Return the maker's name of the CPU, with family and model where they are told."""
    try:
        text = first_processor()
    except OSError:
        return platform.processor() or platform.machine()
    facts = dict(part.split(":", 1) for part in text.splitlines() if ":" in part)
    known = {key.strip(): value.strip() for key, value in facts.items()}
    return " ".join(known.get(key, "") for key in ("model name", "cpu family", "model"))


def fingerprint() -> str:
    """Return what measured times depend on: CPU, its instructions in use, cores, threads, GPU."""
    parts = [_processor(), torch.backends.cpu.get_cpu_capability(), f"{os.cpu_count()} cores"]
    parts.append(f"{torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


OF_INDUCTOR = "inductor "
"""Names of graphs whose rows are sets of Inductor's options begin so."""


def versions_for(graph: str) -> str:
    """Return the versions that measurements of a graph rest on: those of Inductor's options on no optional package."""
    return own_versions() if graph.startswith(OF_INDUCTOR) else versions()


@functools.cache
def own_versions() -> str:
    """Return the versions of Python, PyTorch and this package."""
    own = sys.modules[__name__.partition(".")[0]].__version__
    return f"python {platform.python_version()}, torch {torch.__version__}, torchdynamo-standalone {own}"


@functools.cache
def versions() -> str:
    """Return the versions of Python, PyTorch, this package and the optional packages that are installed."""
    found = [own_versions()]
    for module, name in _PACKAGES.items():
        # Asking for packages that are not there takes longer than looking for their modules.
        if module in sys.modules or importlib.util.find_spec(module) is not None:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)
