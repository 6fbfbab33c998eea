"""The exceptions and warnings that users may meet, under their documented names."""

from torchdynamo.errors import (
    BackendError,
    CacheLimitWarning,
    ConstraintViolationError,
    ExportError,
    FailOnRecompileLimitHit,
    FallbackWarning,
    ForbiddenFunction,
    InternalError,
    RecompileError,
    RecordError,
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
    "ExportError",
    "FailOnRecompileLimitHit",
    "FallbackWarning",
    "ForbiddenFunction",
    "InternalError",
    "RecompileError",
    "RecordError",
    "TorchDynamoError",
    "TorchDynamoWarning",
    "UnknownBackend",
    "UnknownSetting",
    "Unsupported",
    "VerificationError",
]
