"""Leave out checks of inputs that the guards have made.

Code of Inductor compares the sizes and strides of each input with those that it was made for: 0.4 us for each, a sixth
of a call of a model of 12 small layers. Guards have compared them by then, so a forward goes without. A backward keeps
checks, for no guard sees the gradients that it is given; so do results of operators that Inductor does not write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torchdynamo.graph import patches

CHECKS = "torch._inductor.codegen.wrapper.PythonWrapperCodegen.codegen_input_size_asserts"


def without_input_checks(inner_compile: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's inner compile function so that forwards do not check the sizes and strides of their inputs."""

    @functools.wraps(inner_compile)
    def compiled(*args: Any, is_backward: bool = False, **kwargs: Any) -> Any:
        if is_backward:
            return inner_compile(*args, is_backward=True, **kwargs)
        with patches.replaced({CHECKS: unchecked}):
            return inner_compile(*args, is_backward=False, **kwargs)

    return compiled


def unchecked(wrapper: Any) -> None:
    """Stand for the method of Inductor's code generation that asks for the checks."""
