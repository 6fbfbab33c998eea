"""Follow the stack through a function's code: how deep it is before each instruction, and what of it is no object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Code, Instruction, Region

Slot = str | tuple[str, int]
Stack = tuple[Slot, ...]

VALUE = "value"
NULL = "null"  # beside a callable
UNKNOWN = "unknown"  # an object or NULL, depending on what was looked up
PLACE = "place"  # that of a raising instruction, which a handler finds below the exception, where it is no object
# ("method", i): NULL if instruction i, which looks a method up, is written as a plain lookup with a NULL beside it.
# ("slot", i): what was in this place at the start.

Effect = Callable[[Any], tuple[int, int]]  # of an argument: items popped and pushed


class UnknownEffect(Exception):
    """Raised at an instruction whose effect on the stack is not known."""


def stacks(
    code: Code, start: int, stack: Stack, cuts: Callable[[int], bool], effects: Mapping[str, Effect]
) -> dict[int, Stack]:
    """Return the stack before each instruction that can be reached from `start`, not going on at cuts.

    The start itself is no cut. Where ways meet, a slot is what it is on all of them. Raises UnknownEffect.
    """
    found: dict[int, Stack] = {}
    waiting = [(start, stack)]
    begun = False
    while waiting:
        index, stack = waiting.pop()
        known = found.get(index)
        if known is not None:
            stack = tuple(map(met, known, stack))
            if stack == known and (begun or index != start):
                continue
        found[index] = stack
        if begun and cuts(index):
            continue
        begun = True
        waiting += after(code, index, stack, effects)
        region = code.lookup(index)
        if region is not None:
            waiting.append((region.handler, (*stack[: region.depth], *pushed_by(region))))
    return found


def pushed(region: Region) -> int:
    """Return how many items the handler of a region finds on the stack above the region's."""
    return 1 + region.lasti if versions.EXCEPTION_TABLE else 2 * versions.EXCEPTION_SLOTS


def pushed_by(region: Region) -> list[Slot]:
    """Return what the handler of a region finds above the region's stack."""
    return [PLACE, VALUE] if region.lasti and versions.PLACES_ARE_TAGGED else [VALUE] * pushed(region)


def met(one: Slot, other: Slot) -> Slot:
    """Return what a slot is where two ways meet."""
    if one == other:
        return one
    objects = all(each in (VALUE, PLACE) or each[0] == "slot" for each in (one, other))
    if not objects:
        return UNKNOWN
    return PLACE if PLACE in (one, other) else VALUE


def after(code: Code, index: int, stack: Stack, effects: Mapping[str, Effect]) -> list[tuple[int, Stack]]:
    """Return the instructions that may run next, exception handlers not included, each with the stack it finds."""
    instruction = code.instructions[index]
    op, arg = instruction.op, instruction.arg
    following = index + 1
    if op in ENDS:
        return []
    if op == "JUMP":
        return [(code.targets[arg], stack)]
    if op == "BRANCH":
        return [(following, stack[:-1]), (code.targets[arg[1]], stack[:-1])]
    if op == "BRANCH_KEEP":
        return [(following, stack[:-1]), (code.targets[arg[1]], stack)]
    if op == "FOR_ITER":
        return [(following, (*stack, VALUE)), (code.targets[arg], stack[:-1])]
    if op == "SEND":
        return [(following, stack), (code.targets[arg], (*stack[:-2], VALUE))]
    if op in MOVED:
        return [(following, MOVED[op](stack, arg))]
    return [(following, done(instruction, index, stack, effects))]


def done(instruction: Instruction, index: int, stack: Stack, effects: Mapping[str, Effect]) -> Stack:
    """Return the stack after an instruction that pops and pushes."""
    if instruction.op == "NULL":
        return (*stack, NULL)
    if instruction.op in LOOKUPS and looks_up_method(instruction):
        found: Stack = (("method", index), VALUE)
        return (*stack[: len(stack) - LOOKUPS[instruction.op]], *(found if versions.NULL_FIRST else found[::-1]))
    if instruction.op == "LOAD_SUPER":
        return (*stack[:-3], VALUE)
    if instruction.op == "LOAD_SPECIAL":
        return (*stack[:-1], VALUE, UNKNOWN)
    if instruction.op == "LOAD_FAST_AND_CLEAR":
        return (*stack, UNKNOWN)
    effect = effects.get(instruction.op)
    if effect is None:
        raise UnknownEffect(instruction.op)
    pops, pushes = effect(instruction.arg)
    return (*stack[: len(stack) - pops], *[VALUE] * pushes)


LOOKUPS = {"LOAD_METHOD": 1, "LOAD_SUPER": 3}  # items popped


def looks_up_method(instruction: Instruction) -> bool:
    """Return whether one of LOOKUPS has a slot beside what it finds, for `self` or NULL."""
    return instruction.op == "LOAD_METHOD" or bool(instruction.arg[1])


def plain_lookup(instruction: Instruction) -> Instruction:
    """Return one of LOOKUPS as a lookup of an attribute, which pushes what it finds and nothing else."""
    if instruction.op == "LOAD_METHOD":
        return Instruction("LOAD_ATTR", instruction.arg, instruction.position)
    name, _, two = instruction.arg
    return Instruction("LOAD_SUPER", (name, False, two), instruction.position)


ENDS = frozenset({"RETURN", "RAISE", "RERAISE"})
MOVED: dict[str, Callable[[Stack, Any], Stack]] = {
    "COPY": lambda stack, depth: (*stack, stack[-depth]),
    "SWAP": lambda stack, depth: swapped(stack, depth),
    "ROTATE": lambda stack, depth: (*stack[:-depth], stack[-1], *stack[-depth:-1]),
}


def swapped(stack: Stack, depth: int) -> Stack:
    """Return the stack with its top and the item at this depth exchanged."""
    moved = list(stack)
    moved[-1], moved[-depth] = moved[-depth], moved[-1]
    return tuple(moved)


def reaching(found: Mapping[int, Stack], cuts: Collection[int]) -> set[int]:
    """Return the lookups of methods whose NULL is on the stack at one of the cuts."""
    return {
        slot[1] for cut in cuts for slot in found[cut] if isinstance(slot, tuple) and slot[0] == "method"
    }  # fmt: skip
