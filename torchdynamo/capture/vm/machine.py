"""The symbolic machine: one object through which instructions and type models ask for Python's operations."""

from __future__ import annotations

import importlib
import sys
import types
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture import interpreter
from torchdynamo.capture.frame import Frame, FunctionParts, Globals, MadeFunction
from torchdynamo.capture.torch import arguments, numpy_numbers, overrides, symbols, tensor_methods
from torchdynamo.capture.vm import (
    attribute_writes,
    attributes,
    c_fields,
    descriptors,
    dict_aliases,
    interop,
    iteration,
    lookup,
    model,
    namespaces,
    operators,
    process_settings,
    scalar_subclasses,
)
from torchdynamo.capture.vm import call as calls
from torchdynamo.capture.vm import wrap as wrapping
from torchdynamo.capture.vm.exception_state import ExceptionState, state_of
from torchdynamo.capture.vm.finalizers import Finalizable
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.remade_classes import MadeClass
from torchdynamo.capture.vm.state import CaptureState
from torchdynamo.core.call_sites import Passed
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Pinned, Roots, Source, instance_attr
from torchdynamo.core.value import ABSENT, NONE, TRUE, Known, Lazy, Object, Symbol, TensorNode, Value
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.hook.stock import REAL, Seen

# Hashing of objects that only identity tells apart.
IDENTITY_HASHES: tuple[Any, ...] = (object.__hash__, torch.nn.Module.__hash__)


class Ref:
    """The hash key of an object that only identity tells apart."""

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what = what

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.what == self.what

    def __hash__(self) -> int:
        return hash(self.what)


class Keyed:
    """The hash key of an object whose class says in Python what it equals."""

    __slots__ = ("hash", "value", "vm")

    def __init__(self, vm: Machine, value: Value, hash: Any) -> None:
        self.vm = vm
        self.value = value
        self.hash = hash

    def __eq__(self, other: object) -> bool:
        against = other.value if isinstance(other, Keyed) else wrapping.lift(self.vm, other)
        return operators.same_or_equal(self.vm, self.value, against)

    def __hash__(self) -> int:
        return self.hash if isinstance(self.hash, int) else hash(self.hash)  # a long word is not hashed again


class Machine(CaptureState):
    """Python over values."""

    def __init__(self, builder: GraphBuilder, roots: Roots) -> None:
        super().__init__(builder, roots)
        builder.numbers.where = self.position
        builder.where, builder.calling = self.call_site, self.calling
        self.said_to_torch = interop.said_to_torch()
        self.anything_said = interop.anything_said(self.said_to_torch)
        self.handled_at_entry = sys.exc_info()[1]
        # What classes say, looked up once in a capture
        self.class_attrs: dict[tuple[type, str], Any] = {}
        self.hookless: list[Entity] = []  # the dicts of hooks for all modules, when they are known to be empty
        self.slots: dict[tuple[type, str], model.Slot] = {}
        self.rows: dict[tuple[type, str], model.Model | None] = {}
        self.input_objects: dict[torch.fx.Node, Any] = {}
        self.fakes: dict[int, TensorNode] = {}
        self.inputs_apart = False  # an input is changed as an object: it matters that none comes twice
        self.kept: dict[int, Any] = {}  # what caches would keep, by reference into the heap: what it held
        self.mortals: list[Finalizable] = []  # objects with a `__del__` that the frame made
        self.made_tuples: dict[int, tuple[Any, ...]] = {}  # of constants, by id: each call makes its own
        self.made_classes: dict[int, MadeClass] = {}  # by the frame, by their ids
        self.copied: dict[int, dict[int, Source | None]] = {}  # by memo of copy.deepcopy: memory, and whose it is
        self.inside: dict[int, int] = {}  # such classes and what was made for them, by id: the step of each
        self.realized: dict[int, Any] = {}  # what lies in such a class, by reference into the heap
        self.with_names: set[int] = set()  # classes and objects whose own dictionaries have no keys but strings
        self.ids_are_keys = self.addresses_are_keys = False  # what `id` gave; numbers at entry that may be the same
        # By id: dictionaries that are read or written as attributes.
        self.aliased_dicts: dict[int, dict_aliases.AliasedDict] = {}
        self.devices: list[torch.device] = []  # `with torch.device(...)` the frame is in
        self.told_apart: dict[type, dict[Source, None]] = {}  # by type: objects used as keys by identity
        self.unseen: dict[int, Source] = {}  # tensors that are no inputs: where each was found
        self.watching = False  # whether operators may be overridden by modes or subclasses (overrides.py)
        self.watching_modes = False
        self.modes = self.effects.modes
        self.modes_off = self.subclasses_off = 0  # blocks in which they are not asked
        self.grad_mode_unknown = False  # what is followed runs later, wherever somebody asks for gradients

    run = interpreter.run
    call = calls.call
    inline = calls.inline
    run_pure = calls.run_pure
    enter_function = calls.enter_function
    getattr = attributes.getattr_
    setattr = attribute_writes.setattr_
    delattr = attribute_writes.delattr_
    has_attribute = attributes.has_attribute
    binary = operators.binary
    unary = operators.unary
    compare = operators.compare
    identical = operators.identical
    truth = operators.truth
    length = operators.length
    contains = operators.contains
    getitem = operators.getitem
    setitem = operators.setitem
    delitem = operators.delitem
    iterate = iteration.iterate
    iterator = iteration.iterator
    advance = iteration.advance
    unpack = iteration.unpack
    as_object = wrapping.as_object
    wrap = wrapping.wrap
    constant = wrapping.lift
    emit = arguments.emit
    concrete = arguments.concrete
    concretely = arguments.concretely

    # -- looking at what existed ----------------------------------------------------------------------------------
    def look(self, value: Lazy) -> Value:
        """First use of a local: read it, with its guard."""
        try:
            obj = value.source.load(self.roots)
        except (KeyError, AttributeError, IndexError):
            raise Break("unsupported type", type=value.pytype.__name__) from None
        return wrapping.wrap(self, obj, value.source)

    # -- special methods ------------------------------------------------------------------------------------------
    def special(self, obj: Value, name: str, *args: Value) -> Value:
        """`type(obj).name(obj, *args)`; TypeError if there is none."""
        result = operators.special(self, obj, name, *args)
        if result is None:
            raise self.error(TypeError, f"{type_name(obj.pytype)!r} object has no {name}")
        return result

    def bound_special(self, obj: Value, name: str) -> Value | None:
        """The special method, bound; None if the type has none."""
        found = lookup.guarded_lookup(self, obj.pytype, name)
        if found is MISSING:
            return None
        return descriptors.describe(self, obj, obj.pytype, name, found)

    def overrides(self, obj: Value, op: str) -> bool:
        """Whether a tensor operand would yield to this object's own operator."""
        name = operators.INPLACE[op][1] if op in operators.INPLACE else operators.BINARY[op][1]
        slot = model.find_slot(obj.pytype, name)
        return slot[0] == "python" and type(slot[1][1]) is types.FunctionType

    def method(self, obj: Value, name: str) -> Value | None:
        """The function `obj.name(...)` would call with obj first, if it is a plain method; else None."""
        cls = obj.pytype
        if obj.__class__ is Object:
            if ("__getattribute__" in cls.__dict__ or model.MODELS.get((cls, "." + name))) and cls.__mro__[-2:-1] != (
                object,
            ):
                own = lookup.class_lookup(cls, "__getattribute__")
                if own is not object.__getattribute__:
                    return None
            found = lookup.class_lookup(cls, name)
            if type(found) not in lookup.PLAIN_METHODS:
                return None
            lookup.guarded_lookup(self, cls, "__getattribute__")
            lookup.guarded_lookup(self, cls, name)
            if namespaces.read_instance(self, self.entity(obj), name) is not None:
                return None
            return Known(found, wrapping.class_attribute(self, cls, name))
        if obj.__class__ is TensorNode or (obj.__class__ is Known and cls in wrapping.CONSTANTS):
            if self.watching and overrides.is_written(cls, name):
                return None
            found = lookup.guarded_lookup(self, cls, name)
            if type(found) not in lookup.PLAIN_METHODS:
                return None
            lies = tensor_methods.is_foreign(found)
            return Known(found, wrapping.class_attribute(self, cls, name) if lies else None)
        return None

    def call_method(self, obj: Value, name: str, *args: Value) -> Value:
        """`obj.name(*args)`."""
        method = self.method(obj, name)
        if method is not None:
            return calls.call(self, method, [obj, *args], {})
        return calls.call(self, attributes.getattr_(self, obj, name), list(args), {})

    # -- making objects -------------------------------------------------------------------------------------------
    def error(self, cls: type[BaseException], *args: Any) -> Raised:
        """An exception that the user's program raises."""
        made: Object = model.MODELS[BaseException, "__new__"](self, Known(cls), *(self.constant(arg) for arg in args))
        return Raised(made)

    def name_error(self, name: str, text: str) -> Raised:
        """NameError, which keeps the name."""
        raised = self.error(NameError, text)
        self.effects.write(self.entity(raised.value), "name", Known(name))
        return raised

    def note_raised(self, exc: Object) -> None:
        """An exception of the frame's has a context and a traceback from now on."""
        entity = self.entity(exc)
        state = state_of(entity)
        if entity.fresh and not state.raised:
            entity.payload = state._replace(raised=True)
            self.put_in_context(exc)

    def put_in_context(self, exc: Object) -> None:
        """What is being handled when an exception is raised is its context; two are not each other's."""
        found = [handled for frame in self.frames for handled in frame.handling]
        if not found or found[-1].ref == exc.ref:
            return
        link: Value | None = found[-1]
        gone: set[int] = set()  # a program may have closed the chain to a ring
        while link.__class__ is Object and link.ref not in gone:
            gone.add(link.ref)
            entity = self.entity(link)
            link = c_fields.held(entity, BaseException, "__context__")
            if link.__class__ is Object and link.ref == exc.ref:
                c_fields.hold(self, entity, BaseException, __context__=NONE)
                break
        c_fields.hold(self, self.entity(exc), BaseException, __context__=found[-1])

    def bound_method(self, owner: Value, fn: Value, name: str) -> Value:
        """`owner.fn` as a value."""
        pytype = types.MethodType if fn.pytype is types.FunctionType else types.BuiltinMethodType
        return self.new(pytype, payload=name, __self__=owner, __func__=fn)

    def make_tuple(self, items: list[Value]) -> Value:
        """A tuple; one of constants is a constant. Functions keep their places: what they rest on is read there."""
        known = [item.obj for item in items if item.__class__ is Known and not wrapping.is_found(item)]
        if len(known) == len(items):
            made = tuple(known)
            self.made_tuples[id(made)] = made
            return Known(made)
        return self.new(tuple, items)

    def make_dict(self, items: Iterable[tuple[Value, Value]]) -> Object:
        """A dict, filled in this order."""
        made = self.new(dict, {})
        for key, value in items:
            model.MODELS[dict, "__setitem__"](self, made, key, value)
        return made

    def make_slice(self, *parts: Value) -> Value:
        """`slice(...)`."""
        if not 1 <= len(parts) <= 3:
            bound = "at least 1" if not parts else "at most 3"
            raise self.error(TypeError, f"slice expected {bound} argument{'s' * bool(parts)}, got {len(parts)}")
        known = [part.obj for part in parts if part.__class__ is Known]
        if len(known) == len(parts):
            return Known(slice(*known))
        full = (NONE, *parts, NONE)[:3] if len(parts) == 1 else (*parts, NONE)[:3]
        return self.new(slice, list(full))

    def build(self, kind: str, items: tuple[Value, ...]) -> Value:
        """The BUILD instructions."""
        if kind == "tuple":
            return self.make_tuple(list(items))
        if kind == "list":
            return self.new(list, list(items))
        if kind == "map":
            return self.make_dict(zip(items[::2], items[1::2]))
        if kind == "const_key_map":
            keys = (wrapping.lift(self, key) for key in self.known(items[-1], "keys"))
            return self.make_dict(zip(keys, items[:-1]))
        if kind == "set":
            return model.BUILD_SET[set](self, items)
        if any(symbols.is_unknown(self, item) for item in items):
            return symbols.text(self)
        return Known("".join(self.known(item, "string") for item in items))

    def format_value(self, value: Value, conversion: str, spec: Value | None) -> Value:
        """A field of an f-string."""
        convert = {"s": str, "r": repr, "a": ascii}.get(conversion)
        if convert is not None:
            value = calls.call(self, Known(convert), [value], {})
        return calls.call(self, Known(format), [value] if spec is None else [value, spec], {})

    def hkey(self, value: Value) -> Any:
        """What stands for a value as a dictionary key: equal keys for equal values."""
        if value.__class__ is Known:
            if lookup.speaks(value):
                for name in ("__hash__", "__eq__"):
                    lookup.guarded_lookup(self, value.pytype, name)
            try:
                hash(value.obj)
            except TypeError as error:
                raise self.error(TypeError, *error.args) from None
            return wrapping.identity_of(self, value)
        if value.__class__ is TensorNode:
            return Ref(self.identity(value))
        if isinstance(value, Lazy) and value.pytype in (torch.Tensor, torch.nn.Parameter):
            return Ref(self.unseen_identity(value))
        if value.__class__ is Symbol:
            return self.known(value, "key")
        if value.__class__ is Object:
            cls = value.pytype
            if issubclass(cls, tuple) and cls.__hash__ is tuple.__hash__:
                return tuple(self.hkey(item) for item in self.iterate(value))
            if issubclass(cls, weakref.ReferenceType) and cls.__hash__ is weakref.ReferenceType.__hash__:
                return model.HASH_KEY[weakref.ReferenceType](self, value)
            if cls is int:
                return model.HASH_KEY[int](self, value)
            if numpy_numbers.held(self, value) is not None:
                return numpy_numbers.settled(self, value)
            lookup.guarded_lookup(self, cls, "__hash__")
            lookup.guarded_lookup(self, cls, "__eq__")
            plain = scalar_subclasses.plain_value(self, value)
            if plain is not None and scalar_subclasses.plainly(self, value) is plain:
                return plain.obj
            if cls.__hash__ in IDENTITY_HASHES:
                return Ref(self.identity(value))
            if type(cls.__hash__) is types.FunctionType:
                says = self.special(value, "__hash__")
                if says.__class__ is Known and not isinstance(says.obj, int):
                    raise self.error(TypeError, "__hash__ method should return an integer")
                return Keyed(self, value, self.hkey(says))
            if cls.__hash__ is None:
                raise self.error(TypeError, f"unhashable type: {type_name(cls)!r}")
        wrapping.refuse_unseen(value)
        raise Break("unsupported key", type=value.pytype.__name__)

    def identity(self, value: Value) -> Any:
        """What is the same exactly for the same object. Objects told apart by it must stay different ones."""
        wrapping.refuse_unseen(value)
        if value.__class__ is Known:
            obj = wrapping.identity_of(self, value)
            return (type(obj), obj) if type(obj) in (int, str, bytes) else id(obj)
        if value.__class__ is Object:
            real, fresh = self.entity(value).real, ("fresh", value.ref)
        else:
            assert isinstance(value, TensorNode)
            real, fresh = self.input_objects.get(value.node, MISSING), ("fake", id(value.fake))
        if real is MISSING:
            return fresh
        source = wrapping.source_of(self, value)
        if source is not None:
            self.told_apart.setdefault(value.pytype, {})[source] = None
        return id(real)

    def unseen_identity(self, value: Lazy) -> int:
        """The same of a tensor that cannot be in a graph: no other way to it has been looked at, or that is guarded."""
        real = value.source.load(self.roots)
        first = self.unseen.setdefault(id(real), value.source)
        if first is not value.source:
            self.guard(value.source, "SAME_OBJECT", first)
        self.told_apart.setdefault(value.pytype, {})[first] = None
        return id(real)

    # -- functions, cells, globals --------------------------------------------------------------------------------
    def make_function(self, code: types.CodeType, space: Globals, given: dict[str, Value]) -> Object:
        """A function object made by the frame."""
        closure: dict[str, Value] = {}
        if "closure" in given:
            closure = dict(zip(code.co_freevars, self.iterate(given["closure"])))
        defaults = list(self.iterate(given["defaults"])) if "defaults" in given else []
        named: dict[str, Value] = {}
        if "kwdefaults" in given:
            named = {self.known(key, "keyword"): value for key, value in self.dict_items(given["kwdefaults"])}

        def qualname() -> str:
            return str(self.known(self.getattr(made, "__qualname__"), "name"))

        parts = FunctionParts(
            code, space, qualname, len(defaults), defaults.__getitem__, frozenset(named), named.__getitem__, closure
        )
        made = self.new(types.FunctionType, payload=MadeFunction(parts, given))
        return made

    def wrap_cell(self, cell: types.CellType, source: Source | None) -> Value:
        """A cell that existed at entry."""
        found = self.heap.by_id.get(id(cell))
        if found is not None:
            first = self.entity(found).source
            if first is not None and source is not None and first is not source:
                self.guard(source, "SAME_OBJECT", first)
            return found
        return self.heap.adopt(cell, source or Source("pinned", None, Pinned(cell)))

    def new_cell(self, frame: Frame, name: str) -> Object:
        """A cell variable of a frame, holding the argument of that name if there is one."""
        value = frame.locals.pop(name, None)
        cell = self.new(types.CellType, payload=name if frame.root else None)
        if value is not None:
            self.effects.write(self.entity(cell), "cell_contents", value)
        return cell

    def cell_get(self, cell: Object) -> Value | None:
        """The contents; None if empty."""
        entity = self.entity(cell)
        value = entity.attrs.get("cell_contents")
        if value is None and entity.real is not MISSING:
            value = entity.loaded.get("cell_contents")
            if value is None:
                assert entity.source is not None
                try:
                    real = entity.real.cell_contents
                except ValueError:
                    self.guard(entity.source, "UNBOUND")
                    return None
                value = entity.loaded["cell_contents"] = self.wrap(real, Source("contents", entity.source))
        if value.__class__ is Lazy:
            value = self.look(value)
            if "cell_contents" in entity.attrs:
                self.effects.look(entity, "cell_contents", value)
            else:
                entity.loaded["cell_contents"] = value
        return None if value is ABSENT else value

    def cell_set(self, cell: Object, value: Value) -> None:
        self.effects.write(self.entity(cell), "cell_contents", value)

    def call_through(self, passed: Sequence[Passed], fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call what these functions call, which are Python's own and have been gone through by a model."""
        self.passed = passed
        try:
            return self.call(fn, args, kwargs)
        finally:
            self.passed = ()

    def globals_of(self, fn: types.FunctionType, source: Source | None) -> Globals:
        """The namespace a function's names are looked up in."""
        function: Any = fn  # of which not every description says that it has builtins
        real = function.__globals__
        if type(real) is not dict:
            raise Break("unsupported type", type=type(real).__name__)
        builtins = function.__builtins__
        told = Source("builtins")
        if builtins is REAL and self.roots.builtins.__class__ is Seen:
            builtins = self.roots.builtins
        if builtins is not self.roots.builtins:
            told = Source("attr", source or Source("pinned", None, Pinned(fn)), "__builtins__")
        if real is self.roots.globals:
            return self.told_globals(source, Globals(real, Source("globals"), builtins, told))
        if (fn.__module__ or "").startswith("torchdynamo.capture."):
            return Globals(real, None, builtins)
        module = sys.modules.get(real.get("__name__", ""))
        if module is not None and module.__dict__ is real:
            space = Source("dict", Source("module", None, module.__name__))
            return self.told_globals(source, Globals(real, space, builtins, told))
        if source is None:
            source = Source("pinned", None, Pinned(fn))
        return self.told_globals(None, Globals(real, Source("attr", source, "__globals__"), builtins, told))

    def told_globals(self, fn: Source | None, space: Globals) -> Globals:
        """Functions go by their code, and code may be shared by functions of two modules."""
        if id(space.real) not in self.aliased_dicts:
            dict_aliases.rest_on(self, space.real, space.source)
        if fn is not None and space.source is not None:
            self.guard(Source("attr", fn, "__globals__"), "SAME_OBJECT", space.source)
        return space

    # -- generators -----------------------------------------------------------------------------------------------
    def generator(self, value: Object) -> Iterator[Value]:
        """The steps of a generator made by the frame."""
        entity = self.entity(value)
        if entity.items is None:
            entity.items = iteration.IteratorState(self.effects, entity, self.resume(value), None)
        return entity.items

    def resume(self, value: Object) -> Generator[Value, Value, None]:
        frame = self.entity(value).payload_as(Frame)
        while True:
            frame.yielded = False
            try:
                result = self.run(frame)
            except Raised as raised:
                if issubclass(raised.value.pytype, StopIteration):
                    error = self.error(RuntimeError, "generator raised StopIteration")
                    links: dict[str, Value] = {
                        "__cause__": raised.value,
                        "__context__": raised.value,
                        "__suppress_context__": TRUE,
                    }
                    self.effects.write_all(self.entity(error.value), links)
                    self.entity(error.value).payload = ExceptionState(raised=True)
                    raise error from None
                raise
            if not frame.yielded:
                self.effects.write(self.entity(value), "return", result)
                return
            waiting = True
            while waiting:
                waiting = False
                try:
                    sent = yield result
                    frame.stack.append(NONE if sent is None else sent)
                except Raised as thrown:  # at the `yield`, where it may be caught
                    frame.pc -= 1
                    try:
                        item = self.throw_inside(frame, thrown)
                    except Raised as through:
                        frame.stack.append(NONE)  # in the place of what would have been sent
                        if not interpreter.unwind(self, frame, through):
                            raise
                    else:
                        waiting = item is not None
                        result = result if item is None else item

    def throw_inside(self, frame: Frame, thrown: Raised) -> Value | None:
        """Throw into what a generator that waits in `yield from` waits for. Gives what that yields, and the generator
        waits on; or None, where it returned: the generator goes on after it."""
        send = frame.code.instructions[frame.pc - 1]
        if send.op != "SEND":
            raise thrown
        inner = frame.stack[-1]
        if issubclass(thrown.value.pytype, GeneratorExit):
            if self.has_attribute(inner, "close") is not None:
                self.call_method(inner, "close")
            raise thrown
        if self.has_attribute(inner, "throw") is None:
            raise thrown
        item, result = self.item_or_return(lambda: self.call_method(inner, "throw", thrown.value))
        if item is not None:
            frame.pc += 1
            return item
        frame.pc = frame.code.targets[send.arg]
        if frame.code.instructions[frame.pc].op == "END_SEND":
            frame.stack.append(result)
        else:
            frame.stack[-1] = result
        return None

    def item_or_return(self, step: Callable[[], Value]) -> tuple[Value | None, Value]:
        """What a step of an iterator yields, or None and what it returned."""
        try:
            return step(), NONE
        except Raised as raised:
            if not issubclass(raised.value.pytype, StopIteration):
                raise
            return None, c_fields.read(self, raised.value, StopIteration, "value")

    def advance_or_return(self, value: Value) -> tuple[Value | None, Value]:
        """One step of `yield from`: the item, or None and the value of `return`."""
        if type(lookup.guarded_lookup(self, value.pytype, "__next__")) is types.FunctionType:
            return self.item_or_return(lambda: self.special(value, "__next__"))
        item = self.advance(value)
        if item is not None:
            return item, NONE
        return None, self.entity(self.as_object(value)).attrs.get("return", NONE)

    # -- process state --------------------------------------------------------------------------------------------
    def state_node(self, fn: Any, args: tuple[Any, ...]) -> tuple[torch.fx.Node, Any]:
        """A switch of process state has its place among the operators; it is made for real."""
        return self.builder.switch(fn, args, self.position())

    # -- tensors as objects ---------------------------------------------------------------------------------------
    def store_on(self, tensor: TensorNode, name: str, value: Value) -> None:
        """From now on the tensor has this attribute; ABSENT takes it away."""
        namespaces.write(self, namespaces.of_tensor(self, tensor), name, value)
        self.note_change(tensor)

    def note_change(self, tensor: TensorNode) -> None:
        """More than the tensor's numbers is changed."""
        if tensor.node in self.input_objects:
            self.effects.change_tensor()
            self.inputs_apart = True

    # -- implemented by type models -------------------------------------------------------------------------------
    def tensor_getattr(self, obj: Any, name: str) -> Value:
        return model.MODELS[torch.Tensor, "__getattr__"](self, obj, name)

    def tensor_setattr(self, obj: Any, name: str, value: Value) -> None:
        model.MODELS[torch.Tensor, "__setattr__"](self, obj, name, value)

    def dict_items(self, value: Value) -> list[tuple[Value, Value]]:
        """The items of any mapping, in order."""
        return model.PAIRS[dict](self, value)

    def instance_dict(self, obj: Object) -> Value:
        return model.INSTANCE_DICT[dict](self, obj)

    def first_import(self, name: str) -> types.ModuleType:
        """Import a module for real, once in a process; that one is missing is guarded."""
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise Break("import in frame", name=name) from error
            known = instance_attr(Source("module", None, "sys"), "modules")
            self.guard(known, "NO_KEY", error.name)
            process_settings.rest_on_finders(self, error.name.rpartition(".")[0])
            missing = self.error(ModuleNotFoundError, *error.args)
            self.effects.write(self.entity(missing.value), "name", Known(error.name))
            raise missing from None
        except Exception as error:  # anything: it is what the module's own code raises; Python will raise it again
            raise Break("import in frame", name=name) from error

    def import_parts(self, full: str, module: types.ModuleType, names: tuple[str, ...]) -> None:
        """`from package import module`: of names that the package does not have, those that are modules in it."""
        for name in names:
            if name != "*" and not hasattr(module, name):
                try:
                    importlib.import_module(f"{full}.{name}")
                except ModuleNotFoundError as error:
                    if error.name != f"{full}.{name}":
                        raise Break("import in frame", name=full) from error
                    process_settings.rest_on_finders(self, full)
                except Exception as error:  # as above
                    raise Break("import in frame", name=full) from error

    def import_module(self, frame: Frame, name: str, level: int, names: Value) -> Value:
        """`import name`. What is not imported yet is imported now: the program is at the point of doing so."""
        package = frame.globals.real.get("__package__") or ""
        base = package.rsplit(".", level - 1)[0] if level else ""
        full = f"{base}.{name}".strip(".") if level else name
        module = sys.modules.get(full) or self.first_import(full)
        if not issubclass(type(module), types.ModuleType):  # anything may stand in `sys.modules`
            raise Break("import in frame", name=full)
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            raise Break("import in frame", name=full)
        if names.__class__ is Known and names.obj and "__path__" in module.__dict__:
            self.import_parts(full, module, names.obj)
        if names.__class__ is Known and not names.obj:
            module = sys.modules[full.partition(".")[0]] if not level else module
            full = full.partition(".")[0] if not level else full
        modules = Source("pinned", None, Pinned(sys.modules))
        self.guard(Source("key", modules, full), "ID_MATCH", module)
        return Known(module, Source("module", None, module.__name__) if module.__name__ in sys.modules else None)
