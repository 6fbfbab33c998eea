"""The symbolic machine: one object through which instructions and type models ask for Python's operations."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture import interpreter
from torchdynamo.capture.torch import arguments, overrides, tensor_methods, wrappers
from torchdynamo.capture.vm import (
    attribute_writes,
    attributes,
    closures,
    construction,
    descriptors,
    dict_aliases,
    generator_frames,
    imports,
    inlining,
    interop,
    iteration,
    keys,
    lookup,
    model,
    namespaces,
    operators,
    raising,
    sameness,
    subscripts,
)
from torchdynamo.capture.vm import call as calls
from torchdynamo.capture.vm import wrap as wrapping
from torchdynamo.capture.vm.finalizers import Finalizable
from torchdynamo.capture.vm.heap import MISSING, Entity, ReadLater, RunAgain
from torchdynamo.capture.vm.remade_classes import MadeClass
from torchdynamo.capture.vm.repeated_calls import RepeatedCalls
from torchdynamo.capture.vm.state import CaptureState
from torchdynamo.core.call_sites import Passed
from torchdynamo.core.signals import Assumption, Break, Retry
from torchdynamo.core.source import Roots, Source
from torchdynamo.core.value import Known, Lazy, Object, TensorNode, Value
from torchdynamo.graph.build import GraphBuilder


class Machine(CaptureState):
    """Execute Python's operations over values: the state of a capture, and all that instructions and models ask for."""

    def __init__(self, builder: GraphBuilder, roots: Roots) -> None:
        super().__init__(builder, roots)
        builder.numbers.where = self.position
        builder.where, builder.calling = self.call_site, self.calling
        self.marks_of_torch = interop.marks_of_torch()
        self.has_marks = interop.has_marks(self.marks_of_torch)
        self.handled_at_entry = sys.exc_info()[1]
        # What classes say, looked up once in a capture
        self.class_attrs: dict[tuple[type, str], Any] = {}
        self.hookless: list[Entity] = []  # the dicts of hooks for all modules, when they are known to be empty
        self.numbered_hooks: set[Source] = set()  # dicts of hooks whose numbers may be others
        self.not_found: set[tuple[type, str]] = set()  # attributes that objects of a class were found not to have
        self.slots: dict[tuple[type, str], model.Slot] = {}
        self.rows: dict[tuple[type, str], model.Model | None] = {}
        self.input_objects: dict[torch.fx.Node, Any] = {}
        self.fakes: dict[int, TensorNode] = {}
        self.parts: dict[int, Source] = {}  # tensors inside of wrappers that are inputs, by id: where each was found
        self.written_out: set[int] = set()  # by reference: containers of which a text is being made
        self.copies: dict[int, tuple[Any, ...]] = {}  # fakes by id: copies made by branches.py, of which two tensors
        self.inputs_apart = False  # an input is changed as an object: it matters that none comes twice
        self.kept: dict[int, Any] = {}  # what caches would keep, by reference into the heap: what it held
        self.in_backwards: dict[int, ReadLater] = {}  # by reference: what backwards read when they run
        self.in_contexts: set[int] = set()  # by reference: what is made again for a backward that runs as written
        self.run_again: list[RunAgain] = []  # what backwards run again
        self.mortals: list[Finalizable] = []  # objects with a `__del__`, and generators, that the frame made
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
        self.repeats: RepeatedCalls | None = None  # None: each call is executed
        self.backwards: tuple[type, ...] = ()  # custom functions whose backwards are followed, the outermost first
        self.grad_mode_unknown = False  # what is followed runs later, wherever somebody asks for gradients
        self.later_histories: set[torch.fx.Node] = set()  # inputs of a backward that may have a history when it runs

    run = interpreter.run
    call = calls.call
    inline = inlining.inline
    run_pure = calls.run_pure
    enter_function = inlining.enter_function
    getattr = attributes.getattr_
    setattr = attribute_writes.setattr_
    delattr = attribute_writes.delattr_
    has_attribute = attributes.has_attribute
    binary = operators.binary
    unary = operators.unary
    compare = operators.compare
    identical = sameness.identical
    truth = operators.truth
    length = operators.length
    contains = operators.contains
    getitem = subscripts.getitem
    setitem = subscripts.setitem
    delitem = subscripts.delitem
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
    guard_contents = wrappers.guard_contents
    places_inside = wrappers.places_inside
    hkey = keys.hkey
    identity = keys.identity
    import_module = imports.import_module
    generator = generator_frames.generator
    resume = generator_frames.resume
    item_or_return = generator_frames.item_or_return
    advance_or_return = generator_frames.advance_or_return
    make_function = closures.make_function
    wrap_cell = closures.wrap_cell
    new_cell = closures.new_cell
    cell_get = closures.cell_get
    cell_set = closures.cell_set
    globals_of = closures.globals_of
    error = raising.error
    refused = raising.refused
    name_error = raising.name_error
    note_raised = raising.note_raised
    put_in_context = raising.put_in_context
    bound_method = construction.bound_method
    make_tuple = construction.make_tuple
    make_dict = construction.make_dict
    make_slice = construction.make_slice
    build = construction.build
    format_value = construction.format_value

    # -- looking at what existed ----------------------------------------------------------------------------------
    def look(self, value: Lazy) -> Value:
        """Wrap a local at its first use, with its guard."""
        try:
            obj = value.source.load(self.roots)
        except (KeyError, AttributeError, IndexError):
            raise Break("unsupported type", type=value.pytype.__name__) from None
        return wrapping.wrap(self, obj, value.source)

    # -- special methods ------------------------------------------------------------------------------------------
    def special(self, obj: Value, name: str, *args: Value) -> Value:
        """Return `type(obj).name(obj, *args)`. Raises the program's TypeError if there is no such method."""
        result = operators.special(self, obj, name, *args)
        if result is None:
            raise self.error(TypeError, f"{type_name(obj.pytype)!r} object has no {name}")
        return result

    def bound_special(self, obj: Value, name: str) -> Value | None:
        """Return a special method bound to its object; None if the type has none."""
        found = lookup.guarded_lookup(self, obj.pytype, name)
        if found is MISSING:
            return None
        return descriptors.describe(self, obj, obj.pytype, name, found)

    def overrides(self, obj: Value, op: str) -> bool:
        """Return whether a tensor operand would yield to this object's own operator."""
        name = operators.INPLACE[op][1] if op in operators.INPLACE else operators.BINARY[op][1]
        slot = model.find_slot(obj.pytype, name)
        return slot[0] == "python" and type(slot[1][1]) is types.FunctionType

    def method(self, obj: Value, name: str) -> Value | None:
        """Return the function that `obj.name(...)` calls with obj first, if it is a plain method; else None."""
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
        """Execute `obj.name(*args)`."""
        method = self.method(obj, name)
        if method is not None:
            return calls.call(self, method, [obj, *args], {})
        return calls.call(self, attributes.getattr_(self, obj, name), list(args), {})

    # -- making objects -------------------------------------------------------------------------------------------
    # -- functions, cells, globals --------------------------------------------------------------------------------
    def call_through(self, passed: Sequence[Passed], fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call `fn` as if the functions `passed` had called it, for which a model stands."""
        self.passed = passed
        try:
            return self.call(fn, args, kwargs)
        finally:
            self.passed = ()

    # -- generators -----------------------------------------------------------------------------------------------
    # -- process state --------------------------------------------------------------------------------------------
    def state_node(self, fn: Any, args: tuple[Any, ...]) -> tuple[torch.fx.Node, Any]:
        """Switch process state for real, and add that to the graph at its place among the operators."""
        return self.builder.switch(fn, args, self.position())

    # -- tensors as objects ---------------------------------------------------------------------------------------
    def store_on(self, tensor: TensorNode, name: str, value: Value) -> None:
        """Set an attribute of a tensor; ABSENT deletes it."""
        self.note_change(tensor)
        namespaces.write(self, namespaces.of_tensor(self, tensor), name, value)

    def refuse_copies(self, *values: Value) -> None:
        """Capture again without copies, if something would tell one of these from what it stands for (branches.py)."""
        if self.copies:
            fakes = {id(value.fake) for value in values if isinstance(value, TensorNode)}
            if any(id(each) in fakes for group in self.copies.values() for each in group):
                raise Retry(Assumption.COPIES)

    def refuse_copies_with_gradients(self) -> None:
        """Capture again without copies, if the gradient of one is another than that of what it stands for."""
        if any(each.requires_grad for group in self.copies.values() for each in group):
            raise Retry(Assumption.COPIES)

    def note_change(self, tensor: TensorNode) -> None:
        """Note that more than the numbers of a tensor is changed."""
        self.refuse_copies(tensor)
        if tensor.node in self.input_objects:
            self.effects.change_tensor()
            self.inputs_apart = True

    # -- implemented by type models -------------------------------------------------------------------------------
    def tensor_getattr(self, obj: Any, name: str) -> Value:
        return model.MODELS[torch.Tensor, "__getattr__"](self, obj, name)

    def tensor_setattr(self, obj: Any, name: str, value: Value) -> None:
        model.MODELS[torch.Tensor, "__setattr__"](self, obj, name, value)

    def dict_items(self, value: Value) -> list[tuple[Value, Value]]:
        """Return the items of any mapping, in order."""
        return model.PAIRS[dict](self, value)

    def instance_dict(self, obj: Object) -> Value:
        return model.INSTANCE_DICT[dict](self, obj)
