"""Functions that the frame makes, their cells, and the namespaces in which functions look up names."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.frame import Frame, FunctionParts, Globals, MadeFunction
from torchdynamo.capture.vm import dict_aliases, finalizers
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import ABSENT, Lazy, Object, Value
from torchdynamo.hook.stock import REAL, Seen

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def make_function(vm: Machine, code: types.CodeType, space: Globals, given: dict[str, Value]) -> Object:
    """Make the function object of MAKE_FUNCTION; `given` holds its defaults, closure and annotations by name."""
    closure: dict[str, Value] = {}
    if "closure" in given:
        closure = dict(zip(code.co_freevars, vm.iterate(given["closure"])))
    defaults = list(vm.iterate(given["defaults"])) if "defaults" in given else []
    named: dict[str, Value] = {}
    if "kwdefaults" in given:
        named = {vm.known(key, "keyword"): value for key, value in vm.dict_items(given["kwdefaults"])}

    def qualname() -> str:
        return str(vm.known(vm.getattr(made, "__qualname__"), "name"))

    parts = FunctionParts(
        code, space, qualname, len(defaults), defaults.__getitem__, frozenset(named), named.__getitem__, closure
    )
    made = vm.new(types.FunctionType, payload=MadeFunction(parts, given))
    return made


def wrap_cell(vm: Machine, cell: types.CellType, source: Source | None) -> Value:
    """Return the value of a cell that existed at entry."""
    found = vm.heap.by_id.get(id(cell))
    if found is not None:
        first = vm.entity(found).source
        if first is not None and source is not None and first is not source:
            vm.guard(source, "SAME_OBJECT", first)
        return found
    return vm.heap.adopt(cell, source or Source("pinned", None, Pinned(cell)))


def new_cell(vm: Machine, frame: Frame, name: str) -> Object:
    """Make a cell variable of a frame, which holds the argument of that name if there is one."""
    value = frame.locals.pop(name, None)
    cell = vm.new(types.CellType, payload=name if frame.root else None)
    if value is not None:
        vm.effects.write(vm.entity(cell), "cell_contents", value)
    return cell


def cell_get(vm: Machine, cell: Object) -> Value | None:
    """Return the contents of a cell; None if it is empty."""
    entity = vm.entity(cell)
    value = entity.attrs.get("cell_contents")
    if value is None and entity.real is not MISSING:
        value = entity.loaded.get("cell_contents")
        if value is None:
            assert entity.source is not None
            try:
                real = entity.real.cell_contents
            except ValueError:
                vm.guard(entity.source, "UNBOUND")
                return None
            value = entity.loaded["cell_contents"] = vm.wrap(real, Source("contents", entity.source))
    if value.__class__ is Lazy:
        value = vm.look(value)
        if "cell_contents" in entity.attrs:
            vm.effects.look(entity, "cell_contents", value)
        else:
            entity.loaded["cell_contents"] = value
    return None if value is ABSENT else value


def cell_set(vm: Machine, cell: Object, value: Value) -> None:
    """Put a value into a cell."""
    entity = vm.entity(cell)
    if entity.source is not None and entity.real is not MISSING and "cell_contents" not in entity.attrs:
        finalizers.let_go_at(vm, entity.source, entity.real, None)
    vm.effects.write(entity, "cell_contents", value)


def globals_of(vm: Machine, fn: types.FunctionType, source: Source | None) -> Globals:
    """Return the namespace in which a function looks up its names."""
    function: Any = fn  # of which not every description says that it has builtins
    real = function.__globals__
    if type(real) is not dict:
        raise Break("unsupported type", type=type(real).__name__)
    builtins = function.__builtins__
    told = Source("builtins")
    if builtins is REAL and vm.roots.builtins.__class__ is Seen:
        builtins = vm.roots.builtins
    if builtins is not vm.roots.builtins:
        told = Source("attr", source or Source("pinned", None, Pinned(fn)), "__builtins__")
    if real is vm.roots.globals:
        return guarded_globals(vm, source, Globals(real, Source("globals"), builtins, told))
    if (fn.__module__ or "").startswith("torchdynamo.capture."):
        return Globals(real, None, builtins)
    module = sys.modules.get(real.get("__name__", ""))
    if module is not None and module.__dict__ is real:
        space = Source("dict", Source("module", None, module.__name__))
        return guarded_globals(vm, source, Globals(real, space, builtins, told))
    if source is None:
        source = Source("pinned", None, Pinned(fn))
    return guarded_globals(vm, None, Globals(real, Source("attr", source, "__globals__"), builtins, told))


def guarded_globals(vm: Machine, fn: Source | None, space: Globals) -> Globals:
    """Guard the namespace of a function, which is found by its code: functions of two modules may share that."""
    if id(space.real) not in vm.aliased_dicts:
        dict_aliases.note_lookup(vm, space.real, space.source)
    if fn is not None and space.source is not None:
        vm.guard(Source("attr", fn, "__globals__"), "SAME_OBJECT", space.source)
    return space
