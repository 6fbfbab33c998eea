"""Guard that an abstract class remembers its answer about a class, so that it does not look for one again.

Its private methods `_abc_caches_clear` and `_abc_registry_clear` have it forget. The source is the set in which the
class has the answer, as a weak reference; `arg` is (abstract class, class) until the guard is settled, then the
reference: backends register classes in their first compile, after which negative answers are looked for once more.
"""

from __future__ import annotations

import weakref

from torchdynamo.capture.vm.abstract_answers import has_reference, memory_of
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.kind import GuardDifference, GuardKind, by_node, short


def settle(guard: Guard, roots: Roots) -> Guard:
    """Replace the classes by the reference that is there now."""
    if type(guard.arg) is not tuple:
        return guard
    abstract, cls = guard.arg
    issubclass(cls, abstract)
    memory = memory_of(abstract, cls)
    return guard._replace(arg=weakref.ref(cls) if memory is None else memory.ref)


KIND = GuardKind(
    "REMEMBERED",
    holds=lambda value, arg, roots: has_reference(value, arg),
    lower=by_node("in_set"),
    why=lambda value, arg, roots: GuardDifference("", f"with {short(arg)}", "without it"),
    settle=settle,
)
