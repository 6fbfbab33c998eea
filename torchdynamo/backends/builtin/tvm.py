"""Compile graphs by Apache TVM."""

from __future__ import annotations

from torchdynamo.backends.ensemble.as_backend import as_backend
from torchdynamo.backends.ensemble.members import tvm as member
from torchdynamo.backends.registry import register_backend

tvm = register_backend(as_backend(member.MEMBER.name, "tvm"))
