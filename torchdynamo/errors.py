"""Exceptions and warnings of torchdynamo; `torchdynamo.exc` exports them.

The exceptions share one base, so `except TorchDynamoError` catches them all, and carry plain data only, so they can be
pickled. Wrong arguments raise TypeError or ValueError as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_joined: Callable[[type], type] | None = None


def join(joined: Callable[[type], type] | None) -> None:
    """Have exceptions made from now on be instances of what this function returns for their class, a subclass.

    None: of their class itself.
    """
    global _joined
    _joined = joined


class TorchDynamoError(RuntimeError):
    """Base of all exceptions of this package.

    While `torchdynamo.install()` is in force, each is an instance of torch.compile's counterpart as well.
    """

    def __new__(cls, *args: Any) -> TorchDynamoError:
        return super().__new__(cls if _joined is None else _joined(cls), *args)

    def __init__(self, *args: Any) -> None:
        RuntimeError.__init__(self, *args)  # not what a counterpart has


class Unsupported(TorchDynamoError):
    """The program cannot be one graph, which `fullgraph=True` or `nopython=True` asked for.

    `str()` is the whole message (see `core.unsupported_text`); `reason` is the id of a row in `core/reasons.py`;
    `position` is the place in the user's file, if known.
    """

    def __init__(self, reason: str, text: str, position: object = None) -> None:
        super().__init__(reason, text, position)
        self.reason = reason
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return self.text


class BackendError(TorchDynamoError):
    """A backend raised, or returned something that is not callable. The cause is chained."""

    def __init__(self, text: str, backend: str = "", graph: str = "") -> None:
        super().__init__(text, backend, graph)
        self.text = text
        self.backend = backend
        self.graph = graph

    def __str__(self) -> str:
        return self.text


class VerificationError(BackendError):
    """A backend's results differ from eager's, under `config.verify_correctness`."""


class RanksDisagree(TorchDynamoError):
    """Ranks of a distributed program were about to run different collectives, or one of them failed in a warm-up."""


class RecordingError(BackendError):
    """A graph or a call is without a CUDA graph, and `options={"cudagraphs": "required"}` was given."""


class ConstraintViolationError(TorchDynamoError):
    """A size marked as dynamic was specialized by the function."""


class ExportError(TorchDynamoError):
    """A program that is one graph, but that cannot be exported: the message says what it does or holds."""


class RecompileError(TorchDynamoError):
    """A function would be compiled again, under `config.error_on_recompile`."""


class FailOnRecompileLimitHit(RecompileError):
    """A function has reached its limit of versions, under `fullgraph` or `config.fail_on_recompile_limit_hit`."""


class UnknownBackend(TorchDynamoError, LookupError):
    """The name of a backend that does not exist was given."""


class UnknownSetting(TorchDynamoError, ValueError):
    """A mode or option that the backend does not have, or an option's value of the wrong type."""


class RecordError(TorchDynamoError):
    """A graph that cannot be recorded, or a recorded graph that cannot be read; `place` is the file and the node."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text, place)
        self.text = text
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class ForbiddenFunction(TorchDynamoError):
    """A compiled function calls a function that was passed to torch.compile's `forbid_in_graph`."""


class InternalError(TorchDynamoError):
    """A bug in torchdynamo. Raised only if `config.suppress_errors` is False; otherwise a warning."""


class TorchDynamoWarning(UserWarning):
    """Base of the package's warnings: filter on it to silence or escalate all of them."""


class FallbackWarning(TorchDynamoWarning):
    """A failure in torchdynamo or in a backend, after which eager PyTorch computed the call."""


class CacheLimitWarning(TorchDynamoWarning):
    """A function has reached `config.cache_size_limit`; new kinds of calls run eagerly."""


# What a program or a user asks to be raised: never suppressed as a bug of ours.
ASKED_FOR = (
    TorchDynamoWarning,
    ConstraintViolationError,
    ForbiddenFunction,
    RecompileError,
    RecordingError,
    UnknownSetting,
    Unsupported,
    VerificationError,
)
