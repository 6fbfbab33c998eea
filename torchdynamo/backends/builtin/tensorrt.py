"""Compile graphs on NVIDIA GPUs by TensorRT."""

from __future__ import annotations

from torchdynamo.backends.ensemble.as_backend import as_backend
from torchdynamo.backends.ensemble.members import tensorrt as member
from torchdynamo.backends.registry import register_backend

tensorrt = register_backend(as_backend(member.MEMBER.name, "tensorrt"))
