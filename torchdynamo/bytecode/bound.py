"""Find reads of local variables that may be unset: a raw LOAD_FAST that does not check would crash there."""

from __future__ import annotations

from collections.abc import Sequence

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.flow import FINAL, target
from torchdynamo.bytecode.instruction import Instruction, Item, Label, with_regions

UNSETS = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})


def unbound_text(name: str) -> str:
    """Return Python's message for a read of a local variable that is not set."""
    return versions.UNBOUND.format(name)


def maybe_unbound(items: Sequence[Item], arguments: Sequence[str]) -> frozenset[int]:
    """Return the indices in `items` of reads that may find their variable unset."""
    bits: dict[str, int] = {}
    for name in arguments:
        bits.setdefault(name, 1 << len(bits))
    entry = (1 << len(bits)) - 1
    # A variable that is saved and restored (by an inlined comprehension) may be restored to unset.
    shaky = {item.arg for item in items if isinstance(item, Instruction) and item.op == "LOAD_FAST_AND_CLEAR"}
    places = {item: index for index, item in enumerate(items) if isinstance(item, Label)}
    handlers = [None if around is None else places[around.handler] for _, around in with_regions(items)]
    surely: dict[int, int] = {}
    waiting = [(0, entry)]

    def arrive(index: int, mask: int) -> None:
        old = surely.get(index)
        if old is None or old & mask != old:
            waiting.append((index, mask))

    while waiting:
        index, mask = waiting.pop()
        while index < len(items):
            old = surely.get(index)
            if old is not None and old & mask == old:
                break
            mask = surely[index] = mask if old is None else old & mask
            item = items[index]
            if isinstance(item, Instruction):
                handler = handlers[index]
                if handler is not None:
                    arrive(handler, mask)
                if item.op == "STORE_FAST" and item.arg not in shaky:
                    mask |= bits.setdefault(item.arg, 1 << len(bits))
                elif item.op in UNSETS:
                    mask &= ~bits.setdefault(item.arg, 1 << len(bits))
                label = target(item)
                if label is not None:
                    arrive(places[label], mask)
                if item.op in FINAL:
                    break
            index += 1
    return frozenset(
        index
        for index, item in enumerate(items)
        if isinstance(item, Instruction) and item.op == "LOAD_FAST" and not surely.get(index, 0) & bits.get(item.arg, 0)
    )
