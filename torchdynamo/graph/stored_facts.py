"""Store guards on sizes along with a graph in torch's caches, and check them when the graph is found there.

A compile may specialize: find out that a size is not 1, or is 8, and emit code for that alone. torch's caches store
such guards with the compiled graph, but only on symbols that are inputs of the graph. Our sizes come with tensors, so
the environment itself stores all guards, by symbol: torch asks it for a text to store, and later whether the text
holds. Guards from before the compile are not stored; they belong into the key.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from typing import Any

NEVER = "never"


class StoredFacts:
    """The part of a shape environment that torch's caches call. The other part is torch's `ShapeEnv`."""

    guards: list[Any]
    backed_var_to_val: dict[Any, Any]
    known_before: int | None = None  # number of guards from before the (first) compile

    def hand_over(self) -> str:
        """Begin a compile; return a text of what is known of the symbols so far."""
        if self.known_before is None:
            self.known_before = len(self.guards)
        env: Any = self
        facts = [str(guard.expr) for guard in self.guards]
        ranges = {str(symbol): str(found) for symbol, found in env.var_to_range.items()}
        same = {str(symbol): str(expr) for symbol, expr in env.replacements.items()}
        checked = {str(key): [str(each.expr) for each in found] for key, found in env.deferred_runtime_asserts.items()}
        return f"{sorted(facts)} {sorted(ranges.items())} {sorted(same.items())} {sorted(checked.items())}"

    def get_pruned_guards(self, symints: Sequence[Any]) -> list[Any]:
        """Return the guards that compiles have added, whether or not they are about these symbols."""
        return self.guards[self.known_before or 0 :]

    def produce_guards_expression(
        self, placeholders: Sequence[Any], *, guards: Sequence[Any] | None = None, ignore_static: bool = True
    ) -> str | None:
        """Return a text to store for these guards; None if there are none.

        For a compile whose key does not include earlier guards, the text never holds.
        """
        if self.known_before is None and self.backed_var_to_val:
            return NEVER
        facts = [guard.expr for guard in (self.guards if guards is None else guards)]
        return base64.b64encode(pickle.dumps(facts)).decode() if facts else None

    def evaluate_guards_expression(self, code: str, args: Sequence[object]) -> bool:
        """Return whether stored guards hold for the current sizes; if they do, guard them from now on."""
        if code == NEVER:
            return False
        env: Any = self
        facts = pickle.loads(base64.b64decode(code))
        if not all(fact.xreplace(self.backed_var_to_val) == True for fact in facts):  # noqa: E712 (sympy's own truth)
            return False
        return all(bool(env.evaluate_expr(fact)) for fact in facts)
