"""Decode code objects into canonical instructions."""

from __future__ import annotations

from types import CodeType

from torchdynamo.bytecode.decoder import Decoder
from torchdynamo.bytecode.instruction import Code
from torchdynamo.bytecode.percode import PerCode
from torchdynamo.bytecode.readers import ACTIONS

_decoded: PerCode[Code] = PerCode()


def decode(code: CodeType) -> Code:
    """Return the decoded form of `code`, cached as long as `code` lives."""
    known = _decoded.get(code)
    if known is None:
        known = Decoder(code).run(ACTIONS)
        _decoded.set(code, known)
    return known
