"""The exceptions and warnings a user can meet, under their documented address."""

from torchdynamo.errors import (
    BackendError,
    CacheLimitWarning,
    ConstraintViolationError,
    FailOnRecompileLimitHit,
    FallbackWarning,
    ForbiddenFunction,
    InternalError,
    RecompileError,
    TorchDynamoError,
    TorchDynamoWarning,
    UnknownBackend,
    UnknownSetting,
    Unsupported,
    VerificationError,
)

__all__ = [
    "BackendError",
    "CacheLimitWarning",
    "ConstraintViolationError",
    "FailOnRecompileLimitHit",
    "FallbackWarning",
    "ForbiddenFunction",
    "InternalError",
    "RecompileError",
    "TorchDynamoError",
    "TorchDynamoWarning",
    "UnknownBackend",
    "UnknownSetting",
    "Unsupported",
    "VerificationError",
]
