"""print: to a file that is followed, text like any other; to the world outside, the graph ends."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from torchdynamo.capture.vm.lookup import written_in_python
from torchdynamo.capture.vm.model import function
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@function(print)
def print_(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    file = kwargs.get("file", NONE)
    if file.__class__ is not Object or not (file.pytype is io.StringIO or written_in_python(file.pytype)):
        raise Break("builtin with effects", name="print")
    return vm.call(Known(print_to), list(args), kwargs)


def print_to(*args, file, sep=" ", end="\n", flush=False):
    """Piece by piece, as print does."""
    for name, text in (("sep", sep), ("end", end)):
        if not (text is None or isinstance(text, str)):
            raise TypeError(f"{name} must be None or a string, not {type(text).__name__}")
    for at, arg in enumerate(args):
        if at:
            file.write(" " if sep is None else sep)
        file.write(str(arg))
    file.write("\n" if end is None else end)
    if flush:
        file.flush()
