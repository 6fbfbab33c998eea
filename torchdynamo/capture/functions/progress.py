"""tqdm, where its bars are switched off: without the thread that watches bars."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib

from torchdynamo.capture.vm.model import polyfill_named


@polyfill_named("tqdm.std", "tqdm.__new__")
def new_bar(cls, *args, **kwargs):
    bar = object.__new__(cls)
    cls._instances.add(bar)
    if not hasattr(cls, "_lock"):  # the first bar makes it
        bar._lock = contextlib.nullcontext()
    return bar
