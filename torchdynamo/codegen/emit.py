"""Emit instructions that push values from wherever they come, and remember which objects were materialized."""

from __future__ import annotations

import enum
import gc
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

import torch.fx

from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.frame import Globals
from torchdynamo.capture.functions.torch_autograd_objects import check_stays
from torchdynamo.capture.torch.overrides import as_class
from torchdynamo.capture.torch.tensor_subclasses import overrides
from torchdynamo.capture.types.set_orders import stays_in_order
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import IteratorState
from torchdynamo.capture.vm.wrap import class_source, made_in_frame
from torchdynamo.codegen import made_classes, materialize
from torchdynamo.codegen.operands import push_callee
from torchdynamo.core.naming import is_mortal
from torchdynamo.core.policy import PURE_TYPES
from torchdynamo.core.signals import Assumption, Restart, Retry
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Lazy, Object, Symbol, TensorNode, Value

BOUND = "__bound"
GRAPH = "<graph>"  # placeholder for the name of the graph's variable
LIKE_A_NAME = re.compile("[a-zA-Z0-9_]+")
OWN_WORLDS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.CodeType,
)  # what they lead to was there before the frame


class CodeEmitter:
    """The instructions of one replacement code, with the graph outputs and bound sources that they use."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.heap = capture.machine.heap
        self.items: list[Item] = []
        self.outputs: dict[torch.fx.Node, int] = {}
        self.bound: dict[Source, int] = {}
        self.made: dict[Any, str] = {}  # materialized object (ref, or kind and id) -> the local that holds it
        self.making: set[Any] = set()  # objects that are being materialized
        self.waiting: dict[Any, list[Entity]] = {}  # class that is being made -> cells that will hold it
        self.position: Any = None
        self.cellvars = frozenset(capture.code.co_cellvars)

    # -- instructions ---------------------------------------------------------------------------------------------
    def op(self, op: str, arg: Any = None) -> None:
        self.items.append(Instruction(op, arg, self.position))

    def const(self, obj: Any) -> None:
        vm = self.capture.machine
        if vm.inside:
            if id(obj) in vm.made_classes:
                made_classes.push(self, obj)
                return
            if isinstance(obj, enum.Enum) and id(type(obj)) in vm.made_classes and obj.name in type(obj).__members__:
                made_classes.push(self, type(obj))
                self.op("LOAD_ATTR", obj.name)
                return
            self.refuse_made_classes(obj)
        if issubclass(type(obj), type) and is_mortal(obj):
            self.source(class_source(obj))  # a constant of the code would keep the class alive
        else:
            self.op("LOAD_CONST", obj)

    def waits(self, cell: Entity, contents: Value | None) -> bool:
        """Return whether a cell is filled later: it holds a class that is being made, as cells of methods do."""
        key = ("class", id(contents.obj)) if contents.__class__ is Known else None
        if key in self.making:
            self.waiting.setdefault(key, []).append(cell)
        return key in self.making

    def refuse_made_classes(self, obj: Any) -> None:
        """Raise Restart for an object that leads to a class that the frame made, which has no real counterpart."""
        inside = self.capture.machine.inside
        waiting, seen = [obj], set()
        while waiting:
            each = waiting.pop()
            step = inside.get(id(each), inside.get(id(type(each))))
            if step is not None:
                raise Restart(step - 1)
            seen.add(id(each))
            if not isinstance(each, OWN_WORLDS):
                waiting += [part for part in gc.get_referents(each) if id(part) not in seen]

    def function(self, fn: Any) -> None:
        push_callee(self, lambda: self.const(fn))

    # -- values ---------------------------------------------------------------------------------------------------
    def value(self, value: Value) -> None:
        """Push a value."""
        if value.__class__ is Object:
            self.object(value)
        elif value.__class__ is Known:
            self.known(value)
        elif value.__class__ is TensorNode or value.__class__ is Symbol:
            self.computed(value)
        elif value.__class__ is Lazy:
            self.source(value.source)
        else:
            raise Restart(-1)

    def known(self, value: Known) -> None:
        """Push a known object: constants, classes and C functions as constants, other functions from their source."""
        obj, source = value.obj, value.source
        if source is not None and not isinstance(obj, OWNED) and (type(obj) not in EMBEDDED or source.how == "local"):
            self.source(source)
        elif type(obj) is frozenset and not stays_in_order(obj):
            raise Restart(-1)
        elif type(obj) is str and LIKE_A_NAME.fullmatch(obj) and sys.intern(obj) is not obj:
            self.text(obj)
        elif type(obj) is tuple and obj and id(obj) in self.capture.machine.made_tuples:
            self.row(obj)
        else:
            self.const(obj)

    def row(self, items: tuple[Any, ...]) -> None:
        """Push a tuple of constants that the frame made."""
        name = self.made.get(("tuple", id(items)))
        if name is not None:
            self.op("LOAD_FAST", name)
            return
        for item in items:
            self.known(Known(item))
        self.op("BUILD", ("tuple", len(items)))
        self.keep_as(("tuple", id(items)), f"__tuple{len(self.made)}")

    def text(self, text: str) -> None:
        """Push a string that the frame made.

        A constant that looks like a name would be interned, and so become one object with all equal strings.
        """
        name = self.made.get(("text", id(text)))
        if name is not None:
            self.op("LOAD_FAST", name)
            return
        for part in (text[:1], text[1:]):
            self.op("LOAD_CONST", part)
        self.op("BUILD", ("string", 2))
        self.keep_as(("text", id(text)), f"__text{len(self.made)}")

    def computed(self, value: TensorNode | Symbol) -> None:
        """Push a tensor or symbol: an input from its source, others from the graph's outputs."""
        if value.source is not None:
            self.source(value.source)
            return
        index = self.outputs.setdefault(value.node, len(self.outputs))
        if not overrides(value.pytype):
            self.op("LOAD_FAST", f"__out{index}")
            return
        self.function(as_class)
        self.op("LOAD_FAST", f"__out{index}")
        self.const(value.pytype)
        self.op("CALL", (2, ()))

    def source(self, source: Source) -> None:
        """Push the object that was at a source at entry: a local itself, others from the bound tuple."""
        if source.how == "local" and source.arg not in self.cellvars:
            self.op("LOAD_FAST", source.arg)
            return
        root = source.root()
        if root.how == "pinned":
            if self.capture.machine.made_classes and made_in_frame(self.capture.machine, source):
                made_classes.push_part(self, source)
                return
            self.refuse_made_classes(root.arg.object)
        index = self.bound.setdefault(source, len(self.bound))
        self.op("LOAD_FAST", BOUND)
        self.const(BoundIndex(index))
        self.op("GETITEM")

    def is_home(self, space: Globals) -> bool:
        """Return whether these are the globals of the frame."""
        return space.real is self.capture.machine.roots.globals

    def namespace(self, space: Globals) -> None:
        """Push a module's dictionary; that of one of our polyfills has no source and is a constant."""
        if space.source is not None:
            self.source(space.source)
        else:
            self.const(space.real)

    def local(self, entity: Entity) -> None:
        """Push an object that existed at entry or has been materialized."""
        if entity.ref in self.made:
            self.op("LOAD_FAST", self.made[entity.ref])
        elif entity.source is not None:
            self.source(entity.source)
        else:
            self.object(Object(entity.ref, entity.pytype))

    def object(self, value: Object) -> None:
        """Push an object: the one that existed at entry, or one that is materialized once."""
        entity = self.heap[value]
        if entity.ref in self.made or entity.source is not None:
            self.local(entity)
            return
        check_stays(self.capture.machine, entity)
        if entity.pytype is types.CellType and entity.payload is not None:
            self.op("LOAD_CELL", entity.payload)
            return
        if entity.ref in self.capture.machine.kept:
            raise Retry(Assumption.CACHES)  # it must be the very object that the cache holds
        if entity.ref in self.making:
            raise Restart(entity.born - 1)  # it contains itself
        self.making.add(entity.ref)
        try:
            self.rebuild(entity)
        finally:
            self.making.discard(entity.ref)

    def rebuild(self, entity: Entity) -> None:
        row = model.REBUILD.nearest(entity.pytype)
        if row is not None:
            row(self, entity)
            self.keep(entity)
            if entity.pytype not in model.REBUILD:  # a subclass: its attributes come on top of the base's contents
                materialize.attributes(self, entity)
        elif entity.items.__class__ is IteratorState:
            materialize.iterator(self, entity)
            self.keep(entity)
        elif materialize.is_plain(entity.pytype):
            materialize.instance(self, entity)
        else:
            raise Restart(entity.born - 1)

    def keep(self, entity: Entity) -> None:
        """Store the object on the stack in a local for later uses, and leave it there."""
        self.keep_as(entity.ref, f"__made{entity.ref}")

    def keep_as(self, key: Any, name: str) -> None:
        self.made[key] = name
        self.op("COPY", 1)
        self.op("STORE_FAST", name)

    def fields(self, attrs: Mapping[str, Value]) -> None:
        """Set the attributes of the object on the stack, except absent ones."""
        for name, value in attrs.items():
            if value is not ABSENT:
                self.op("COPY", 1)
                self.value(value)
                self.op("SWAP", 2)
                self.op("STORE_ATTR", name)

    def instance(self, entity: Entity, fill: str) -> None:
        """Turn the plain container on the stack into an instance of a subclass, filled by its base's method `fill`."""
        base = next(b for b in entity.pytype.__mro__ if b in (list, dict, set))
        self.function(materialize.subclass_instance)
        for arg in (entity.pytype, base, getattr(base, fill)):
            self.const(arg)
        self.op("COPY", 6)
        self.op("CALL", (4, ()))
        self.op("SWAP", 2)
        self.op("POP")


EMBEDDED = frozenset(PURE_TYPES) - {frozenset}  # an equal frozenset may iterate in another order


class BoundIndex(int):
    """An index into the bound tuple, shifted once the number of graph inputs before it is known."""


OWNED = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
