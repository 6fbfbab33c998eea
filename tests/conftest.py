"""Give each process of tests one thread for operators, and a folder of its own for compiled code.

Under pytest-xdist there is a process for each core. Inductor's files go to a folder that lives as long as the process
does, so that no test is served what another run has compiled.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def own_compiled_code() -> Iterator[None]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
        yield
