"""Graphs compiled by Inductor."""

from __future__ import annotations

from torchdynamo.backends.artifacts.aot.kind import aot_kind
from torchdynamo.backends.artifacts.inductor.code import after_first_run, decode_code, encode_code

KIND = aot_kind("inductor", encode_code, decode_code, after_first_run)
