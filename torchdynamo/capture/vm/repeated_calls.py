"""Capture a call once for all objects of one kind in a loop: each layer of a model as the one before was.

The first is executed. What its capture has added is kept as a recipe (call_recipes.py), and where that fits the next
object, it is done again with the other paths and nodes, which takes a fraction of the time and gives the very same
graph and guards. Everything that is not known to make no difference does: then the call is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from torchdynamo import _native
from torchdynamo.bytecode.flow import loops
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm.call_recipes import Recipe
from torchdynamo.capture.vm.call_records import Checking, RecordedCall, marks, newest
from torchdynamo.capture.vm.effects import is_older
from torchdynamo.capture.vm.relative_paths import NotRepeatable
from torchdynamo.core.source import LED_TO, Guard, Source
from torchdynamo.core.value import Absent, Known, Lazy, Object, TensorNode, Value
from torchdynamo.graph.steps import Node

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Run = Callable[["Machine", Object, list[Value], dict[str, Value], bool], Value]
MOST_RECIPES = 3  # kinds of objects that take turns in one loop
MOST_MISSES = 6  # objects that no recipe fits, before none is tried any more


class Attempt:
    """A call that was executed, and its recipe once it is asked for."""

    def __init__(self, state: Any, args: list[Value], kwargs: dict[str, Value], done: RecordedCall) -> None:
        self.state, self.args, self.kwargs, self.done = state, args, kwargs, done
        self.recipe: Recipe | None = None


class RepeatedPlace:
    """A call in a loop, and the recipes of the objects that were called there, the newest first."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.misses = 0


class RepeatedCalls:
    """Find, in one capture, the calls that are captured as one before was."""

    def __init__(self, checking: Checking) -> None:
        self.checking = checking
        self.places: dict[tuple[Frame, int, type], RepeatedPlace] = {}
        self.told: dict[Source, list[Guard]] = {}  # the guards that name a path
        self.guards = self.values = 0  # how many of them have been looked at
        self.linked: set[Source] = set()
        self.further: dict[Source, list[Source]] = {}  # the paths seen that continue one

    def call(
        self, vm: Machine, fn: Object, args: list[Value], kwargs: dict[str, Value], direct: bool, run: Run
    ) -> Value:
        """Call an object that existed at entry; `run` executes the call."""
        frame = vm.frames[-1]
        entity = vm.entity(fn)
        source = entity.source
        if (
            source is None
            or not is_in_loop(frame)
            or may_stop(vm, frame)
            or not is_plain(vm)
            or not is_in_container(vm, source)
        ):
            return run(vm, fn, args, kwargs, direct)
        place = self.places.setdefault((frame, frame.pc, fn.pytype), RepeatedPlace())
        if place.misses >= MOST_MISSES:
            return run(vm, fn, args, kwargs, direct)
        known = self.known_below(vm, source)
        if known is not None:
            for attempt in place.attempts:
                result = self.repeated(vm, attempt, direct, fn, args, kwargs, known)
                if result is not None:
                    place.misses = 0
                    return result
        place.misses += bool(place.attempts)
        vm.effects.watch()
        state, before = state_of(vm, direct), marks(vm)
        with vm.heap.watched() as asked:
            result = run(vm, fn, args, kwargs, direct)
        after = marks(vm)
        wrote = any(
            change.owner is None or is_older(change.owner, before.objects)
            for change in vm.effects.changes(before.changes)
        )
        given = [*args, *kwargs.values()]
        if (
            known is not None
            and not wrote
            and state_of(vm, direct) == state
            and is_plain(vm)
            and looked_at_entry_only(vm, asked, before.objects, given, source)
        ):
            done = RecordedCall(
                *(source, entity.real, before, after, known),
                [guard for _, guard in newest(vm.guards, after.guards - before.guards)],
                newest(vm.by_source, after.values - before.values),
                vm.builder.steps[before.steps :],
                frozenset(value.node for value in leaves(vm, given)),
                result,
            )
            place.attempts.insert(0, Attempt(state, args, kwargs, done))
            del place.attempts[MOST_RECIPES:]
        return result

    def repeated(
        self,
        vm: Machine,
        attempt: Attempt,
        direct: bool,
        fn: Object,
        args: list[Value],
        kwargs: dict[str, Value],
        known: dict[Source, list[Guard]],
    ) -> Value | None:
        """Return the result of a call by the recipe of another; None if that does not fit: nothing has been done."""
        done = attempt.done
        if (
            attempt.state != state_of(vm, direct)
            or len(args) != len(attempt.args)
            or list(kwargs) != list(attempt.kwargs)
        ):
            return None
        source = vm.entity(fn).source
        assert source is not None
        roots = (done.source, source)
        nodes: dict[Node, Node] = {}
        pairs = zip(chain(attempt.args, attempt.kwargs.values()), chain(args, kwargs.values()), strict=True)
        if not all(matches(vm, one, other, nodes, roots) for one, other in pairs):
            return None
        if len(set(nodes.values())) < len(nodes):
            return None
        if any(one.op == "placeholder" and one is not other for one, other in nodes.items()):
            return None  # what reads it otherwise than as an argument would go on with it
        if any(starts_at(told, roots) for table in vm.told_apart.values() for told in table):
            return None  # a key by identity
        if attempt.recipe is None:
            try:
                attempt.recipe = Recipe(vm, done, self.checking)
            except NotRepeatable:
                attempt.state = None
                return None
        match = attempt.recipe.fits(vm, source, vm.entity(fn).real, known)
        if match is None:
            return None
        values = {value.node: value for value in leaves(vm, [*args, *kwargs.values()])}
        return attempt.recipe.repeat(vm, match, nodes, values)

    def known_below(self, vm: Machine, root: Source) -> dict[Source, list[Guard]] | None:
        """Return the paths from an object of which something is known, with the guards that name each; None if one
        begins at an object that is found by another's identity.
        """
        for _, guard in newest(vm.guards, len(vm.guards) - self.guards):
            for source in named(guard):
                self.told.setdefault(source, []).append(guard)
                self.link(source)
        for source, _ in newest(vm.by_source, len(vm.by_source) - self.values):
            self.link(source)
        self.guards, self.values = len(vm.guards), len(vm.by_source)
        found: dict[Source, list[Guard]] = {}
        waiting = [root]
        while waiting:
            source = waiting.pop()
            if source.how in LED_TO:
                return None
            if source in self.told or source in vm.by_source:
                found[source] = self.told.get(source, [])
            waiting += self.further.get(source, ())
        return found

    def link(self, source: Source) -> None:
        """Enter a path, and those on its way, so that it is found from each object on it."""
        while source not in self.linked:
            self.linked.add(source)
            for base in (source.base, source.arg if source.how in LED_TO else None):
                if base is not None:
                    self.further.setdefault(base, []).append(source)
            if source.base is None:
                return
            source = source.base


def named(guard: Guard) -> Iterator[Source]:
    """Yield the sources that a guard names."""
    yield guard.source
    if guard.source.how in LED_TO:
        yield guard.source.arg
    waiting = [guard.arg]
    while waiting:
        arg = waiting.pop()
        if type(arg) is Source:
            yield arg
        elif type(arg) is tuple:
            waiting += arg


def is_in_loop(frame: Frame) -> bool:
    """Return whether the current instruction of a frame is in a loop."""
    inside = frame.code.analyses.get("in loops")
    if inside is None:
        inside = frame.code.analyses["in loops"] = frozenset(at for loop in loops(frame.code) for at in loop.body)
    return frame.pc in inside


def may_stop(vm: Machine, frame: Frame) -> bool:
    """Return whether the capture is to stop in the call that a frame is making."""
    level = frame.level
    return bool(vm.stops) and 0 <= level < len(vm.stops) and len(frame.path) - 1 >= vm.stops[level]


def is_plain(vm: Machine) -> bool:
    """Return whether nothing is going on that a recipe could not tell."""
    numbers = vm.builder.numbers
    unusual = vm.made_classes or vm.watching or vm.devices or vm.modes or vm.passed
    varying = numbers or numbers.varying or numbers.always or any(numbers.named)
    return not (unusual or varying or vm.effects.wrote_outside)


def state_of(vm: Machine, direct: bool) -> Any:
    """Return all that a call may depend on, or change, but what it is given and what guards tell."""
    record = vm.builder.record
    lengths = (vm.checks, vm.hooks, vm.boxes, vm.numbers_in, vm.objects_in, vm.layouts, vm.sizes, vm.kept, vm.mortals)
    more = (vm.copied, vm.inside, vm.realized, vm.unseen, vm.told_apart, vm.heap.literals, record.writes)
    return (
        direct,
        [len(each) for each in (*lengths, *more, vm.in_backwards, vm.run_again)],
        sum(map(len, vm.told_apart.values())),
        (vm.may_raise, vm.in_block, vm.sizes_fit, vm.ids_are_keys, vm.addresses_are_keys),
        (vm.watching_modes, vm.inputs_apart),
        (vm.modes_off, vm.subclasses_off, vm.grad_mode_unknown, id(vm.builder), vm.builder.count_bodies()),
        (record.as_captured, record.unknown_effects, record.everything_written),
        vm.effects.outside(),
        _native.global_state(),
    )


def matches(vm: Machine, one: Value, other: Value, nodes: dict[Node, Node], roots: Sequence[Source]) -> bool:
    """Return whether a call would do with one value as with the other; `nodes` gets the other's node for each."""
    if one.__class__ is not other.__class__ or one.pytype is not other.pytype:
        return False
    if one.__class__ is TensorNode:
        assert other.__class__ is TensorNode
        known = nodes.setdefault(one.node, other.node)
        if known is not other.node:
            return False
        if one.node is other.node:
            return one.source is None or not starts_at(one.source, roots)
        if one.source is not None or other.source is not None:
            return False
        return facts_of(vm, one) == facts_of(vm, other)
    if one.__class__ is Known:
        return one.obj is other.obj and one.source is other.source and not starts_at(one.source, roots)  # type: ignore[union-attr]
    if one.__class__ is Lazy:
        return one.source is other.source and not starts_at(one.source, roots)  # type: ignore[union-attr]
    if one.__class__ is Object:
        entity = vm.entity(one)
        if not entity.fresh:
            return one.ref == other.ref and not starts_at(entity.source, roots)  # type: ignore[union-attr]
        ones, others = items_of(vm, one), items_of(vm, other)  # type: ignore[arg-type]
        if ones is None or others is None or len(ones) != len(others):
            return False
        return all(matches(vm, a, b, nodes, roots) for a, b in zip(ones, others, strict=True))
    return one.__class__ is Absent


def starts_at(source: Source | None, roots: Sequence[Source]) -> bool:
    """Return whether a path leads by one of these objects."""
    while source is not None:
        if source in roots:
            return True
        source = source.base
    return False


def items_of(vm: Machine, value: Object) -> list[Value] | None:
    """Return the items of a plain tuple that the frame has made; None of anything else."""
    entity = vm.entity(value)
    plain = value.pytype is tuple and entity.fresh and entity.payload is None and not entity.attrs
    items: list[Value] | None = entity.items if plain and type(entity.items) is list else None
    return items


def leaves(vm: Machine, values: Iterable[Value]) -> Iterator[TensorNode]:
    """Yield the tensors among values, and in tuples of them."""
    for value in values:
        if value.__class__ is TensorNode:
            yield value
        elif value.__class__ is Object:
            yield from leaves(vm, items_of(vm, value) or ())


def looked_at_entry_only(vm: Machine, asked: Iterable[int], count: int, given: Iterable[Value], source: Source) -> bool:
    """Return whether a call of an object has looked at nothing but what it was given and what was there at entry, and
    not at what leads to the object itself: from there it would not find another object by another path.

    `asked`: the references that it looked at; `count`: how many objects there were before.
    """
    above = set[Source]()
    base = source.base
    while base is not None:
        above.add(base)
        base = base.base
    own, waiting = set[int](), list(given)
    while waiting:
        value = waiting.pop()
        if value.__class__ is Object:
            items = items_of(vm, value)
            if items is not None:
                own.add(value.ref)
                waiting += items
    for ref in asked:
        if ref < count and ref not in own:
            entity = vm.heap.entities[ref]
            if entity.fresh or entity.changed or entity.source in above:
                return False
    return True


def is_in_container(vm: Machine, source: Source) -> bool:
    """Return whether an object was found in a container, so that other ways to it lead by that, or are guarded."""
    base = source.base
    box = None if base is None else vm.by_source.get(base)
    if box.__class__ is not Object or source.how not in CONTAINED or base is None or base.how not in CONTAINED:
        return False
    return vm.entity(box).source is base


CONTAINED = frozenset({"key", "item", "value_at"})


def facts_of(vm: Machine, value: TensorNode) -> Any:
    """Return all that a program can ask of a computed tensor; what equals nothing if that is not known."""
    fake = value.fake
    metadata = vm.builder.fake_cache.known_metadata.of(fake)
    if metadata is None or fake.is_inference():
        return object()
    return id(metadata), fake._version, fake._is_view(), type(fake.grad_fn), fake.retains_grad
