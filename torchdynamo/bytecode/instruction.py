"""Data types of decoded code: instruction, label, exception region, code object.

An instruction's argument is what the raw index stood for (a name, a constant, a Label, an operator), so code outside of
this package does not depend on a Python version's encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo.bytecode.versions import EXCEPTION_TABLE, Positions

# CALL_FUNCTION, before 3.11, has no slot for NULL or `self` beside what it calls; CALL is that of methods there.
CALLS = frozenset({"CALL", "CALL_FUNCTION", "CALL_EX"})


class Label:
    """A jump target. It has no content: labels are compared by identity."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"L{id(self) & 0xFFFFF:05x}"


class Instruction:
    """A canonical instruction. `offset` is that of the original code, as in `dis`; -1 for new instructions."""

    __slots__ = ("arg", "offset", "op", "position")

    def __init__(self, op: str, arg: Any = None, position: Positions | None = None, offset: int = -1) -> None:
        self.op = op
        self.arg = arg
        self.position = position
        self.offset = offset

    def __repr__(self) -> str:
        return self.op if self.arg is None and self.op != "LOAD_CONST" else f"{self.op} {self.arg!r}"


class RegionStart:
    """The start of a region whose exceptions cut the stack to `depth`, push the exception, and go to `handler`.

    `lasti`: the offset of the raising instruction is pushed below the exception. `depth` None: the smallest depth
    inside. Regions may nest; the innermost one wins.
    """

    __slots__ = ("depth", "handler", "lasti")

    def __init__(self, handler: Label, lasti: bool = False, depth: int | None = None) -> None:
        self.handler = handler
        self.lasti = lasti
        self.depth = depth

    def __repr__(self) -> str:
        return f"RegionStart({self.handler!r}, lasti={self.lasti}, depth={self.depth})"


class RegionEnd:
    """The end of the region that `start` began."""

    __slots__ = ("start",)

    def __init__(self, start: RegionStart) -> None:
        self.start = start

    def __repr__(self) -> str:
        return f"RegionEnd({self.start.handler!r})"


Item = Instruction | Label | RegionStart | RegionEnd


class Region(NamedTuple):
    """An exception region of decoded code: instructions `start` to `end` (exclusive) are guarded by `handler`."""

    start: int
    end: int
    handler: int
    depth: int
    lasti: bool


class Code:
    """A decoded code object. It is shared by all who decode it, so it must not be modified.

    It does not keep the original alive, for whose lifetime it is cached.
    """

    __slots__ = ("_code", "_region_at", "analyses", "instructions", "regions", "targets")

    def __init__(
        self,
        instructions: list[Instruction],
        targets: dict[Label, int],
        regions: list[Region],
        code: CodeType,
    ) -> None:
        self.instructions = instructions
        self.targets = targets  # label -> index of the instruction it precedes
        self.regions = regions
        self.analyses: dict[str, Any] = {}  # results of liveness and the like, by name
        self._code = ref(code)
        self._region_at: list[Region | None] = [None] * len(instructions)
        for region in regions:
            self._region_at[region.start : region.end] = [region] * (region.end - region.start)

    @property
    def code(self) -> CodeType:
        code = self._code()
        if code is None:
            raise ReferenceError("the code object that was decoded is gone: hold it as long as its Code")
        return code

    def lookup(self, index: int) -> Region | None:
        """Return the innermost region around the instruction at `index`; None if there is none."""
        return self._region_at[index]

    def line(self, index: int) -> int | None:
        position = self.instructions[index].position
        return None if position is None else position.lineno

    def labels_at(self) -> dict[int, list[Label]]:
        """Return the labels at each index, the inverse of `targets`."""
        found: dict[int, list[Label]] = {}
        for label, index in self.targets.items():
            found.setdefault(index, []).append(label)
        return found

    def items(self) -> list[Item]:
        """Return the stream for `assemble`: the instruction objects with labels and region marks between them."""
        labels_at = self.labels_at()
        regions = self.regions if EXCEPTION_TABLE else []  # else SETUP_FINALLY and POP_BLOCK are in the stream
        for region in regions:
            labels_at.setdefault(region.handler, [Label()])
        starts = {region.start: RegionStart(labels_at[region.handler][0], region.lasti, region.depth)
                  for region in regions}  # fmt: skip
        ends = {region.end: starts[region.start] for region in regions}
        stream: list[Item] = []
        for index in range(len(self.instructions) + 1):
            if index in ends:
                stream.append(RegionEnd(ends[index]))
            stream += labels_at.get(index, ())
            if index in starts:
                stream.append(starts[index])
            stream += self.instructions[index : index + 1]
        return stream


def with_regions(items: Iterable[Item]) -> Iterator[tuple[Item, RegionStart | None]]:
    """Yield each item of a stream with the start of the innermost region around it; None if there is none."""
    around: list[RegionStart] = []
    for item in items:
        if isinstance(item, RegionStart):
            around.append(item)
        elif isinstance(item, RegionEnd):
            around.pop()
        yield item, around[-1] if around else None


def find(items: Sequence[Item], offset: int) -> int:
    """Return the index in a stream of the instruction with this offset. Raises ValueError if there is none."""
    for index, item in enumerate(items):
        if getattr(item, "offset", None) == offset:
            return index
    raise ValueError(f"no instruction at offset {offset}")
