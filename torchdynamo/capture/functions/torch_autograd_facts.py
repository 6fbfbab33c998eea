"""Tell what a backward has read of the program's text from what it has read of the program's state.

The text is guarded in the frame: functions, modules, torch itself. All else is a setting, which may change before the
backward runs: it looks at that again. A name that was not there is a setting too, unless the same lookup went on to
where text was found.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.autograd.function import Function

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.policy import is_code
from torchdynamo.core.source import Guard, Pinned, Source
from torchdynamo.core.value import ABSENT

TEXT = (torch.dtype, torch.memory_format, torch.layout)


def is_of_torch(obj: Any) -> bool:
    """Return whether a class or function is torch's, or one of ours that stands for one."""
    return str(getattr(obj, "__module__", "")).partition(".")[0] in ("torch", "torchdynamo")


class TextOfProgram:
    """Know which facts that the machine of a backward has gathered are about text."""

    def __init__(self, vm: Machine) -> None:
        self.vm, self.roots = vm, vm.roots
        self.held = {each.arg for each in vm.guards.values() if each.kind == "TYPE_MATCH"}

    def has(self, guard: Guard) -> bool:
        """Return whether a fact is about text."""
        row = ROWS.get(guard.kind)
        return row is not None and row(self, guard)

    def names(self, guard: Guard) -> bool:
        """Return whether an object found at a source is text: any but a class that is found under a name."""
        obj, source = guard.arg, guard.source
        if not isinstance(obj, type):
            return is_code(obj) or source.arg == "__mro__"
        if is_of_torch(obj) or source.how == "pinned" or self.is_space(source.base, builtins=True):
            return True
        return issubclass(obj, Function) and source.arg == obj.__name__  # as functions that it calls

    def is_space(self, source: Source | None, builtins: bool = False) -> bool:
        """Return whether a source leads to the globals of a module; of `builtins` if asked."""
        if source is None:
            return False
        if builtins:
            return source.how == "builtins" or source.load(self.roots) is BUILTINS
        if source.how == "globals" or source.arg == "__globals__":
            return True
        return source.how == "dict" and type(source.base and source.base.load(self.roots)) is types.ModuleType

    def lacks_key(self, guard: Guard) -> bool:
        """Return whether a name that is not in a module was found among the builtins."""
        return self.is_space(guard.source) and type(guard.arg) is str and guard.arg in BUILTINS

    def class_has(self, guard: Guard) -> bool:
        """Return whether what a class has under a name is text, or nothing where the object has it."""
        name, found = guard.arg
        cls = guard.source.load(self.roots)
        if is_of_torch(cls):
            return True
        if found is ABSENT:
            if name.startswith("__") and name.endswith("__"):
                return cls not in self.held and not issubclass(cls, type)
            return self.is_attribute(cls, name)
        return is_code(found) and (not isinstance(found, type) or is_of_torch(found))

    def is_made_plainly(self, guard: Guard) -> bool:
        """Return whether it is text that a class has had no `__new__`: as that it has none."""
        return self.class_has(guard._replace(arg=("__new__", ABSENT)))

    def is_attribute(self, cls: type, name: str) -> bool:
        """Return whether objects of a class have an attribute of their own, where the backward has looked for it."""
        own = (each.attrs.get(name, ABSENT) for each in self.vm.heap.entities if each.pytype is cls)
        return (cls, name) not in self.vm.not_found and any(value is not ABSENT for value in own)

    def type_is(self, guard: Guard) -> bool:
        return guard.arg is types.ModuleType or (issubclass(guard.arg, type) and guard.source.how == "pinned")

    def is_of_function(self, guard: Guard) -> bool:
        """Return whether a fact is about the globals of a function, or the default arguments of one of torch's."""
        return self.is_space(guard.source) or self.is_default(guard.source)

    def is_default(self, source: Source | None) -> bool:
        if source is None or source.base is None or source.arg not in ("__defaults__", "__kwdefaults__"):
            return False
        return is_of_torch(source.base.load(self.roots))

    def equals(self, guard: Guard) -> bool:
        """Return whether a constant is one of torch's own, a default argument there, or in a cell of its decorators."""
        source = guard.source
        if type(guard.arg) in TEXT and source.arg in vars(torch):
            return True
        if source.how == "contents" and source.base is not None:
            source = source.base
        base = source.base
        if source.how not in ("item", "key") or base is None or base.base is None:
            return False
        if base.arg == "__closure__":
            return str(base.base.load(self.roots).__globals__.get("__name__")).startswith("torch.")
        return self.is_default(base)


BUILTINS = vars(builtins)
# Kind of guard -> whether it is about text. Guards of other kinds never are.
ROWS: dict[str, Callable[[TextOfProgram, Guard], bool]] = {
    "FUNCTION_MATCH": TextOfProgram.names,
    "ID_MATCH": TextOfProgram.names,
    "NO_KEY": TextOfProgram.lacks_key,
    "CLASS_ATTR": TextOfProgram.class_has,
    "PLAIN_MAKER": TextOfProgram.is_made_plainly,
    "TYPE_MATCH": TextOfProgram.type_is,
    "SAME_OBJECT": TextOfProgram.is_of_function,
    "LENGTH": TextOfProgram.is_of_function,
    "EQUALS_MATCH": TextOfProgram.equals,
}


def default_dtype_read(graph: torch.fx.Graph) -> Iterator[Guard]:
    """Yield the fact that the default dtype is what it is, if a result in a graph has it for want of another."""
    if any(map(has_default_dtype, graph.nodes)):
        read = torch.get_default_dtype
        source = Source("call", Source("pinned", None, Pinned(read)), ())
        yield Guard(source, "EQUALS_MATCH", read())


def has_default_dtype(node: torch.fx.Node) -> bool:
    """Return whether a node makes a tensor of floating point, though no dtype and no such tensor is given to it."""
    made = node.meta.get("example_value")
    if node.op not in ("call_function", "call_method") or not is_float(made):
        return False
    given = [*node.args, *node.kwargs.values()]
    dtypes = any(isinstance(each, torch.dtype) for each in given)
    return not dtypes and not any(is_float(each.meta.get("example_value")) for each in node.all_input_nodes)


def is_float(value: object) -> bool:
    """Return whether a value is a tensor of floating-point or complex numbers, or has one in it."""
    if isinstance(value, (tuple, list)):
        return any(map(is_float, value))
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
