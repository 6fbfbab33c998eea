"""A recipe of a call of an object: what its capture added, told relative to the object, to be done for another one.

A capture rests on nothing but its guards. So where all guards that a call of `layers[0]` has added hold for `layers[1]`
as well, with the one path in the place of the other, the call of that would be captured the same way, and what it would
add is known: guards, inputs, nodes, objects met. The rest of this file sees to what guards do not tell: objects that
are one and the same, and what the call was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchdynamo.capture.torch import float_inputs
from torchdynamo.capture.vm import dict_aliases, model, namespaces
from torchdynamo.capture.vm.call_records import BLOCK, Checking, RecordedCall, newest
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.relative_paths import NotRepeatable, Paths, absolute, has_paths, is_below
from torchdynamo.capture.vm.state import guard_key
from torchdynamo.capture.vm.wrap import HAS_NAMES, is_static
from torchdynamo.core.call_sites import CallSite
from torchdynamo.core.source import Guard, Position, Source, local
from torchdynamo.core.value import Known, Object, TensorNode, Value
from torchdynamo.graph import steps
from torchdynamo.graph.steps import Node

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


class GuardRow(NamedTuple):
    """Describe a guard: the place of its path, or -1 and the path as it is, and an argument that may be relative."""

    place: int
    source: Source
    kind: str
    arg: Any
    relative: bool
    position: Position | None

    def on(self, sources: Sequence[Source]) -> Guard:
        """Return the guard for an object whose paths these are."""
        source = self.source if self.place < 0 else sources[self.place]
        return Guard(source, self.kind, absolute(self.arg, sources) if self.relative else self.arg, self.position)


class ValueRow(NamedTuple):
    """Describe the value of what is at a path: a constant, an object met here first, at another path (`same`), or
    outside (`shared`).
    """

    place: int
    value: Value
    same: int
    shared: bool
    names: bool  # it is an object whose attributes were looked up


class Recipe:
    """Additions of a call, relative to its object."""

    def __init__(self, vm: Machine, done: RecordedCall, checking: Checking) -> None:
        self.done = done
        self.paths = paths = Paths(done.source)
        self.known = {self._below(source): source for source in done.known}
        self.known_guards = [self._row(paths, each) for guards in done.known.values() for each in guards]
        self.guards = [row for row in (self._row(paths, each) for each in done.guards) if row is not None]
        self.values = [row for row in (self._value(vm, *each) for each in done.values) if row is not None]
        self.known_values = [
            row
            for row in (
                self._value(vm, source, vm.by_source[source]) for source in done.known if source in vm.by_source
            )
            if row is not None
        ]
        if any(row.same >= 0 or (row.value.__class__ is TensorNode and not row.shared) for row in self.known_values):
            raise NotRepeatable
        self._check_dicts(vm)
        self.nodes, self.erased = self._check_steps()
        self.check_result(vm, done.result)
        own = [row for row in self.guards if row.place >= 0 and is_below(row.arg)]
        self.apart = [row for row in self.guards if row.place < 0 or not is_below(row.arg)]
        if any(row.kind not in ("DISTINCT", "SAME_OBJECT") for row in self.apart):
            raise NotRepeatable
        block = paths.sources(local(BLOCK))
        self.holds = checking([row.on(block) for row in own], done.real)

    def _below(self, source: Source) -> int:
        index = self.paths.of(source)
        assert index is not None
        return index

    def _row(self, paths: Paths, guard: Guard) -> GuardRow | None:
        index, arg = paths.of(guard.source), paths.relative(guard.arg)
        relative = has_paths(arg)
        if index is None and not relative:
            return None
        if guard.kind == "SAME_OBJECT" and index is None:
            raise NotRepeatable  # elsewhere is an object of this one's: what is compared with it would be no other
        if guard.kind in ("NO_OVERLAP", "KEYED", "NOT_KEYED"):
            raise NotRepeatable
        return GuardRow(-1 if index is None else index, guard.source, guard.kind, arg, relative, guard.position)

    def _value(self, vm: Machine, source: Source, value: Value) -> ValueRow | None:
        index = self.paths.of(source)
        if index is None:
            return None
        first: Source | None = source
        if value.__class__ is Object:
            entity = vm.entity(value)
            first = entity.source
            row = model.ENTER.nearest(value.pytype)
            own = first is None or self.paths.of(first) is not None
            if own and (entity.payload is not None or row not in (None, dict_aliases.enter)):
                raise NotRepeatable
        elif value.__class__ is TensorNode:
            first = value.source
        elif value.__class__ is not Known:
            raise NotRepeatable
        if first is None:
            raise NotRepeatable
        same = self.paths.of(first)
        shared = same is None
        return ValueRow(
            index, value, -1 if same is None or first is source else same, shared, not shared and looked_up(vm, value)
        )

    def _check_dicts(self, vm: Machine) -> None:
        """Raise NotRepeatable if dictionaries below the object were reached otherwise than as an instance's own."""
        own = {id(own_dict(vm, row.value)) for row in (*self.values, *self.known_values) if row.names}
        count = self.done.after.dicts - self.done.before.dicts
        for key, space in newest(vm.aliased_dicts, len(vm.aliased_dicts) - self.done.before.dicts)[:count]:
            if key not in own and (space.source is None or self.paths.of(space.source) is not None):
                raise NotRepeatable

    def _check_steps(self) -> tuple[set[Node], set[Node]]:
        """Return the nodes that were added, and those that were erased again. Raises NotRepeatable."""
        erased = {step.node for step in self.done.steps if step.how is steps.ERASED}
        own, given = set[Node](), self.done.given
        for step in self.done.steps:
            if step.how in (steps.TRIED, steps.ITEM):
                for node in steps.nodes_in((step.args, step.kwargs)):
                    if node not in own and node not in given and node.op != "placeholder":
                        raise NotRepeatable
            elif step.how is steps.ERASED:
                if step.node not in own:
                    raise NotRepeatable
            elif step.how is not steps.INPUT or step.source is None:
                raise NotRepeatable
            elif self.paths.of(step.source) is None:
                continue  # an input of all of them
            own.add(step.node)
        return own, erased

    # -- for another object ---------------------------------------------------------------------------------------
    def fits(self, vm: Machine, source: Source, real: Any, known: dict[Source, list[Guard]]) -> Match | None:
        """Return what is at the paths from another object; None if the call of that may be captured otherwise.

        `known`: what is known of that object already.
        """
        sources = self.paths.sources(source)
        if len(known) != len(self.known) or any(sources[index] not in known for index in self.known):
            return None
        wanted = {guard_key(*row.on(sources)[:3]) for row in self.known_guards if row is not None}
        if wanted != {guard_key(*guard[:3]) for guards in known.values() for guard in guards}:
            return None
        if not self.holds(real):
            return None
        objects = self.paths.objects(real)
        if objects is None or not self._values_fit(vm, sources, objects):
            return None
        if not all(identity_holds(vm, row.on(sources)) for row in self.apart):
            return None
        return Match(sources, objects)

    def _values_fit(self, vm: Machine, sources: list[Source], objects: list[Any]) -> bool:
        for row in self.known_values:
            value = vm.by_source.get(sources[row.place])
            if value is None or value.__class__ is not row.value.__class__ or value.pytype is not row.value.pytype:
                return False
            if value.__class__ is Known and not same_constant(row.value.obj, value.obj):  # type: ignore[union-attr]
                return False
            if (
                value is not row.value
                if row.shared
                else value.__class__ is Object and vm.entity(value).source is not sources[row.place]
            ):
                return False
        by_id, seen, dicts, memory = vm.heap.by_id, set[int](), set[int](), set[int]()
        inputs = {id(real) for real in vm.input_objects.values()}
        for row in self.values:
            obj, value = objects[row.place], row.value
            if row.same >= 0 or row.shared:
                if obj is not (objects[row.same] if row.same >= 0 else real_of(vm, value)):
                    return False
            elif value.__class__ is Known:
                if not same_constant(value.obj, obj):
                    return False
                if type(obj) is float and float_inputs.is_scheduled(vm, sources[row.place]):
                    return False
            elif id(obj) in seen or id(obj) in by_id or id(obj) in inputs or id(obj) in vm.aliased_dicts:
                return False
            elif value.__class__ is TensorNode:
                seen.add(id(obj))
                place = tensor_fits(vm, vm.input_objects[value.node], obj, sources[row.place])
                if place is None or place in memory:
                    return False
                memory.add(place)
            else:
                seen.add(id(obj))
        for row in (*self.values, *self.known_values):
            if row.names:
                own = namespaces.holder_of(row.value.pytype).own(objects[row.place])
                if own is None or any(type(key) is not str for key in own) or id(own) in by_id or id(own) in seen:
                    return False
                space = vm.aliased_dicts.get(id(own))
                if id(own) in dicts or (space is not None and row.place not in self.known):
                    return False
                dicts.add(id(own))
        return True

    def repeat(self, vm: Machine, match: Match, nodes: dict[Node, Node], values: dict[Node, TensorNode]) -> Value:
        """Add all that the call would add, and return its result. `nodes`, `values`: of what the call is given."""
        sources, objects = match
        for guard in [row.on(sources) for row in self.guards]:
            vm.guards.setdefault(guard_key(*guard[:3]), guard)
        self._repeat_steps(vm, sources, objects, nodes, values)
        for row in self.values:
            source, value = sources[row.place], row.value
            if row.same >= 0 or row.shared:
                made = vm.by_source[sources[row.same]] if row.same >= 0 else value
            elif value.__class__ is Known:
                made = Known(objects[row.place], source)
            elif value.__class__ is TensorNode:
                made = values[nodes[value.node]]
            else:
                made = vm.heap.adopt(objects[row.place], source)
            vm.by_source[source] = made
        for row in (*self.known_values, *self.values):
            if row.names and row.same < 0:
                namespaces.own_attributes(vm, vm.entity(vm.by_source[sources[row.place]]))  # type: ignore[arg-type]
        vm.ops += self.done.after.ops - self.done.before.ops
        vm.turns += self.done.after.turns - self.done.before.turns
        return self._result(vm, self.done.result, nodes, values)

    def _repeat_steps(
        self,
        vm: Machine,
        sources: list[Source],
        objects: list[Any],
        nodes: dict[Node, Node],
        values: dict[Node, TensorNode],
    ) -> None:
        builder, where = vm.builder, vm.builder.where
        site: CallSite | None = None
        builder.where = lambda: site
        for value in values.values():
            vm.fakes.setdefault(id(value.fake), value)
        try:
            for step in self.done.steps:
                if step.how is steps.INPUT:
                    index = None if step.source is None else self.paths.index[step.source]
                    if index is None:
                        continue  # it is there
                    value = vm.tensor_input(objects[index], sources[index], static=True)
                    vm.input_objects[value.node] = objects[index]
                    node = value.node
                elif step.how is steps.ERASED:
                    builder.erase(nodes[step.node])
                    continue
                else:
                    site = builder.call_sites.get(step.node.name)
                    node = steps.repeat(builder, step, nodes, step.node in self.erased)
                    example = node.meta["example_value"]
                    if not isinstance(example, torch.Tensor):
                        nodes[step.node] = node
                        continue
                    kind = torch.nn.Parameter if isinstance(example, torch.nn.Parameter) else torch.Tensor
                    value = vm.fakes.get(id(example)) or TensorNode(node, example, kind)
                vm.fakes.setdefault(id(value.fake), value)
                nodes[step.node] = node
                values[node] = value
        finally:
            builder.where = where

    def _result(self, vm: Machine, result: Value, nodes: dict[Node, Node], values: dict[Node, TensorNode]) -> Value:
        if result.__class__ is TensorNode and result.node in nodes:
            return values[nodes[result.node]]
        if result.__class__ is Object and is_made(vm, result, self.done.before.objects):
            items = [self._result(vm, item, nodes, values) for item in vm.entity(result).items]
            return vm.new(result.pytype, items)
        return result

    def check_result(self, vm: Machine, result: Value) -> None:
        """Raise NotRepeatable if the result cannot be made for another object."""
        if result.__class__ is TensorNode:
            own = result.node in self.nodes or result.node in self.done.given
            if not own and (result.source is None or self.paths.of(result.source) is not None):
                raise NotRepeatable
        elif result.__class__ is Known:
            at = result.source is not None and self.paths.of(result.source) is not None
            if at or id(result.obj) in vm.made_tuples:
                raise NotRepeatable
        elif result.__class__ is Object:
            entity = vm.entity(result)
            if is_made(vm, result, self.done.before.objects):
                for item in entity.items:
                    self.check_result(vm, item)
            elif entity.source is None or self.paths.of(entity.source) is not None:
                raise NotRepeatable
        else:
            raise NotRepeatable


class Match(NamedTuple):
    """The paths from an object, and what is there."""

    sources: list[Source]
    objects: list[Any]


def tensor_fits(vm: Machine, first: torch.Tensor, other: torch.Tensor, source: Source) -> int | None:
    """Return the address of the memory of a tensor that would become an input as another has; None if it would not."""
    if not is_static(vm, source) or (HAS_NAMES is not None and HAS_NAMES(other)):
        return None
    return vm.builder.entrants.place_if_alike(first, other)


def real_of(vm: Machine, value: Value) -> Any:
    """Return the real object of a value that existed at entry; MISSING of any other."""
    if value.__class__ is Object:
        return vm.entity(value).real
    return vm.input_objects.get(value.node, MISSING) if value.__class__ is TensorNode else MISSING


def own_dict(vm: Machine, value: Value) -> dict[str, Any] | None:
    """Return the dictionary of an object that existed at entry."""
    return namespaces.own_dict(vm.entity(value)) if value.__class__ is Object else None


def looked_up(vm: Machine, value: Value) -> bool:
    """Return whether attributes of an object were looked up in its own dictionary."""
    return value.__class__ is Object and id(vm.entity(value)) in vm.with_names


def is_made(vm: Machine, value: Object, since: int) -> bool:
    """Return whether a value is a plain tuple that the frame has made since it had so many objects."""
    entity = vm.entity(value)
    plain = value.pytype is tuple and entity.payload is None and not entity.attrs
    return plain and entity.fresh and value.ref >= since and type(entity.items) is list


def same_constant(one: Any, other: Any) -> bool:
    """Return whether two constants are interchangeable, given that a guard has compared their values."""
    return one is other or (type(one) is type(other) and type(one) in COMPARED)


# Types whose constants are guarded by their value; of any other it is the very object.
COMPARED = frozenset({int, float, complex, str, bytes, range, torch.Size, torch.device})


def identity_holds(vm: Machine, guard: Guard) -> bool:
    """Return whether a guard on which objects are one, or are different ones, holds."""
    if guard.kind == "SAME_OBJECT":
        same: bool = guard.source.load(vm.roots) is guard.arg.load(vm.roots)
        return same
    return len({id(source.load(vm.roots)) for source in guard.arg}) == len(guard.arg)
