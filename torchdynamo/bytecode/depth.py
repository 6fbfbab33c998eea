"""Compute stack depths: for `co_stacksize`, and the depth to which exception handlers cut the stack.

Stack effects come from the `bytecode` package. One walk over the flat stream rejects code whose paths disagree, which
would crash the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

from bytecode.instr import Instr, Label, TryBegin, TryEnd

from torchdynamo.bytecode import versions

Raw = Instr | Label | TryBegin | TryEnd


class DepthError(ValueError):
    """Raised if paths reach an instruction with different stack depths, or one pops more than there is."""


class _Walk:
    def __init__(self, stream: Sequence[Raw]) -> None:
        self.stream = stream
        self.depth: list[int | None] = [None] * len(stream)
        self.places = {id(item): index for index, item in enumerate(stream) if type(item) is Label}
        self.largest = 0

    def follow(self, start: int, depth: int) -> None:
        """Compute depths from `start` on and at all places that can be jumped to from there."""
        waiting = [(start, depth)]
        while waiting:
            index, depth = waiting.pop()
            while index < len(self.stream):
                known = self.depth[index]
                if known is not None and (known == depth or (not versions.EFFECTS_EXACT and known > depth)):
                    break
                if known is not None and versions.EFFECTS_EXACT:
                    raise DepthError(f"stack depth {known} or {depth} at {self.stream[index]!r} ({index})")
                self.depth[index] = depth
                item = self.stream[index]
                index += 1
                if not isinstance(item, Instr):
                    continue
                self.largest = max(self.largest, depth)
                if item.has_jump() and item.name not in versions.JUMPS_FOR_MONITORS:
                    taken = depth + item.stack_effect(jump=True)
                    self.largest = max(self.largest, taken)
                    waiting.append((self.places[id(item.arg)], taken))
                if item.is_final():
                    break
                depth += item.stack_effect(jump=False)
                self.largest = max(self.largest, depth)
                if depth < 0:
                    raise DepthError(f"{item!r} takes more than the stack holds ({index - 1})")


def stack_size(stream: Sequence[Raw], entry: int) -> int:
    """Return the greatest stack depth; set the depth of regions that have none to the smallest inside of them."""
    walk = _Walk(stream)
    walk.follow(0, entry)
    waiting = {index: item for index, item in enumerate(stream) if isinstance(item, TryBegin)}
    ends = {id(item.entry): index for index, item in enumerate(stream) if isinstance(item, TryEnd)}
    while True:
        reached = [index for index in waiting if _inside(walk, index, ends)]
        if not reached:
            break
        for index in reached:
            region = waiting.pop(index)
            if not _is_set(region.stack_depth):
                region.stack_depth = min(_inside(walk, index, ends))
            walk.follow(walk.places[id(region.target)], int(region.stack_depth) + 1 + region.push_lasti)
    for region in waiting.values():  # unreachable: any depth will do
        if not _is_set(region.stack_depth):
            region.stack_depth = 0
    return walk.largest


def _is_set(depth: object) -> bool:
    return type(depth) is int


def _inside(walk: _Walk, start: int, ends: dict[int, int]) -> list[int]:
    end = ends[id(walk.stream[start])]
    return [
        depth
        for item, depth in zip(walk.stream[start:end], walk.depth[start:end], strict=True)
        if depth is not None and isinstance(item, Instr)
    ]
