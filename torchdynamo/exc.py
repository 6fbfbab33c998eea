"""The exceptions and warnings a user can meet, under their documented address."""

from torchdynamo.errors import (
    BackendError,
    CacheLimitWarning,
    FallbackWarning,
    InternalError,
    TorchDynamoError,
    TorchDynamoWarning,
    UnknownBackend,
    Unsupported,
)

__all__ = [
    "BackendError",
    "CacheLimitWarning",
    "FallbackWarning",
    "InternalError",
    "TorchDynamoError",
    "TorchDynamoWarning",
    "UnknownBackend",
    "Unsupported",
]
