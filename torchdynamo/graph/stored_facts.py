"""Facts about sizes that are stored with a compiled graph, and hold for whoever finds it.

A compile may find out that a size is not 1, or is 8, and make code for that alone. With what it has compiled torch
stores such facts about numbers that are inputs of the graph, and asks them of who finds it. Sizes come with tensors
here, and are no inputs, so the environment itself stores all facts, by symbol: torch asks it for a text to store, and
later what the text says. What was known before the compile is no such fact, and belongs into the key.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from typing import Any

NEVER = "never"


class StoredFacts:
    """The part of an environment that torch's caches ask. The other part is torch's `ShapeEnv`."""

    guards: list[Any]
    backed_var_to_val: dict[Any, Any]
    known_before: int | None = None  # the first so many guards are from before the compile, or the first of several

    def hand_over(self) -> str:
        """Begin a compile, and describe what is known of the numbers so far."""
        if self.known_before is None:
            self.known_before = len(self.guards)
        env: Any = self
        facts = [str(guard.expr) for guard in self.guards]
        ranges = {str(symbol): str(found) for symbol, found in env.var_to_range.items()}
        same = {str(symbol): str(expr) for symbol, expr in env.replacements.items()}
        checked = {str(key): [str(each.expr) for each in found] for key, found in env.deferred_runtime_asserts.items()}
        return f"{sorted(facts)} {sorted(ranges.items())} {sorted(same.items())} {sorted(checked.items())}"

    def get_pruned_guards(self, symints: Sequence[Any]) -> list[Any]:
        """Return what compiles have found out, whether or not it is about these numbers."""
        return self.guards[self.known_before or 0 :]

    def produce_guards_expression(
        self, placeholders: Sequence[Any], *, guards: Sequence[Any] | None = None, ignore_static: bool = True
    ) -> str | None:
        """Return a text to store for these facts; None if there are none.

        Where somebody compiles whose key cannot hold what was known before, the text never holds.
        """
        if self.known_before is None and self.backed_var_to_val:
            return NEVER
        facts = [guard.expr for guard in (self.guards if guards is None else guards)]
        return base64.b64encode(pickle.dumps(facts)).decode() if facts else None

    def evaluate_guards_expression(self, code: str, args: Sequence[object]) -> bool:
        """Return whether stored facts hold for the numbers at hand. If they do, they are guarded from now on."""
        if code == NEVER:
            return False
        env: Any = self
        facts = pickle.loads(base64.b64decode(code))
        if not all(fact.xreplace(self.backed_var_to_val) == True for fact in facts):  # noqa: E712 (sympy's own truth)
            return False
        return all(bool(env.evaluate_expr(fact)) for fact in facts)
