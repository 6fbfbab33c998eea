"""A Ray cluster of two workers on this machine, that leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

LONGEST = 24  # characters of a folder for temporary files: Ray's sockets below it have paths of up to 107


@contextlib.contextmanager
def cluster() -> Iterator[Path]:
    """Start Ray with all that it writes, logs and the token of its authentication among that, in a folder.

    Gives the folder, for what the program itself writes. The folder goes when the cluster does.
    """
    usual = tempfile.gettempdir()
    root = usual if len(usual) <= LONGEST else "/tmp"
    with tempfile.TemporaryDirectory(prefix="td-ray-", dir=root, ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(place / "token")
        (place / "token").write_text(os.urandom(32).hex())
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("TORCHDYNAMO_CACHE", "0")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(place / "inductor")
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300")  # a busy machine imports torch slowly
        import ray

        here = str(Path(__file__).parent)
        path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=100 << 20,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
            _temp_dir=folder,
        )
        try:
            yield place
        finally:
            ray.shutdown()
