"""How a frame gets to us: the native half, and which frames we want."""

from torchdynamo.hook.build_check import load_native

load_native()
