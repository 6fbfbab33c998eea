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
        if id(each) not in covered and not each.co_filename.startswith(ENVIRONMENT):
            yield each


ENVIRONMENT = (
    *(os.path.dirname(str(each)) + os.sep for each in (torch.__file__, config.__file__)),
    *(f"{os.path.dirname(os.__file__)}{os.sep}{name}" for name in sorted(sys.stdlib_module_names)),
    "<frozen",
)
"""Where code lies that the key of the environment identifies."""
