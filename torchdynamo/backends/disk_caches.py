"""Let compiles use Inductor's disk caches, in which a process finds what earlier ones have compiled.

The caches are used if their keys identify everything that matters (`cache_key.py`) and if nobody else can have written
to them: they hold pickles and libraries, and loading one runs the code in it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from torchdynamo.backends.cache_key import facts_of, is_keyed_by_names, marks, state
from torchdynamo.backends.handoff import Handoff
from torchdynamo.errors import TorchDynamoWarning
from torchdynamo.hook.user_warnings import warn_user

MARKS = "unsafe_marked_cacheable_functions"


@contextlib.contextmanager
def disk_caches(
    ready: Handoff, inputs: Sequence[Any], patches: dict[str, Any], *, wrapped: bool = False
) -> Iterator[None]:
    """Enable Inductor's caches inside of the block, or disable them where they cannot be relied on.

    patches: Inductor's settings for this compile; facts that the keys must include are added to it. wrapped:
    `inner_compile` is, to record CUDA graphs or to compile a backward in parts, so AOTAutograd's cache stays off: its
    hits bypass it.
    """
    from torch import _inductor
    from torch._functorch import config

    settings: Any = _inductor.config
    known = patches.get(MARKS, settings.unsafe_marked_cacheable_functions)
    patches[MARKS] = marks(ready.module, [state(), facts_of(inputs), ready.known_sizes], known)
    kept = is_keyed_by_names(ready.module) and is_trusted()
    if not kept:
        patches.update(fx_graph_cache=False, fx_graph_remote_cache=False)
    if kept and not wrapped:
        yield
        return
    patch: Any = config.patch
    with patch(enable_autograd_cache=False, enable_remote_autograd_cache=False):
        yield


def is_trusted() -> bool:
    """Return whether the cache folder was chosen by the user, or only this user can write to it."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default_cache_dir()
    place, name = os.path.split(folder)
    return place != tempfile.gettempdir() or not name.startswith("torchinductor_") or is_private(folder)


@functools.cache
def is_private(folder: str) -> bool:
    """Return whether only this user can write to a folder; create it if it is missing.

    Warns if others can.
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
