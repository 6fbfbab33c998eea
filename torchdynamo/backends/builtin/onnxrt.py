"""Compile graphs by ONNX Runtime."""

from __future__ import annotations

from torchdynamo.backends.ensemble.as_backend import as_backend
from torchdynamo.backends.ensemble.members import onnxruntime as member
from torchdynamo.backends.registry import register_backend

onnxrt = register_backend(as_backend(member.MEMBER.name, "onnxrt"))
