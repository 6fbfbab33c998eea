"""Run each test in a process as the one before it found it, and fail those that leave it otherwise.

Under pytest-xdist there is a process for each core, with one thread for operators and a folder of its own for compiled
code. Inductor's files go to a folder that lives as long as the process does, so that no test is served what another run
has compiled.

Some tests run on a Python without torch (`without_torch.py`), so neither torch nor torchdynamo is imported here: what a
test has imported is looked up when the test begins.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

import process_state
import pytest
import without_torch  # noqa: F401

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Otherwise each process that compiles by Inductor first builds three files to see which vector instructions g++ knows.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ["TORCHDYNAMO_ENSEMBLE_DB"] = ""  # no test is served what another run has measured
STORE = os.environ.get("TORCHDYNAMO_TEST_STORE", "")
"""A folder, for `make stored`: tests are served what others, and an earlier run, have captured."""
os.environ["TORCHDYNAMO_CACHE"] = "1" if STORE else "0"  # otherwise by none, unless a test asks for that
if STORE:
    os.environ["TORCHDYNAMO_CACHE_DIR"] = os.path.abspath(STORE)


def pytest_collection_finish() -> None:
    """Have PyTorch make no structured traces of its compiles, which cost as much as the compiles.

    It makes them for any handler of this logger, and pytest adds its own to each logger that does not propagate.
    """
    logging.getLogger("torch.__trace").propagate = True


@pytest.fixture(scope="session", autouse=True)
def own_compiled_code() -> Iterator[None]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def imported_ahead() -> None:
    """Import what changes the process when it is imported, which a first capture or a first compile does.

    sympy adds a filter of warnings, setuptools (Inductor's) a folder to the path of modules, cv2 one to the path of
    libraries.
    """
    for name in ("sympy", "setuptools", "cv2"):
        if "torch" in sys.modules and importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


@pytest.fixture(scope="module", autouse=True)
def small_collections() -> None:
    """Leave what lives when a file's tests begin out of the collections to come.

    A full collection of a process that has imported torch takes 0.2 to 1 s, and hundreds of tests ask for one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unchanged_process() -> Iterator[None]:
    """Begin with nothing compiled, and compare the state of the process before and after.

    Fixtures of the test's own are set up later and torn down earlier, so what they put back is back by then.
    """
    process_state.forget()
    before = process_state.snapshot()
    yield
    process_state.forget()
    left = process_state.put_back(before)
    assert not left, "the test left changed: " + "; ".join(
        f"{name}: {process_state.difference(*values)}" for name, values in left.items()
    )
