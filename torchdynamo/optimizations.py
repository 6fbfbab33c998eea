"""Backends by name, where the documentation of the original project has them."""

from torchdynamo.backends import BACKENDS, aot_autograd, list_backends, register_backend

__all__ = ["BACKENDS", "aot_autograd", "list_backends", "register_backend"]
