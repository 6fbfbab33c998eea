"""Calls of a custom `autograd.Function` inside of torch.func: each is one operator of the graph.

PyTorch runs the methods itself there, some of them in each layer, and when a compiler traces the graph. So they are not
followed: what they name is looked at and guarded, and may be nothing but operators, pure functions and constants. Of a
class whose methods do more, or write to what they are given, the graph ends before the call.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.vm import closures, namespaces
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.policy import PURE_TYPES, graph_functions, is_pure, is_torch_operator
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Lazy, Object, Symbol, TensorNode, Value
from torchdynamo.graph.layered_function import layered_function

METHODS = ("forward", "setup_context", "backward", "vjp", "jvp", "vmap")
READS = ("LOAD_ATTR", "LOAD_METHOD")
# What may act on something other than its result
ACTS = frozenset(
    "STORE_GLOBAL DELETE_GLOBAL STORE_DEREF DELETE_DEREF IMPORT_NAME SETITEM DELITEM DELETE_ATTR YIELD SEND WITH_ENTER "
    "LOAD_NAME LOAD_SUPER LOAD_BUILD_CLASS".split()
)
ACTING = frozenset({"mark_dirty", "register_hook", "retain_grad", "data", "grad"})  # by attributes of what is given
BUILTINS = frozenset(map(id, (isinstance, range, enumerate, zip, list, tuple, dict, any, all, reversed, map)))


def call_in_layers(vm: Machine, cls: Known, args: list[Value]) -> Value:
    """Add a call of a custom function to the graph. Raises Break for one that does more than compute."""
    if not all(map(is_plain, args)):
        raise unfollowed(cls)
    check_class(vm, cls, set())
    return vm.emit("call_function", layered_function(cls.obj), args, {})


def unfollowed(cls: Known) -> Break:
    return Break("unknown call", name=f"{cls.obj.__qualname__}.apply")


def is_plain(value: Value) -> bool:
    """Return whether an argument is a tensor or a constant, so that no method can act on an object by it."""
    constant = value.__class__ is Known and type(value.obj) in CONSTANTS
    return constant or value.__class__ is TensorNode or value.__class__ is Symbol


def check_class(vm: Machine, cls: Known, seen: set[type]) -> None:
    """Guard what the methods of a class rest on. Raises Break for methods that do more than compute."""
    if cls.obj in seen:
        return
    seen.add(cls.obj)
    for name in METHODS:
        method, real = vm.getattr(cls, name), class_lookup(cls.obj, name)
        if type(real) is not staticmethod or method.__class__ is not Known or method.obj is not real.__func__:
            raise unfollowed(cls)
        if str(method.obj.__module__).partition(".")[0] != "torch":
            check_method(vm, cls, method, seen)
    vm.known(vm.getattr(cls, "generate_vmap_rule"), "generate_vmap_rule")


def check_method(vm: Machine, cls: Known, method: Known, seen: set[type]) -> None:
    """Check what a method names."""
    fn = method.obj
    if type(fn) is not types.FunctionType or fn.__defaults__ or fn.__kwdefaults__:
        raise unfollowed(cls)
    code = vm.known(vm.getattr(method, "__code__"), "__code__")
    space = closures.globals_of(vm, fn, method.source)
    cells = list(vm.iterate(vm.getattr(method, "__closure__"))) if fn.__closure__ else []
    free = dict(zip(code.co_freevars, cells))
    for code_of in codes(code):
        named: Any = None
        for inst in decode(code_of).instructions:
            if inst.op in READS and named.__class__ is Known and isinstance(named.obj, types.ModuleType):
                module, named = vars(named.obj), vm.getattr(named, inst.arg)
                if vm.effects.written(module, inst.arg) is not None:
                    raise unfollowed(cls)
                continue
            if named is not None and not computes(vm, named, seen):
                raise unfollowed(cls)
            named = None
            if inst.op == "LOAD_GLOBAL" and space.source is not None and space.builtins_source is not None:
                named = namespaces.at_entry(vm, space.real, space.source, inst.arg)
                named = named or namespaces.at_entry(vm, space.builtins, space.builtins_source, inst.arg)
            elif inst.op == "LOAD_DEREF" and inst.arg in free:
                cell = free[inst.arg]
                named = closures.cell_get(vm, cell) if cell.__class__ is Object else None
            here = inst.op == "LOAD_GLOBAL"
            if acts(inst) or (here and (named is None or vm.effects.written(space.real, inst.arg) is not None)):
                raise unfollowed(cls)
            named = vm.look(named) if named.__class__ is Lazy else named


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions that it makes."""
    yield code
    for const in code.co_consts:
        if type(const) is types.CodeType:
            yield from codes(const)


def acts(inst: Instruction) -> bool:
    """Return whether an instruction may act on what it did not make: a write in place, or to a variable elsewhere."""
    if inst.op in READS:
        name = str(inst.arg)
        return name in ACTING or (name.endswith("_") and not name.endswith("__"))
    return inst.op in ACTS or (inst.op == "BINARY" and str(inst.arg).endswith("="))


def computes(vm: Machine, named: Value, seen: set[type]) -> bool:
    """Return whether what a method names is a constant, an operator or a pure function, or a class like its own."""
    if named.__class__ is not Known:
        return False
    obj: Any = named.obj
    if isinstance(obj, type):
        if issubclass(obj, torch.autograd.Function):
            check_class(vm, named, seen)
            return True
        return obj in PURE_TYPES or obj is torch.Tensor or id(obj) in BUILTINS or issubclass(obj, Exception)
    if type(obj) in CONSTANTS or type(obj) in PURE_TYPES:
        return True
    return id(obj) in BUILTINS or id(obj) in graph_functions() or is_torch_operator(obj) or is_pure(obj)
