"""Keep torch from logging a traceback for each operation that fails on fake tensors: we report those ourselves."""

from __future__ import annotations

import logging
import threading
from functools import cache


class _Trying(threading.local):
    """Per-thread flag: an operation is being run on fake tensors for a capture."""

    now = False


trying = _Trying()


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not trying.now


@cache
def install() -> None:
    """Install the log filters, once. Records of other threads, and of torch's own use of these loggers, pass."""
    for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes"):
        logging.getLogger(name).addFilter(_Filter())
