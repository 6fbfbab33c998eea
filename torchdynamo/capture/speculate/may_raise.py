"""Capture operators whose errors the frame would catch: `try: x[index]`, `except IndexError`.

A graph runs as a whole, outside of the frame's handlers. So where an operator may raise by what its arguments hold and
somebody in the frame would hear of it, the capture rests on its not raising: as with checks (assertions.py), if the
graph does raise, the frame runs from its start as it was written.
"""

from __future__ import annotations

import builtins
import contextlib
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx

from torchdynamo import _native
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import successors
from torchdynamo.bytecode.instruction import Code, Region
from torchdynamo.capture.frame import Frame, Globals
from torchdynamo.capture.vm import lookup
from torchdynamo.core.signals import Assumption, Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Lazy, Object, Value
from torchdynamo.graph.raising_operators import name_of

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

# Context managers that pass on what is raised in them, for all that their `__exit__` checks.
PASSING = frozenset({torch.autograd.profiler.record_function})


def be_careful(vm: Machine, name: str) -> None:
    """Note that an operator may raise where somebody in the frame catches that, or does something on the way.

    Ends the graph if capture cannot go back.
    """
    inside = [frame for frame in vm.frames if frame.code.lookup(frame.pc) is not None]
    if not inside or vm.may_raise:
        return
    vm.in_block = vm.in_block or any(acts(vm, frame) for frame in inside)
    if (vm.in_block and Assumption.BLOCKS in vm.builder.numbers.dropped) or any(
        hears(vm, frame, frame.pc) for frame in inside
    ):
        if not vm.may_begin_again:
            raise Break("error that is caught", name=name)
        vm.may_raise = True


def be_apart(vm: Machine, node: torch.fx.Node) -> None:
    """Refuse a write whose error the frame would catch: it raises where inputs share memory.

    The frame's own tensors have fakes that tell (graph/overlap.py).
    """
    if len(vm.input_objects) < 2 or not any(hears(vm, frame, frame.pc) for frame in vm.frames):
        return
    touched = set(memory_of(each.meta["example_value"] for each in node.all_input_nodes))
    inputs = {
        id(real): real
        for each, real in vm.input_objects.items()
        if isinstance(real, torch.Tensor)
        and (0 in touched or not touched.isdisjoint(memory_of([each.meta["example_value"]])))
    }
    if len(inputs) > 1 and not _native.tensors_apart(tuple(inputs.values()), ()):
        raise Break("error that is caught", name=name_of(node.target))


def memory_of(examples: Iterable[Any]) -> Iterator[int]:
    """Return the memory of fake tensors; 0 for what has none to show (sparse ones, those in layers of torch.func)."""
    for each in examples:
        if isinstance(each, torch.Tensor):
            try:
                yield each.untyped_storage()._cdata
            except (NotImplementedError, RuntimeError):
                yield 0
        elif isinstance(each, (tuple, list)):
            yield from memory_of(each)


# Errors that operators raise by values, classes of these that they do not raise, and the names of Python's own that are
# none of these: who waits for such, `except NotImplementedError`, does not hear of them.
RAISED = (RuntimeError, IndexError, ValueError, TypeError, AssertionError, ArithmeticError, MemoryError, RuntimeWarning)
NEVER = (NotImplementedError, RecursionError, UnicodeError)


def is_other(cls: type) -> bool:
    """Return whether an exception is none that operators raise by values, nor a base of one, nor derived from one."""
    related = any(issubclass(each, cls) or issubclass(cls, each) for each in RAISED)
    return issubclass(cls, BaseException) and (issubclass(cls, NEVER) or not related)


OTHERS = frozenset(name for name, cls in vars(builtins).items() if isinstance(cls, type) and is_other(cls))


class UnwindPath(NamedTuple):
    """The way of an exception out of a frame: whether it is stopped or replaced, and the `with` blocks on it."""

    ends: bool
    managers: tuple[Region, ...] = ()
    passed: frozenset[str] = frozenset()  # names of other errors that are waited for
    acts: bool = False  # code on it does something besides passing it on


# Instructions that only pass on what was raised.
INERT = frozenset(
    "PUSH_EXC_INFO POP_EXCEPT EXC_MATCH RERAISE RAISE WITH_EXIT COPY SWAP POP NOP BRANCH JUMP LOAD_CONST LOAD_FAST "
    "STORE_FAST DELETE_FAST SETUP_FINALLY POP_BLOCK".split()
)


def way_from(code: Code, region: Region) -> UnwindPath:
    """Return the way of what is raised in a region, which is found once."""
    ways: dict[int, UnwindPath] = code.analyses.setdefault("ways out", {})
    if region.handler not in ways:
        ways[region.handler] = way_out(code, region)
    return ways[region.handler]


def acts(vm: Machine, frame: Frame) -> bool:
    """Return whether what is raised in a frame now meets a `finally` that does something, or an `__exit__`.

    Those of torch's modes are called by whoever handles errors of graphs.
    """
    region = frame.code.lookup(frame.pc)
    way = way_from(frame.code, region) if region is not None else UnwindPath(False)
    managers = [manager_of(vm, frame.stack[each.depth - versions.EXIT_SLOTS]) for each in way.managers]
    return way.ends or way.acts or not all(each is not None and is_torchs(each.pytype) for each in managers)


def is_torchs(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "torch"


def hears(vm: Machine, frame: Frame, at: int) -> bool:
    """Return whether a frame would do something about what is raised at an instruction, other than pass it on."""
    region = frame.code.lookup(at)
    if region is None:
        return False
    way = way_from(frame.code, region)
    if way.ends or not all(is_pythons(vm, frame.globals, name) for name in way.passed):
        return True
    return any(swallows(vm, frame.stack[each.depth - versions.EXIT_SLOTS]) for each in way.managers)


def is_pythons(vm: Machine, space: Globals, name: str) -> bool:
    """Return whether a name means Python's own exception in a frame."""
    error = vars(builtins).get(name)
    if name in space.real or vm.effects.written(space.real, name) is not None or space.builtins.get(name) is not error:
        return False
    if space.source is not None:
        vm.guard(space.source, "NO_KEY", name)
        vm.wrap(error, Source("key", space.builtins_source, name))
    return True


def waits_for_others(code: Code, at: int) -> tuple[list[str], int] | None:
    """Return the names of `except KeyError:` or `except (KeyError, OSError):`, and the target if none match."""
    names: list[str] = []
    while code.instructions[at].op == "LOAD_GLOBAL" and code.instructions[at].arg in OTHERS:
        names.append(code.instructions[at].arg)
        at += 1
    if code.instructions[at].op == "BUILD" and code.instructions[at].arg == ("tuple", len(names)):
        at += 1
    if not names or code.instructions[at].op != "EXC_MATCH":
        return None
    way = code.instructions[at + 1]
    return (names, code.targets[way.arg[1]]) if way.op == "BRANCH" and way.arg[0] == "false" else None


def way_out(code: Code, region: Region) -> UnwindPath:
    """Follow what was raised in a region."""
    instructions, onward = code.instructions, successors(code)
    managers, seen, waiting, passed, acting = [], set(), [region], set(), False
    while waiting:
        region = waiting.pop()
        todo, manager = [region.handler], is_manager(code, region)
        if manager:
            managers.append(region)
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            inst = instructions[at]
            if inst.op in ("RETURN", "YIELD") or (inst.op == "RAISE" and inst.arg):
                return UnwindPath(True)
            others = waits_for_others(code, at)
            if others is not None:
                passed.update(others[0])
                todo.append(others[1])
                continue
            acting |= not manager and inst.op not in INERT
            further = code.lookup(at) if inst.op in ("RAISE", "RERAISE") else None
            if further is not None:
                waiting.append(further)
            todo += [at + 1] if manager and inst.op == "BRANCH" else onward[at]
    return UnwindPath(False, tuple(managers), frozenset(passed), acting)


def is_manager(code: Code, region: Region) -> bool:
    """Return whether the handler is that of a `with`."""
    return any(inst.op == "WITH_EXIT" for inst in code.instructions[region.handler :][:3])


def swallows(vm: Machine, leave: Value) -> bool:
    """Return whether a context manager, of which this is the `__exit__`, may end an exception or make another of it."""
    manager = manager_of(vm, leave)
    if manager is None or manager.pytype in PASSING:
        return False  # what is written in C, of which nothing does
    method = lookup.guarded_lookup(vm, manager.pytype, "__exit__")
    if manager.__class__ is Object and issubclass(manager.pytype, contextlib._GeneratorContextManager):
        generator = vm.entity(manager).attrs.get("gen")
        frame = vm.entity(generator).payload_if(Frame) if generator.__class__ is Object else None
        return frame is None or hears(vm, frame, frame.pc - 1)
    return type(method) is types.FunctionType and not passes_on(decode(method.__code__))


def manager_of(vm: Machine, leave: Value) -> Value | None:
    """Return the context manager of which this is the `__exit__`; None for one that is written in C."""
    leave = vm.look(leave) if leave.__class__ is Lazy else leave
    if leave.pytype is not types.MethodType:
        return None
    manager = vm.getattr(leave, "__self__")
    return vm.look(manager) if manager.__class__ is Lazy else manager


def passes_on(code: Code) -> bool:
    """Return whether an `__exit__` gives nothing that is true, and raises nothing itself."""
    before = zip(code.instructions, code.instructions[1:])
    says = [first.op == "LOAD_CONST" and not first.arg for first, inst in before if inst.op == "RETURN"]
    return all(says) and not any(inst.op == "RAISE" for inst in code.instructions)
