"""Find code that a capture has followed and that nothing identifies in another process: no guard and no key."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from types import CodeType

import torch

from torchdynamo import config
from torchdynamo.codegen import resume


def not_covered(followed: Collection[CodeType], code: CodeType, known: Collection[CodeType]) -> Iterator[CodeType]:
    """Yield the code that a capture has followed and that neither a guard nor the key of the environment identifies.

    known: code that guards name.
    """
    covered = {id(each) for each in (resume.origin(code).code, code, *known)}
    waiting = [resume.origin(code).code, *known]
    while waiting:
        for const in waiting.pop().co_consts:
            if type(const) is CodeType and id(const) not in covered:
                covered.add(id(const))
                waiting.append(const)
    for each in followed:
        if id(each) not in covered and not is_file_of_environment(each.co_filename):
            yield each


def is_file_of_environment(filename: str) -> bool:
    """Return whether the key of the environment identifies the code of a file: Python's, torch's and ours."""
    if filename.startswith(ENVIRONMENT):
        return True
    inside = filename.removeprefix(LIBRARY)
    return inside != filename and inside.split(os.sep)[0].removesuffix(".py") in sys.stdlib_module_names


LIBRARY = os.path.dirname(os.__file__) + os.sep
ENVIRONMENT = (
    *(os.path.dirname(str(each)) + os.sep for each in (torch.__file__, config.__file__)),
    "<frozen",
)
"""Where code lies that is torch's, ours, or frozen in Python."""
