"""json: the encoder is inlined in its Python form; texts are parsed by the real one where it only makes data."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import json
import json.decoder
import json.encoder
import json.scanner
import math
from typing import Any

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import enters, models, polyfill, run_for_real
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import Known, Value

make_iterencode: Any = json.encoder._make_iterencode  # type: ignore[attr-defined]
encoders = [each for each in [getattr(json.encoder, "c_make_encoder", None)] if each is not None]  # where C has one
scanners = [each for each in [getattr(json.scanner, "c_make_scanner", None)] if each is not None]
run_for_real(json.encoder.encode_basestring, json.encoder.encode_basestring_ascii, json.decoder.scanstring)  # type: ignore[attr-defined]


def wording_of_nan() -> str:
    """Return the words in which this version of Python refuses nan with `allow_nan=False`."""
    try:
        json.dumps(math.nan, allow_nan=False)
    except ValueError as error:
        return str(error)
    return ""


OUT_OF_RANGE = wording_of_nan()


@polyfill(*encoders)
def make_encoder(markers, default, encoder, indent, key_separator, item_separator, sort_keys, skipkeys, allow_nan):
    def number(value):
        if value - value == 0.0:
            return float.__repr__(value)
        if not allow_nan:
            raise ValueError(OUT_OF_RANGE.replace("nan", repr(value)))
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"

    steps = make_iterencode(
        markers, default, encoder, indent, number, key_separator, item_separator, sort_keys, skipkeys, True
    )
    return lambda obj, level: tuple(steps(obj, level))


# -- reading ----------------------------------------------------------------------------------------------------------
@polyfill(*scanners)
def make_scanner(context):
    return json.scanner.py_make_scanner(context)  # type: ignore[attr-defined]


@enters(*scanners)
def enter_scanner(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a scanner, which never changes. Raises Break for one that calls functions of the user's."""
    own = obj.object_hook, obj.object_pairs_hook, obj.parse_float, obj.parse_int
    if own != (None, None, float, int):
        raise Break("unsupported type", type="Scanner")
    pinned = Source("pinned", None, Pinned(obj))
    if source is not pinned:
        vm.guard(source, "SAME_OBJECT", pinned)
    return Known(obj, source)


def scan(vm: Machine, self: Known, text: Value, at: Value) -> Value:
    """Parse a value at an index of a text; return the value and where it ends."""
    try:
        found = self.obj(vm.known(text, "text"), vm.known(at, "index"))
    except StopIteration as end:
        raise vm.error(StopIteration, end.value) from None
    except ValueError as error:  # it says where, in attributes
        raise Break("unknown call", name="json.loads") from error
    return lift(vm, found)


for _scanner in scanners:
    models(_scanner, "__call__")(scan)
