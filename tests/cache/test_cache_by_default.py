"""The store where nobody asked for it: homes that cannot be used, full disks, forks and threads."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import torchdynamo
from torchdynamo import _native, events, storing
from torchdynamo.backends.artifacts import digest_of
from torchdynamo.cache.store import devices, eviction, files, places
from torchdynamo.cache.store.rows import Unresolved

X = torch.ones(3)
ROOT = os.getuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root can give files away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this user's, in a process where nobody has said anything of the store."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("TORCHDYNAMO_CACHE", "TORCHDYNAMO_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def program(x: torch.Tensor, n: int = 1) -> torch.Tensor:
    return (x * n).relu() + 1


def call(n: int = 1) -> int:
    """Call the program as if for the first time, where warnings are errors; return how many entries were loaded."""
    torchdynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torchdynamo.compile(program, backend="eager", dynamic=False)(X, n)
    assert torch.equal(got, program(X, n))
    return sum(event.stored == "hit" for event in events.recent())


def test_it_is_on_and_lies_in_the_users_caches(home: Path) -> None:
    assert (call(), call()) == (0, 1)
    assert os.listdir(home) == [".cache"]
    assert os.listdir(home / ".cache") == ["torchdynamo"]


def test_it_is_off_where_somebody_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torchdynamo.config.patch(cache="off"):
        assert (call(), call()) == (0, 0)
    for named in ("0", "off", "none of these"):
        monkeypatch.setenv("TORCHDYNAMO_CACHE", named)
        assert (call(), call()) == (0, 0)
    assert os.listdir(home) == []


def missing(home: Path) -> None:
    home.rmdir()


def a_file(home: Path) -> None:
    home.rmdir()
    home.write_text("")


@pytest.mark.parametrize("change", [missing, a_file])
def test_a_home_is_not_made(home: Path, change: Callable[[Path], None]) -> None:
    change(home)
    assert (call(), call()) == (0, 0)
    assert not home.is_dir()


@as_root
def test_nothing_is_left_in_the_home_of_another(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `sudo`, root may have a user's home."""
    os.chown(home, 12345, 12345)
    assert (call(), call()) == (0, 0)
    assert os.listdir(home) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "caches" / "deep"))
    assert (call(), call()) == (0, 0)
    assert os.listdir(home) == []


def test_whoever_has_no_entry_among_the_users_and_no_home_has_no_store(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(number: int) -> Any:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(home)
    assert (call(), call()) == (0, 0)
    assert os.listdir(home) == []


def test_a_home_that_cannot_be_written_costs_no_capture_its_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is prepared that cannot be written, and nothing is told but an event."""
    asked: list[object] = []
    monkeypatch.setattr(storing, "checked_sections", lambda *args: asked.append(args))
    (home / ".cache").write_text("no folder")
    assert (call(), call()) == (0, 0)
    assert asked == []
    assert "it cannot be written" in " ".join(event.text for event in events.recent())


def damage(store: Path) -> None:
    (path,) = store.rglob("*.td")
    path.write_bytes(b"")


def open_to_all(store: Path) -> None:
    store.chmod(0o777)


def link(store: Path) -> None:
    store.symlink_to(store.rename(store.with_name("elsewhere")))


FAULTS = {"damaged": damage, "others may write": open_to_all, "is a link": link}


@pytest.mark.parametrize("text", FAULTS)
def test_what_cannot_be_used_is_an_event_and_no_warning(home: Path, text: str) -> None:
    call()
    FAULTS[text](home / ".cache" / "torchdynamo")
    assert call() == 0
    assert text in " ".join(event.text for event in events.recent())


def test_a_disk_that_is_full_leaves_the_result(home: Path) -> None:
    """Nothing is left of what could not be written whole."""
    import resource

    call()
    shutil.rmtree(home / ".cache" / "torchdynamo" / "v1" / "frames")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        assert call() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert (call(), call()) == (0, 1)


def test_a_file_that_is_too_large_to_be_read_is_not_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LARGEST", 100)
    assert (call(), call()) == (0, 0)
    assert [path.parent.name for path in home.rglob("*") if path.is_file()] == ["notes"]
    assert "100 are read at most" in " ".join(event.text for event in events.recent())


def in_a_child(n: int) -> None:
    hits = call(n)
    os._exit(10 + hits)  # as multiprocessing ends its processes


def test_a_forked_process_reads_and_writes_as_its_parent_does(home: Path) -> None:
    call(1)
    context = multiprocessing.get_context("fork")
    for n, expected in ((1, 11), (2, 10), (2, 11)):
        child = context.Process(target=in_a_child, args=(n,))
        child.start()
        child.join()
        assert child.exitcode == expected
    assert call(2) == 1


def test_a_graph_on_the_cpu_is_found_whether_cuda_is_in_use_or_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling with AOTAutograd begins to use CUDA, where there is a GPU; a process that finds all does not."""
    assert call(1) == 0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda at: f"device {at}")
    assert call(1) == 1


def test_a_graph_on_other_gpus_is_none_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    (node,) = gm.graph.find_nodes(op="placeholder")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(devices, "visible", lambda: "one")
    with FakeTensorMode(allow_non_fake_inputs=True):
        for device, expected in (("cpu", ""), ("cuda:0", "one")):
            node.meta["example_value"] = torch.empty(2, device=device)
            assert devices.devices_of(gm) == expected
    devices.check_visible("one")
    with pytest.raises(Unresolved, match="other devices"):
        devices.check_visible("another")
    monkeypatch.setattr(devices, "visible", refuse)
    devices.check_visible("")
    with pytest.raises(Unresolved, match="not to be had"):
        devices.check_visible("one")


def refuse() -> str:
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")


def test_threads_share_one_store(home: Path) -> None:
    """Each calls other versions of one function, at the same time."""
    compiled = torchdynamo.compile(program, backend="eager", dynamic=False)
    wrong: list[int] = []

    def calls(first: int) -> None:
        wrong.extend(n for n in range(first, first + 3) if not torch.equal(compiled(X, n), program(X, n)))

    for expected in (0, 6):
        _native.clear_all()
        events.clear()
        threads = [threading.Thread(target=calls, args=(first,)) for first in (1, 4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert wrong == []
        assert sum(event.stored == "hit" for event in events.recent()) == expected


def test_a_store_is_looked_through_at_most_once_in_an_hour(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = places.folder()
    call()
    removed: list[Path] = []
    monkeypatch.setattr(eviction, "prune", removed.append)
    eviction.prune_if_due(root)
    assert removed == []
    past = time.time() - 2 * eviction.EVERY
    os.utime(root / "v1", (past, past))
    eviction.prune_if_due(root)
    eviction.prune_if_due(root)
    assert removed == [root]
    eviction.prune_if_due(home / "nothing")
    assert removed == [root]


def test_folders_of_frames_without_entries_are_removed(tmp_path: Path) -> None:
    old, new, used = (places.made_private(places.frames_in(tmp_path, key)) for key in ("old", "new", "used"))
    files.write(used / "1.td", b"x")
    past = time.time() - 2 * eviction.ABANDONED
    for each in (old, used):
        os.utime(each, (past, past))
    eviction.prune(tmp_path)
    assert not old.exists()
    assert new.exists() and (used / "1.td").exists()


def test_a_large_blob_is_told_before_anything_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LARGEST", 1000)
    blob = b"x" * 2000
    with pytest.raises(storing.NotStorable, match="2000 bytes"):
        storing.save("key", {"number": b"1"}, {digest_of(blob): blob})
    assert os.listdir(home) == []
