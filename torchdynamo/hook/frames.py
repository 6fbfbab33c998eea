"""Which frames are worth capturing, and why the others are not: a table, read from top to bottom.

A reason is the id of a row in `reasons.py`. Code from site-packages is user code like any other.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from types import CodeType
from typing import Any, NamedTuple

from torchdynamo import config


class Rule(NamedTuple):
    """A kind of frame that is left to Python."""

    reason: str
    applies: Callable[[CodeType, Mapping[str, Any]], bool]


def _folder(path: str) -> str:
    return os.path.join(os.path.realpath(path), "")


def _package_folder(name: str) -> str | None:
    spec = find_spec(name)
    return _folder(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


_OURS = _folder(os.path.dirname(os.path.dirname(__file__)))
_TORCH = _package_folder("torch")
_STDLIB = tuple({_folder(sysconfig.get_path(which)) for which in ("stdlib", "platstdlib")})
_SITE = ("site-packages", "dist-packages")
_NN_MODULES = os.path.join("nn", "modules", "")
_OPTIMIZERS = os.path.join("optim", "")


@cache
def _file(filename: str) -> str:
    """The file a code object names, as one absolute path; names that are no file (`<string>`) stay as they are."""
    return filename if filename.startswith("<") else os.path.realpath(filename)


def _from_torchdynamo(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    return _file(code.co_filename).startswith(_OURS)


def _in_torch(file: str) -> str | None:
    """The path below torch's folder, if the file is there."""
    return file[len(_TORCH) :] if _TORCH is not None and file.startswith(_TORCH) else None


def _from_torch(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    """torch's Python, but for the `forward` of its layers and the `step` of its optimizers: as good as the user's."""
    path = _in_torch(_file(code.co_filename))
    if path is None:
        return False
    is_layer = path.startswith(_NN_MODULES) and os.path.basename(path) != "module.py" and code.co_name == "forward"
    is_update = path.startswith(_OPTIMIZERS) and os.path.basename(path) != "lr_scheduler.py" and code.co_name == "step"
    return not (is_layer or is_update)


def _made_by_torch(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    """Source that torch generated at run time, and bytecode that torch.compile rewrote."""
    module = f_globals.get("__name__")
    generated = isinstance(module, str) and module.startswith("torch.") and _in_torch(_file(code.co_filename)) is None
    return generated or any(name.startswith("__compiled_fn_") for name in code.co_names)


def _from_stdlib(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    file = _file(code.co_filename)
    if file.startswith("<frozen "):
        return True
    below = next((file[len(folder) :] for folder in _STDLIB if file.startswith(folder)), None)
    return below is not None and not below.startswith(_SITE)


def _made_by_stdlib(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    """The methods that dataclasses and namedtuples get, which are compiled from strings."""
    made_by_dataclass = getattr(code, "co_qualname", "").startswith("__create_fn__.")
    return code.co_filename.startswith("<string") and (
        made_by_dataclass or str(f_globals.get("__name__")).startswith("namedtuple_")
    )


def _flag(*flags: int) -> Callable[[CodeType, Mapping[str, Any]], bool]:
    mask = sum(flags)
    return lambda code, _: bool(code.co_flags & mask)


def _is_module_body(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    return not code.co_flags & inspect.CO_NEWLOCALS and code.co_name == "<module>"


def _is_class_body(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    return not code.co_flags & inspect.CO_OPTIMIZED


def _has_strange_globals(code: CodeType, f_globals: Mapping[str, Any]) -> bool:
    """`eval(code, names)` takes instances of subclasses of dict, which may say themselves what a name is."""
    return type(f_globals) is not dict


RULES = (
    Rule("torchdynamo", _from_torchdynamo),
    Rule("torch internals", _from_torch),
    Rule("torch internals", _made_by_torch),
    Rule("stdlib", _from_stdlib),
    Rule("stdlib", _made_by_stdlib),
    Rule("coroutine", _flag(inspect.CO_COROUTINE, inspect.CO_ITERABLE_COROUTINE, inspect.CO_ASYNC_GENERATOR)),
    Rule("generator", _flag(inspect.CO_GENERATOR)),
    Rule("module body", _is_module_body),
    Rule("class body", _is_class_body),
    Rule("strange globals", _has_strange_globals),
)

_wanted: dict[int, weakref.ref[CodeType]] = {}


def always_capture(code: CodeType) -> CodeType:
    """Exempt one code object from the rules, as continuations are: they belong to a frame that was captured."""
    key = id(code)  # code objects compare by content, which two frames can share
    _wanted[key] = weakref.ref(code, lambda _: _wanted.pop(key, None))
    return code


def skip_reason(code: CodeType, f_globals: Mapping[str, Any]) -> str | None:
    """Why frames of this code are not captured, or None if they are."""
    wanted = _wanted.get(id(code))
    if wanted is not None and wanted() is code:
        return None
    return next((rule.reason for rule in RULES if not waived(rule) and rule.applies(code, f_globals)), None)


def waived(rule: Rule) -> bool:
    """The library is like anybody's code when everything is captured."""
    return config.capture_everything and rule.reason == "stdlib"
