"""Name what an entry rests on and no guard sees: the frame's code, the environment, the compiler's settings."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.library

from torchdynamo import _native, config
from torchdynamo.backends.cache_key import digest_of_sources
from torchdynamo.cache.store.hashes import hash_of
from torchdynamo.cache.store.sites import contents
from torchdynamo.cache.store.values import NotStorable, encode
from torchdynamo.codegen import resume
from torchdynamo.core import marks
from torchdynamo.core.naming import OWN, class_name
from torchdynamo.core.processor import first_processor
from torchdynamo.core.source import Roots
from torchdynamo.graph import torch_compat
from torchdynamo.graph.foreign_kernels import foreign_kernels

NO_MATTER = ("cache", "debug", "progress", "verbose")
"""Settings that do not change what is compiled."""


class FrameKey(NamedTuple):
    """Under which name the entries of a frame are kept."""

    name: str
    parts: dict[str, str]
    """Parts of a key besides the environment; the entry's folder is named by a digest of all."""


def frame_key(code: CodeType, roots: Roots, backend: str, settings: tuple[Any, ...]) -> FrameKey:
    """Return the key of a frame. Raises NotStorable for a setting that is no value.

    settings: what the backend was given.
    """
    of_code = parts_of_code(code, str(roots.globals.get("__name__")))
    of_call = {**parts_of_call(roots), **parts_of_compiler(backend, settings)}
    parts = {**of_code, **of_call, **parts_of_process(backend)}
    return FrameKey(_digest(environment(), *(f"{name}={value}" for name, value in parts.items())), parts)


def parts_of_code(code: CodeType, module: str) -> dict[str, str]:
    """Return what a key says of the code itself. module: the name of the module whose globals it runs with."""
    shape = resume.shape_of(code)
    return {
        "code": hash_of(resume.origin(code).code),
        "module": module,
        "continuation": "" if shape is None else repr(tuple(shape)),
    }


def parts_of_call(roots: Roots) -> dict[str, str]:
    """Return what a key says of the objects that a frame is called with: their classes, and the code of functions.

    Entries of models whose methods one decorator wraps, or one class calls, share all code: here they part.
    """
    return {
        "arguments": " ".join(f"{name}={_kind(obj)}" for name, obj in roots.locals.items()),
        "closure": " ".join(f"{name}={'+'.join(map(_kind, contents(cell)))}" for name, cell in roots.closure.items()),
    }


def _kind(obj: Any) -> str:
    """Return what an object is, without asking it."""
    if type(obj) is FunctionType:
        return hash_of(obj.__code__)
    cls = obj if issubclass(type(obj), type) else type(obj)
    module = OWN.__get__(cls).get("__module__")
    return f"{module if type(module) is str else ''}.{class_name(cls)}"


def _digest(*texts: str) -> str:
    joined = "\0".join(f"{len(text)} {text}" for text in texts)
    return hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def parts_of_compiler(backend: str, settings: tuple[Any, ...]) -> dict[str, str]:
    """Return a backend's name and the settings it was given, as parts of a key.

    Raises NotStorable for a setting that is no value: a function, an object.
    """
    return {"backend": backend, "settings": _text(settings)}


def _text(setting: Any) -> str:
    """Return a setting as text that is equal in every process. Raises NotStorable for one that is no value."""
    plain = _items(setting)
    encode(plain, _no_value)
    return repr(_sorted(plain))


def _sorted(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_sorted, value))
    return ("frozenset", *sorted(map(repr, map(_sorted, value)))) if type(value) is frozenset else value


def _items(setting: Any) -> Any:
    """Return a setting with mappings and lists as tuples."""
    if isinstance(setting, Mapping):
        return "mapping", tuple(sorted((str(name), _items(value)) for name, value in setting.items()))
    return tuple(map(_items, setting)) if isinstance(setting, (list, tuple)) else setting


def _no_value(obj: Any) -> tuple[bytes, int]:
    raise NotStorable(f"a setting is a {type(obj).__name__}, which no other process can compare")


def parts_of_process(backend: str) -> dict[str, str]:
    """Return what the process has set that decides about captures, and about what a backend compiles.

    Raises NotStorable for a setting of this package that is no value.
    """
    marked = sorted(f"{kind}:{_name(obj)}" for kind, found in _MARKS.items() for obj in found)
    return {
        **{f"config.{name}": _text(value) for name, value in config.knobs().items() if name not in NO_MATTER},
        "marked functions": ", ".join(marked),
        "smallest number": repr(sys.float_info.min / 2),  # 0.0 under torch.set_flush_denormal
        "settings of Inductor": inductor_settings(),
        "distributed": str(backend != "eager" and dist.is_available() and dist.is_initialized()),  # ddp_buckets.py
        "threads": "" if backend == "eager" else str(torch.get_num_threads()),  # compiled loops are divided among them
    }


def inductor_settings() -> str:
    """Return Inductor's variables, and settings of Inductor and AOTAutograd that are not the defaults.

    None are, if they are not imported.
    """
    variables = [
        (name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith(("TORCHINDUCTOR_", "TORCH_COMPILE_")) and name != "TORCHINDUCTOR_CACHE_DIR"
    ]
    found = (sys.modules.get(name) for name in ("torch._inductor.config", "torch._functorch.config"))
    changed = (torch_compat.changed_settings(each) if each is not None else "[]" for each in found)
    return f"{variables} {' '.join(changed)}"


_MARKS = {
    "disabled": marks.DISABLED,
    "skipped": marks.SKIPPED,
    "allowed": marks.ALLOWED,
    "disallowed": marks.DISALLOWED,
    "constant": marks.CONSTANT,
}


def _name(obj: Any) -> str:
    return f"{getattr(obj, '__module__', '')}.{getattr(obj, '__qualname__', getattr(obj, 'co_qualname', ''))}"


def check_kernels() -> None:
    """Raise NotStorable if the program has put kernels in the place of torch's: nothing says what they do."""
    for name in foreign_kernels():
        raise NotStorable(f"a kernel of the program's is in the place of torch's ({name})")


@functools.cache
def environment() -> str:
    """Return a digest of the interpreter, torch, this package and the processor."""
    return _digest(*(f"{name}={value}" for name, value in facts_of_environment().items()))


def facts_of_environment() -> dict[str, str]:
    """Return what the key of the environment is made of, for people too."""
    return {
        "python": sys.version,
        "flags": str(sys.flags),
        "implementation": str(sys.implementation.cache_tag),
        "torch": torch_compat.build(),
        "torchdynamo": digest_of_sources(),
        "extension": str(_extension()),
        "machine": f"{sys.platform} {platform.machine()}",
        "processor": _processor(),
        "instructions": f"{torch.backends.cpu.get_cpu_capability()} {' '.join(map(_set, _NARROWER))}",
    }


_NARROWER = ("ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")
"""Variables by which torch and NumPy use fewer of the processor's instructions."""


def _set(name: str) -> str:
    return os.environ.get(name, "")


def _extension() -> str:
    """Return what tells the builds of our extension apart: its size, and its beginning, which holds the build's id."""
    with open(_native.__file__, "rb") as file:
        return f"{os.fstat(file.fileno()).st_size} {hashlib.blake2b(file.read(1 << 14), digest_size=16).hexdigest()}"


def _processor() -> str:
    """Return the processor's instruction sets, where the system tells them."""
    try:
        text = first_processor()
    except OSError:
        return platform.processor()
    lines = (line for line in text.splitlines() if line.startswith(("flags", "Features")))
    return " ".join(sorted(next(lines, "").partition(":")[2].split()))
