"""Write plain data as bytes: a closed set of values, each a tag and its content. Objects are left to whoever writes.

Values are None, booleans, numbers (floats by their bits), strings, bytes, torch's dtypes, devices, layouts and memory
formats, slices, ranges, and tuples, sizes and frozensets of these. Two values are written alike if and only if
`same_constant` (guards/constants.py) counts them as equal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import torch

Refer = Callable[[Any], tuple[bytes, int]]
"""Returns the tag and number under which an object that is no value is known elsewhere in the file."""
Restore = Callable[[bytes, int], Any]
"""Returns the object of such a tag and number."""


class NotStorable(Exception):
    """Raised where something cannot be stored; the text says what and why."""


class NotYetStorable(NotStorable):
    """Raised where something can be stored later."""


class Malformed(Exception):
    """Raised for bytes that are no values."""


_COUNT = struct.Struct("<I")
_SHORT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_SINGLE = {b"N": None, b"T": True, b"F": False, b"E": ..., b"n": NotImplemented}
_TAGS_OF_SINGLE = {id(value): tag for tag, value in _SINGLE.items()}
_TUPLES: dict[bytes, Callable[[tuple[Any, ...]], Any]] = {
    b"(": lambda items: items,
    b"Z": torch.Size,
    b"{": frozenset,
    b"[": lambda items: slice(*items),
    b"r": lambda items: range(*items),
}
REFERENCES = frozenset(bytes([number]) for number in range(0x80, 0x90))
"""Tags of objects that are no values."""


def encode(value: Any, refer: Refer) -> bytes:
    """Return a value as bytes. Raises NotStorable where `refer` does."""
    made = _ENCODERS.get(type(value))
    if made is not None:
        return made(value, refer)
    tag, number = refer(value)
    return tag + _COUNT.pack(number)


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + _COUNT.pack(len(content)) + content


def _integer(value: int, refer: Refer) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return b"i" + _SHORT.pack(value)
    return _sized(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _items(tag: bytes, items: Any, refer: Refer) -> bytes:
    parts = [encode(item, refer) for item in items]
    return b"".join([tag, _COUNT.pack(len(parts)), *parts])


def _frozenset(value: frozenset[Any], refer: Refer) -> bytes:
    parts = sorted(encode(item, refer) for item in value)
    return b"".join([b"{", _COUNT.pack(len(parts)), *parts])


def _single(value: Any, refer: Refer) -> bytes:
    return _TAGS_OF_SINGLE[id(value)]


def _text(tag: bytes, text: str) -> bytes:
    return _sized(tag, text.encode("utf-8", "surrogatepass"))


def _of_torch(value: Any, refer: Refer) -> bytes:
    return _text(b"t", str(value).removeprefix("torch."))


_ENCODERS: dict[type, Callable[[Any, Refer], bytes]] = {
    **dict.fromkeys((type(None), bool, type(...), type(NotImplemented)), _single),
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), _of_torch),
    int: _integer,
    float: lambda value, refer: b"f" + _FLOAT.pack(value),
    complex: lambda value, refer: b"c" + _COMPLEX.pack(value.real, value.imag),
    str: lambda value, refer: _text(b"s", value),
    bytes: lambda value, refer: _sized(b"b", value),
    torch.device: lambda value, refer: _text(b"d", str(value)),
    tuple: lambda value, refer: _items(b"(", value, refer),
    torch.Size: lambda value, refer: _items(b"Z", value, refer),
    frozenset: _frozenset,
    slice: lambda value, refer: _items(b"[", (value.start, value.stop, value.step), refer),
    range: lambda value, refer: _items(b"r", (value.start, value.stop, value.step), refer),
}


def decode(data: bytes, at: int, restore: Restore) -> tuple[Any, int]:
    """Return the value at a place of bytes, and the place after it. Raises Malformed for what is none."""
    tag = data[at : at + 1]
    at += 1
    if tag in _SINGLE:
        return _SINGLE[tag], at
    if tag in _FIXED:
        packed, made = _FIXED[tag]
        return made(*packed.unpack_from(data, at)), at + packed.size
    count = _COUNT.unpack_from(data, at)[0]
    at += 4
    if tag in _TUPLES:
        items = []
        for _ in range(count):
            item, at = decode(data, at, restore)
            items.append(item)
        return _TUPLES[tag](tuple(items)), at
    if tag in REFERENCES:
        return restore(tag, count), at
    content = data[at : at + count]
    if tag not in _CONTENTS or len(content) != count:
        raise Malformed(f"there is no value of tag {tag!r}")
    return _CONTENTS[tag](content), at + count


def _torch_name(content: bytes) -> Any:
    found = getattr(torch, content.decode(), None)
    if type(found) not in (torch.dtype, torch.layout, torch.memory_format):
        raise Malformed(f"torch.{content!r} is no dtype, layout or memory format")
    return found


_FIXED: dict[bytes, tuple[struct.Struct, Callable[..., Any]]] = {
    b"i": (_SHORT, int),
    b"f": (_FLOAT, float),
    b"c": (_COMPLEX, complex),
}
_CONTENTS: dict[bytes, Callable[[bytes], Any]] = {
    b"I": lambda content: int.from_bytes(content, "little", signed=True),
    b"s": lambda content: content.decode("utf-8", "surrogatepass"),
    b"b": bytes,
    b"t": _torch_name,
    b"d": lambda content: torch.device(content.decode()),
}


class ValuePool:
    """Values that are written once each, and are known by their number."""

    def __init__(self, refer: Refer) -> None:
        self.refer = refer
        self.numbers: dict[bytes, int] = {}
        self.texts: dict[str, int] = {}  # most values are names, which come again and again

    def number(self, value: Any) -> int:
        """Return the number of a value. Raises NotStorable."""
        if type(value) is not str:
            return self.of_bytes(encode(value, self.refer))
        known = self.texts.get(value)
        if known is None:
            known = self.texts[value] = self.of_bytes(encode(value, self.refer))
        return known

    def of_bytes(self, encoded: bytes) -> int:
        """Return the number of a value that is encoded already."""
        return self.numbers.setdefault(encoded, len(self.numbers))

    def dump(self) -> bytes:
        """Return the values as bytes: how many there are, where each ends, and their contents."""
        ends, at = [], 0
        for content in self.numbers:
            at += len(content)
            ends.append(at)
        return struct.pack(f"<{len(ends) + 1}I", len(ends), *ends) + b"".join(self.numbers)


class PoolReader:
    """Reads the values of a pool, each when it is first asked for."""

    def __init__(self, data: bytes, restore: Restore) -> None:
        (count,) = _COUNT.unpack_from(data)
        self.data = data
        self.restore = restore
        self.ends = (4 * (count + 1), *(4 * (count + 1) + end for end in struct.unpack_from(f"<{count}I", data, 4)))
        self.known: list[Any] = [_UNREAD] * count

    def __getitem__(self, number: int) -> Any:
        found = self.known[number]
        if found is _UNREAD:
            found, end = decode(self.data, self.ends[number], self.restore)
            if end != self.ends[number + 1]:
                raise Malformed(f"value {number} ends at {end}")
            self.known[number] = found
        return found


_UNREAD = object()
