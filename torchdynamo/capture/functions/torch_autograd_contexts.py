"""Tell how the context of a custom `autograd.Function` is made again when its backward runs."""

from __future__ import annotations

import builtins
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import torch

from torchdynamo.capture.functions.torch_autograd_objects import can_change
from torchdynamo.capture.types.dict_views import ORDERED_VIEWS, VIEWS
from torchdynamo.capture.vm.attribute_writes import is_data_descriptor, is_field
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import ViewOf
from torchdynamo.capture.vm.lookup import class_lookup, written_in_python
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Table
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.naming import is_mortal
from torchdynamo.core.source import LED_TO, Guard, Source
from torchdynamo.core.value import ABSENT, Known, Lazy, Object, Symbol, TensorNode, Value
from torchdynamo.graph.backward_as_written import ContextRecipe, Make, Making, ObjectRecipe

Place = Callable[[TensorNode | Symbol], int]
# Kinds of guards that can be checked without a frame: their arguments lead to nothing in it.
ANYWHERE = frozenset(
    {"CLASS_ATTR", "DICT_KEYS", "EQUALS_MATCH", "FUNCTION_MATCH", "HAS_KEY", "ID_MATCH", "LENGTH", "NO_KEY"}
    | {"PLAIN_MAKER", "SET_CONTENTS", "TYPE_MATCH"}
)


# What methods of a context store there; autograd's node has them, but the backward has no use for them.
FILLED_BY_METHODS = {"to_save", "dirty_tensors", "non_differentiable", "materialize_grads"}


class NotMadeAgain(Exception):
    """Raised for an object that cannot be made when the backward runs, or a fact that cannot be checked then."""


class Recipes:
    """Collect the recipes of what a context leads to, for objects that the frame made.

    place: returns the position of a tensor or number among what is kept for the backward.
    """

    def __init__(self, vm: Machine, place: Place) -> None:
        self.vm, self.place = vm, place
        self.objects: dict[int, ObjectRecipe] = {}

    def of(self, value: Value) -> Make:
        """Return what makes a value. Raises NotMadeAgain."""
        if isinstance(value, Lazy):
            value = self.vm.look(value)
        if isinstance(value, Object):
            number = value.ref
            self.add(self.vm.entity(value))
            return lambda by: by.object(number)
        if isinstance(value, (TensorNode, Symbol)):
            index = self.place(value)
            return lambda by: by.given[index]
        if isinstance(value, Known) and is_lasting(self.vm, value.obj):
            obj = value.obj
            return lambda by: obj
        raise NotMadeAgain

    def add(self, entity: Entity) -> None:
        """Add the recipe of an object. Raises NotMadeAgain."""
        if entity.ref in self.objects:
            return
        row = RECIPES.nearest(entity.pytype)
        if entity.source is not None or row is None or not self.is_plain(entity):
            raise NotMadeAgain
        self.objects[entity.ref] = ObjectRecipe(lambda by: None, lambda by, made: None)  # until its parts have theirs
        recipe = row(self, entity)
        attrs = {name: self.of(value) for name, value in entity.attrs.items() if value is not ABSENT}

        def fill(by: Making, made: Any) -> None:
            recipe.fill(by, made)
            for name, make in attrs.items():
                object.__setattr__(made, name, make(by))

        self.objects[entity.ref] = recipe._replace(fill=fill)

    def is_plain(self, entity: Entity) -> bool:
        """Return whether an object has no attributes but those that `object.__setattr__` sets."""
        cls = entity.pytype
        if is_mortal(cls) or id(cls) in self.vm.made_classes:
            return False
        found = [class_lookup(cls, name) if type(name) is str else property for name in entity.attrs]
        return not any(is_computed(each) for each in found)


def recipe_of(vm: Machine, context: Object, saved: list[Value], place: Place) -> ContextRecipe:
    """Return how to make a context that the forward has filled. Raises NotMadeAgain.

    saved: what it saved, tensors or None. place: returns the position of a tensor or number among what is kept.
    """
    attrs, recipes, tensors = vm.entity(context).attrs, Recipes(vm, place), count()
    stored = {
        name: recipes.of(value)
        for name, value in attrs.items()
        if name not in FILLED_BY_METHODS and name != "needs_input_grad" and value is not ABSENT
    }
    return ContextRecipe(
        tuple(next(tensors) if isinstance(each, TensorNode) else None for each in saved),
        tuple(vm.truth(each) for each in vm.iterate(attrs["needs_input_grad"])),
        stored,
        recipes.objects,
    )


def check_made_once(vm: Machine, objects: Mapping[int, ObjectRecipe]) -> None:
    """Raise NotMadeAgain if another call's context leads to an object too: each would make one of its own."""
    changing = {ref for ref in objects if can_change(vm.heap.entities[ref])}
    if changing & vm.in_contexts:
        raise NotMadeAgain
    vm.in_contexts |= changing


def is_computed(found: Any) -> bool:
    """Return whether a class attribute has the say over the attribute of instances."""
    kind = type(found)
    return is_field(found) or (is_data_descriptor(kind) and kind is not types.MemberDescriptorType)


def is_lasting(vm: Machine, obj: Any) -> bool:
    """Return whether an object may be kept with the graph: a constant, or a class or function that nobody frees."""
    cls = type(obj)
    if cls in (tuple, slice, frozenset):
        return all(is_lasting(vm, part) for part in ((obj.start, obj.stop, obj.step) if cls is slice else obj))
    if issubclass(cls, type):
        return not is_mortal(obj) and id(obj) not in vm.made_classes
    return cls in CONSTANTS or (cls is types.BuiltinFunctionType and isinstance(obj.__self__, types.ModuleType))


# Return the recipe of an object of this type, without its attributes.
RECIPES: Table[Callable[[Recipes, Entity], ObjectRecipe]] = Table()


def adds_nothing(cls: type, base: type) -> bool:
    """Return whether instances of a class are made as those of its base in C, which is the only one."""
    return all(written_in_python(each) or each in base.__mro__ for each in cls.__mro__)


def nothing_more(by: Making, made: Any) -> None:
    """Leave an object as it has been made."""


@RECIPES.register(object)
def instance(by: Recipes, entity: Entity) -> ObjectRecipe:
    cls = entity.pytype
    if entity.items is not None or not adds_nothing(cls, object):
        raise NotMadeAgain
    return ObjectRecipe(lambda by: object.__new__(cls), nothing_more)


@RECIPES.register(list)
def of_list(by: Recipes, entity: Entity) -> ObjectRecipe:
    cls = entity.pytype
    if entity.items.__class__ is not list or not adds_nothing(cls, list):
        raise NotMadeAgain
    items = list(map(by.of, entity.items))
    return ObjectRecipe(lambda by: list.__new__(cls), lambda by, made: list.extend(made, [make(by) for make in items]))


@RECIPES.register(dict, OrderedDict)
def of_dict(by: Recipes, entity: Entity) -> ObjectRecipe:
    cls, rows = entity.pytype, {} if entity.items is None else entity.items
    base = OrderedDict if issubclass(cls, OrderedDict) else dict
    if rows.__class__ is not dict or not adds_nothing(cls, base):
        raise NotMadeAgain
    items = [(by.of(key), by.of(value)) for key, value in rows.values()]

    def fill(by: Making, made: Any) -> None:
        for key, value in items:
            base.__setitem__(made, key(by), value(by))

    return ObjectRecipe(lambda by: base.__new__(cls), fill)


@RECIPES.register(*VIEWS.values(), *ORDERED_VIEWS.values())
def of_view(by: Recipes, entity: Entity) -> ObjectRecipe:
    kind, box = entity.payload_as(ViewOf)
    view = getattr(OrderedDict if entity.pytype in ORDERED_VIEWS.values() else dict, kind)
    shown = by.of(box)
    return ObjectRecipe(lambda by: view(shown(by)), nothing_more)


@RECIPES.register(tuple)
def of_tuple(by: Recipes, entity: Entity) -> ObjectRecipe:
    cls, items = entity.pytype, list(map(by.of, by.vm.iterate(Object(entity.ref, entity.pytype))))
    if cls is torch.Size:
        return ObjectRecipe(lambda by: torch.Size([make(by) for make in items]), nothing_more)
    if not adds_nothing(cls, tuple):
        raise NotMadeAgain
    return ObjectRecipe(lambda by: tuple.__new__(cls, [make(by) for make in items]), nothing_more)


@RECIPES.register(slice)
def of_slice(by: Recipes, entity: Entity) -> ObjectRecipe:
    items = list(map(by.of, entity.items))
    return ObjectRecipe(lambda by: slice(*[make(by) for make in items]), nothing_more)


def lasting_fact(vm: Machine, guard: Guard) -> Guard:
    """Return a fact about what a backward has read as one that can be checked without the frame.

    Raises NotMadeAgain if it is about what only the frame leads to.
    """
    if guard.kind == "SAME_OBJECT":
        return guard._replace(source=lasting(vm, guard.source), arg=lasting(vm, guard.arg))
    if guard.kind not in ANYWHERE:
        raise NotMadeAgain
    return guard._replace(source=lasting(vm, guard.source))


def lasting(vm: Machine, source: Source) -> Source:
    """Return a source that begins at a module or class, for one that may begin at the globals of the frame."""
    if source.how in ("module", "pinned"):
        return source
    if source.how == "globals":
        return home(vm)
    if source.how == "builtins" and vm.roots.builtins is vars(builtins):
        return Source("dict", Source("module", None, "builtins"))
    if source.base is None:
        raise NotMadeAgain
    arg = lasting(vm, source.arg) if source.how in LED_TO else source.arg
    return Source(source.how, lasting(vm, source.base), arg)


def home(vm: Machine) -> Source:
    """Return the source of the globals of the frame as those of a module, and guard that they are."""
    name = vm.roots.globals.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    if type(module) is not types.ModuleType or vars(module) is not vm.roots.globals:
        raise NotMadeAgain
    found = Source("dict", Source("module", None, name))
    vm.guard(Source("globals"), "SAME_OBJECT", found)
    return found
