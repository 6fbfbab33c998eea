"""Find code that inspects the frame it runs in: after a graph break it would see that of a continuation."""

from __future__ import annotations

from types import CodeType

from torchdynamo.bytecode.decode import decode

# Code that says these names can tell which frame it runs in, or has it told: of functions of its own module's or
# Python's, and of anything's attributes (`model.eval()` and `torch.stack()` are neither).
INSPECTING_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "globals", "stack"})
INSPECTING = frozenset({"_getframe", "currentframe", "settrace", "setprofile"})


def inspects_itself(code: CodeType) -> bool:
    """Return whether the code could see that it was left and continued as another frame."""
    names = code.co_names
    if "super" in names and code.co_varnames and code.co_varnames[0] in code.co_cellvars:
        return True
    if not INSPECTING.isdisjoint(names) or ("stack" in names and "inspect" in names):
        return True
    if INSPECTING_NAMES.isdisjoint(names):
        return False
    loads = [each.arg for each in decode(code).instructions if each.op == "LOAD_GLOBAL"]
    return not INSPECTING_NAMES.isdisjoint(loads)
