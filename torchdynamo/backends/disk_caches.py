"""Inductor's caches on disk, in which a second process finds what the first has compiled.

They are asked where the keys tell all that matters (`cache_key.py`), and where nobody else can have put something into
them: they are pickles and libraries, and loading one runs what is in it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from torchdynamo.backends.cache_key import facts_of, is_told_by_names, marks, state
from torchdynamo.backends.handoff import Handoff
from torchdynamo.errors import TorchDynamoWarning
from torchdynamo.hook.user_warnings import warn_user

MARKS = "unsafe_marked_cacheable_functions"


@contextlib.contextmanager
def disk_caches(ready: Handoff, inputs: Sequence[Any], patches: dict[str, Any]) -> Iterator[None]:
    """Compile, while this is open, with the caches, or without them where they cannot be relied on.

    Writes into `patches`, the settings of Inductor for this compile, what the keys must hold. What AOTAutograd's cache
    gives is not handed to `inner_compile`, which looks after the results of CUDA graphs: with these it is not asked.
    """
    from torch import _inductor
    from torch._functorch import config

    settings: Any = _inductor.config
    known = patches.get(MARKS, settings.unsafe_marked_cacheable_functions)
    patches[MARKS] = marks(ready.module, [state(), facts_of(inputs), ready.known_sizes], known)
    kept = is_told_by_names(ready.module) and is_trusted()
    if not kept:
        patches.update(fx_graph_cache=False, fx_graph_remote_cache=False)
    with settings.patch(patches):
        recorded = settings.triton.cudagraphs
    if kept and not recorded:
        yield
        return
    patch: Any = config.patch
    with patch(enable_autograd_cache=False, enable_remote_autograd_cache=False):
        yield


def is_trusted() -> bool:
    """Return whether the folder of the caches is the user's choice, or nobody else's to write to."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default_cache_dir()
    place, name = os.path.split(folder)
    return place != tempfile.gettempdir() or not name.startswith("torchinductor_") or is_private(folder)


@functools.cache
def is_private(folder: str) -> bool:
    """Return whether a folder in a place where others may write is this user's alone; make it, if it is not there.

    Warns of one that is not.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    found = os.lstat(folder)
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    if mine and stat.S_ISDIR(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    text = f"others may write to {folder}: what Inductor has compiled is not looked for there, nor kept"
    remedy = "Remove it, or set TORCHINDUCTOR_CACHE_DIR to a folder of your own."
    warn_user(f"{text}. {remedy}", TorchDynamoWarning)
    return False
