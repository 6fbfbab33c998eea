"""Read backends from a command line, and compile models by them: `inductor`, `ensemble:constants=True;tune=now`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torchdynamo
from torchdynamo.backends.registry import lookup
from torchdynamo.backends.settings import check_settings
from torchdynamo.bench import peers

EAGER = "eager_module"
"""The model as it is: what others are compared with."""


@dataclass(frozen=True, eq=False)
class BackendSpec:
    """A backend with its options, as the command line spells it."""

    text: str
    name: str
    options: dict[str, Any]

    @classmethod
    def of(cls, text: str) -> BackendSpec:
        """Read `name:key=value;key=value`. Raises ValueError for other text, UnknownBackend, UnknownSetting."""
        name, _, rest = text.partition(":")
        options: dict[str, Any] = {}
        for part in filter(None, rest.split(";")):
            key, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"backend {text!r}: options are key=value, separated by ';', and {part!r} is not")
            options[key] = _value(value)
        if name not in (peers.NAME, EAGER):
            check_settings(lookup(name), None, options or None)
        return cls(text, name, options)

    def compile(self, model: Any) -> Callable[..., Any]:
        """Return the model compiled by this backend; nothing is compiled before its first call."""
        if self.name == EAGER:
            unchanged: Callable[..., Any] = model
            return unchanged
        if self.name == peers.NAME:
            return peers.compiled(model, self.options)
        return torchdynamo.compile(model, backend=self.name, options=self.options or None)

    @property
    def chooses(self) -> bool:
        """Return whether calls must settle before they are timed."""
        return self.name == "ensemble"


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
