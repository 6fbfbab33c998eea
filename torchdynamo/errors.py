"""Everything torchdynamo raises or warns with. `torchdynamo.exc` is the public face of this file.

The package's own exceptions share one root, so `except TorchDynamoError` catches them all, and carry
plain data only, so they pickle and cross process borders. Wrong arguments raise TypeError or ValueError
as anywhere in Python.
"""

from __future__ import annotations


class TorchDynamoError(RuntimeError):
    """Root of what this package raises."""


class Unsupported(TorchDynamoError):
    """Something could not go into the one graph that `fullgraph=True` or `nopython=True` asked for.

    `str()` is the whole message for people (see `reasons.unsupported_text`); `reason` is the id of a row in
    `core/reasons.py`; `position` is where in the user's file, if known.
    """

    def __init__(self, reason: str, text: str, position: object = None) -> None:
        super().__init__(reason, text, position)
        self.reason = reason
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return self.text


class BackendError(TorchDynamoError):
    """A backend raised, or returned something that cannot be called. The cause is chained."""

    def __init__(self, text: str, backend: str = "", graph: str = "") -> None:
        super().__init__(text, backend, graph)
        self.text = text
        self.backend = backend
        self.graph = graph

    def __str__(self) -> str:
        return self.text


class VerificationError(BackendError):
    """A backend's results differ from eager's, under `config.verify_correctness`."""


class ConstraintViolationError(TorchDynamoError):
    """A size that has been marked as dynamic is none to the function."""


class RecompileError(TorchDynamoError):
    """A function would be compiled once more, under `config.error_on_recompile`."""


class FailOnRecompileLimitHit(RecompileError):
    """A function has been compiled as often as allowed, under `config.fail_on_recompile_limit_hit`."""


class UnknownBackend(TorchDynamoError, LookupError):
    """No backend goes by that name."""


class UnknownSetting(TorchDynamoError, ValueError):
    """A mode or an option that the backend does not know, or an option's value of another type than it takes."""


class ForbiddenFunction(TorchDynamoError):
    """A compiled function calls one that torch.compile's `forbid_in_graph` was given."""


class InternalError(TorchDynamoError):
    """A fault of torchdynamo's own. Raised only where `config.suppress_errors` is off; else warned about."""


class TorchDynamoWarning(UserWarning):
    """Root of the package's warnings: filter on it to silence or to escalate them all."""


class FallbackWarning(TorchDynamoWarning):
    """Something failed on our side or in a backend; the call was answered by eager PyTorch."""


class CacheLimitWarning(TorchDynamoWarning):
    """A function was compiled as often as `config.cache_size_limit` allows; new cases of it run eagerly."""
