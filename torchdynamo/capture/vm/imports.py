"""The import statement, executed for real: the program is at the point of importing."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm import process_settings
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source, instance_attr
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def import_module(vm: Machine, frame: Frame, name: str, level: int, names: Value) -> Value:
    """Execute `import name`. A module that is not imported yet is imported now: the program is about to do so."""
    package = frame.globals.real.get("__package__") or ""
    base = package.rsplit(".", level - 1)[0] if level else ""
    full = f"{base}.{name}".strip(".") if level else name
    module = sys.modules.get(full) or first_import(vm, full)
    if not issubclass(type(module), types.ModuleType):  # anything may stand in `sys.modules`
        raise Break("import in frame", name=full)
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        raise Break("import in frame", name=full)
    if names.__class__ is Known and names.obj and "__path__" in module.__dict__:
        import_parts(vm, full, module, names.obj)
    if names.__class__ is Known and not names.obj:
        module = sys.modules[full.partition(".")[0]] if not level else module
        full = full.partition(".")[0] if not level else full
    modules = Source("pinned", None, Pinned(sys.modules))
    vm.guard(Source("key", modules, full), "ID_MATCH", module)
    return Known(module, Source("module", None, module.__name__) if module.__name__ in sys.modules else None)


def first_import(vm: Machine, name: str) -> types.ModuleType:
    """Import a module for real, once in a process. A guard holds that a missing one stays missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Break("import in frame", name=name) from error
        known = instance_attr(Source("module", None, "sys"), "modules")
        vm.guard(known, "NO_KEY", error.name)
        process_settings.guard_finders(vm, error.name.rpartition(".")[0])
        missing = vm.error(ModuleNotFoundError, *error.args)
        vm.effects.write(vm.entity(missing.value), "name", Known(error.name))
        raise missing from None
    except Exception as error:  # anything: it is what the module's own code raises; Python will raise it again
        raise Break("import in frame", name=name) from error


def import_parts(vm: Machine, full: str, module: types.ModuleType, names: tuple[str, ...]) -> None:
    """Import the submodules that `from package import names` asks for and the package does not have yet."""
    for name in names:
        if name != "*" and not hasattr(module, name):
            try:
                importlib.import_module(f"{full}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{full}.{name}":
                    raise Break("import in frame", name=full) from error
                process_settings.guard_finders(vm, full)
            except Exception as error:  # as above
                raise Break("import in frame", name=full) from error
