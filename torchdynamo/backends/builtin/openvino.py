"""Compile graphs by OpenVINO, in float32."""

from __future__ import annotations

from torchdynamo.backends.ensemble.as_backend import as_backend
from torchdynamo.backends.ensemble.members import openvino as member
from torchdynamo.backends.registry import register_backend

openvino = register_backend(as_backend(member.MEMBER.name, "openvino"))
