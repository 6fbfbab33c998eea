"""Export backends under the module name of the original project."""

from torchdynamo.backends import BACKENDS, aot_autograd, list_backends, register_backend

__all__ = ["BACKENDS", "aot_autograd", "list_backends", "register_backend"]
