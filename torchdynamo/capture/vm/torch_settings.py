"""Settings of torch.compile as the program has made them, and its registry of backends, if they are imported."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.compiler

from torchdynamo import config

# Settings of torch.compile that have another name, or another place, here.
OURS = {
    "cache_size_limit": "torchdynamo.config.cache_size_limit",
    "recompile_limit": "torchdynamo.config.cache_size_limit",
    "fail_on_cache_limit_hit": "torchdynamo.config.fail_on_recompile_limit_hit",
    "assume_static_by_default": "torchdynamo.compile(dynamic=True)",
    "automatic_dynamic_shapes": "torchdynamo.compile(dynamic=False)",
    "dynamic_sources": "torchdynamo.config.dynamic_sources",
    "dynamic_values": "torchdynamo.config.dynamic_sources",
    "unbacked_sources": "torchdynamo.mark_unbacked",
}
OF_COMPILER = ("dynamic_sources", "dynamic_values", "unbacked_sources")  # of torch.compiler.config, under no other name


class Counterpart(NamedTuple):
    """The name of a setting of torch.compile, what makes its value one of ours, and an older name of it."""

    theirs: str
    taken: Callable[[Any], Any] = bool
    alias: str = ""


# By the name here: settings of torch.compile that have their effect while torchdynamo is installed behind it.
COUNTERPARTS = {
    "cache_size_limit": Counterpart("recompile_limit", int, alias="cache_size_limit"),
    "fail_on_recompile_limit_hit": Counterpart("fail_on_recompile_limit_hit", alias="fail_on_cache_limit_hit"),
    "error_on_recompile": Counterpart("error_on_recompile"),
    "capture_scalar_outputs": Counterpart("capture_scalar_outputs"),
    "capture_dynamic_output_shape_ops": Counterpart("capture_dynamic_output_shape_ops"),
    "automatic_dynamic_shapes": Counterpart("automatic_dynamic_shapes"),
    "dynamic_shapes": Counterpart("assume_static_by_default", operator.not_),
    "verbose": Counterpart("verbose"),
}
FOLLOWED = {name for row in COUNTERPARTS.values() for name in (row.theirs, row.alias)}
AS_HERE = {"suppress_errors": True, "disable": True}  # these values say what is done here


def followed(name: str, default: Any) -> Any:
    """Return what the program has set for torch.compile under the name of a setting of ours."""
    theirs: Any = sys.modules.get("torch._dynamo.config")
    row = COUNTERPARTS.get(name)
    if row is None or not hasattr(theirs, row.theirs):  # not imported, or not to its end; or of another version
        return default
    return row.taken(getattr(theirs, row.theirs))


def settings_of_torch() -> dict[str, str]:
    """Return the changed settings of torch.compile that do nothing, with the name of each here; "" if it has none."""
    theirs: Any = sys.modules.get("torch._dynamo.config")
    own = config.knobs()
    found = {name: OURS[name] for name in OF_COMPILER if getattr(torch.compiler.config, name, "")}
    said = {f"torch.compiler.config.{name}": here for name, here in found.items()}
    if asks_other_processes():
        said["torch.compiler.set_enable_guard_collectives"] = ""
    if not hasattr(theirs, "_config"):  # not imported, or not to its end
        return said
    rows = theirs._config.items()  # what a block has set back has been changed as well, and is as it was
    changed = [name for name, row in rows if not theirs._is_default(name) and getattr(theirs, name) != row.default]
    known = {name: OURS.get(name, f"torchdynamo.config.{name}" if name in own else "") for name in changed}
    return said | {
        f"torch._dynamo.config.{name}": here
        for name, here in known.items()
        if not (name in FOLLOWED and config.is_following()) and not is_as_here(name, getattr(theirs, name), own)
    }


def asks_other_processes() -> bool:
    """Return whether `torch.compiler.set_enable_guard_collectives(True)` is on. It can be read by setting it only."""
    put: Any = getattr(sys.modules.get("torch._C._dynamo.eval_frame"), "set_guard_complete_hook", None)
    asking = put(None) if put is not None else None
    if asking is not None:
        put(asking)
    return asking is not None


def is_as_here(name: str, value: Any, own: Mapping[str, Any]) -> bool:
    """Return whether a value of a setting of torch.compile asks for what is done here anyway."""
    return any(name in known and known[name] == value for known in (AS_HERE, own))


def is_switched_off() -> bool:
    """Return whether `torch._dynamo.config.disable` is set, or its environment variable."""
    theirs: Any = sys.modules.get("torch._dynamo.config")
    if not hasattr(theirs, "disable"):  # not imported, or not to its end
        return os.environ.get("TORCH_COMPILE_DISABLE") == "1"
    return bool(theirs.disable)


def forget_names() -> None:
    """Make torch.compile look up PyTorch's functions by name once more, after one of them was put back."""
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    variables: Any = sys.modules.get("torch._dynamo.variables.torch")
    if rules is not None and variables is not None:
        rules.get_torch_obj_rule_map.cache_clear()
        variables.TorchInGraphFunctionVariable._get_handlers.cache_clear()


REGISTRY = "torch._dynamo.backends.registry"


def default_backend() -> Any:
    """Return what the program has set by `torch.compiler.set_default_backend`, a name or a function; or "inductor"."""
    asked: Any = getattr(sys.modules.get(REGISTRY), "get_default_backend", None)
    return "inductor" if asked is None else asked()


def registered_backend(name: str) -> Callable[..., Any] | None:
    """Return the backend that was registered with PyTorch under a name; None if there is none."""
    functions: Any = getattr(sys.modules.get(REGISTRY), "_COMPILER_FNS", {})
    found: Callable[..., Any] | None = functions.get(name)
    return found
