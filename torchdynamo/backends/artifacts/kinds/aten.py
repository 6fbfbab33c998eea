"""Graphs of ATen operators that run operator by operator (`aot_eager`)."""

from __future__ import annotations

from torchdynamo.backends.artifacts.aot.kind import aot_kind
from torchdynamo.backends.artifacts.aten import decode_graph, encode_graph

KIND = aot_kind("aten", encode_graph, decode_graph)
