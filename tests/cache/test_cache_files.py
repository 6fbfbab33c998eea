"""Files of the store that are damaged, foreign or half written: a miss, at most a warning, and eager's result."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torchdynamo
from torchdynamo import events, storing, warm_start
from torchdynamo.backends import option_sets
from torchdynamo.backends.ensemble import database
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.cache.store import compiled, files, places
from torchdynamo.cache.store.values import NotStorable


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def program(x: torch.Tensor) -> torch.Tensor:
    return helper(x).relu() + 1


X = torch.ones(3)


def call() -> tuple[int, list[str]]:
    """Call the program as if for the first time; return how many entries were loaded, and the warnings."""
    torchdynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = torchdynamo.compile(program, backend="eager")(X)
    assert torch.equal(got, program(X))
    hits = sum(event.stored == "hit" for event in events.recent())
    return hits, [str(each.message) for each in caught]


def entry_in(store: Path) -> Path:
    (path,) = store.rglob("*.td")
    return path


def test_an_entry_is_written_once_and_found(store: Path) -> None:
    assert call() == (0, [])
    path = entry_in(store)
    before = path.read_bytes()
    assert call() == (1, [])
    assert entry_in(store).read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    for folder in (store, store / "v1", path.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_kernels_that_torch_registers_when_it_is_first_needed_are_no_reason(store: Path) -> None:
    torch.func.vmap(torch.sin)(torch.ones(3))
    call()
    assert entry_in(store).exists()


def test_nothing_is_written_or_read_when_it_is_off(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "0")
    assert call() == (0, [])
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "read")
    assert call() == (1, [])
    entry_in(store).unlink()
    assert call() == (0, [])
    assert list(store.rglob("*.td")) == []
    with torchdynamo.config.patch(cache="on"):
        call()
        assert call() == (1, [])


def test_a_file_in_which_a_byte_has_changed_is_not_used(store: Path) -> None:
    """Each byte, and each end: the digest tells, before anything is looked at."""
    call()
    data = entry_in(store).read_bytes()
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        with pytest.raises(files.Damaged):
            files.unpacked(changed)
    for end in range(len(data)):
        with pytest.raises(files.Damaged):
            files.unpacked(data[:end])


def test_whoever_has_no_home_has_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "1")
    for name in ("TORCHDYNAMO_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert call() == (0, [])
    assert call() == (0, [])


def test_an_error_of_ours_while_reading_leaves_the_result(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise ZeroDivisionError("fault")

    call()
    monkeypatch.setattr(places, "contents", fails)
    hits, told = call()
    assert hits == 0
    assert len(told) == 1 and "cannot be read, by a fault of torchdynamo" in told[0]


@pytest.mark.parametrize("cut", ["empty", "half", "changed"])
def test_a_damaged_file_is_a_miss_with_one_warning_and_is_replaced(store: Path, cut: str) -> None:
    call()
    path = entry_in(store)
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "half": data[: len(data) // 2], "changed": data[:-1] + b"?"}[cut])
    hits, told = call()
    assert hits == 0
    assert len(told) == 1 and "damaged" in told[0]
    assert path.read_bytes() == data
    assert call() == (1, [])


def with_sections(path: Path, **changes: bytes) -> None:
    """Write a file again with other sections, and a digest that is right."""
    path.write_bytes(files.packed({**files.unpacked(path.read_bytes()), **changes}))


@pytest.mark.parametrize(
    "name", ["values", "parts", "facts", "sources", "places", "guards", "frame", "graph", "backend"]
)
def test_a_section_that_is_cut_off_under_a_right_digest_does_no_harm(store: Path, name: str) -> None:
    """Nobody but the user can write such a file; it may be a miss, and without guards a hit."""
    call()
    path = entry_in(store)
    data = path.read_bytes()
    content = files.unpacked(data)[name]
    for end in {0, len(content) // 2 // 4 * 4, max(0, len(content) - 4)}:
        warm_start._complained.clear()
        path.write_bytes(data)
        with_sections(path, **{name: content[:end]})
        hits, _ = call()
        assert hits == 0 or name == "guards" or content[:end] == content
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("what", ["file", "folder", "root"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_is_not_used(store: Path, what: str, mode: int) -> None:
    call()
    path = entry_in(store)
    place = {"file": path, "folder": path.parent, "root": store}[what]
    place.chmod(place.stat().st_mode | mode)
    hits, told = call()
    assert hits == 0
    assert len(told) == 1 and "others may write" in told[0]
    place.chmod(0o700)
    assert call()[0] == 1


def test_links_are_not_followed(store: Path, tmp_path: Path) -> None:
    call()
    path = entry_in(store)
    real = tmp_path / "elsewhere.td"
    path.rename(real)
    path.symlink_to(real)
    assert call()[0] == 0
    path.unlink()
    real.rename(path)
    folder, moved = path.parent, tmp_path / "moved"
    folder.rename(moved)
    folder.symlink_to(moved)
    hits, told = call()
    assert hits == 0
    assert "is a link" in told[0]


def damage(store: Path) -> None:
    entry_in(store).write_bytes(b"")


def open_to_all(store: Path) -> None:
    store.chmod(0o777)


def link(store: Path) -> None:
    real = store.rename(store.with_name("elsewhere"))
    store.symlink_to(real)


def no_folder(store: Path) -> None:
    shutil.rmtree(store)
    store.write_text("no folder")


FAULTS = {"damaged": damage, "others may write": open_to_all, "is a link": link, "cannot be written": no_folder}


@pytest.mark.parametrize("text", FAULTS)
def test_a_filter_that_makes_errors_of_warnings_does_not_reach_the_call(
    store: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    call()
    FAULTS[text](store)
    torchdynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled_again = torchdynamo.compile(program, backend="eager")
        assert torch.equal(compiled_again(X), program(X))
        torchdynamo.reset()
        assert torch.equal(compiled_again(X), program(X))
    logged = [record.getMessage() for record in caplog.records if record.name == "torchdynamo.cache"]
    assert len(logged) == 1 and text in logged[0]


def test_there_is_one_warning_for_each_kind_of_fault_and_store(store: Path) -> None:
    call()
    path = entry_in(store)
    for at in range(3):
        (path.parent / f"{at}.td").write_bytes(b"")
    hits, told = call()
    assert hits == 1
    assert len(told) == 1 and "damaged" in told[0]
    path.chmod(0o666)
    hits, told = call()
    assert len(told) == 1 and "others may write" in told[0]
    assert call() == (1, [])


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_not_used(store: Path) -> None:
    call()
    path = entry_in(store)
    os.chown(path, 12345, 12345)
    hits, told = call()
    assert hits == 0
    assert "another user" in told[0]


def test_a_store_that_cannot_be_written_costs_one_warning(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    hits, told = call()
    assert hits == 0
    assert len(told) == 1 and "No space left" in told[0]
    assert call() == (0, [])


def test_a_folder_of_an_image_is_read_and_not_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call()
    image = tmp_path / "image"
    store.rename(image)
    monkeypatch.setenv("TORCHDYNAMO_CACHE_TRUST", str(image))
    assert call() == (1, [])
    assert not store.exists()


def test_nothing_in_a_file_is_executed(store: Path) -> None:
    """A pickle or a code object in the place of a section is refused as what it is: no value."""
    import marshal
    import pickle

    class Bomb:
        def __reduce__(self) -> Any:
            return os._exit, (1,)

    call()
    path = entry_in(store)
    data = path.read_bytes()
    for bomb in (pickle.dumps(Bomb()), marshal.dumps(compile("import os; os._exit(1)", "x", "exec"))):
        for name in files.unpacked(data):
            warm_start._complained.clear()
            path.write_bytes(data)
            with_sections(path, **{name: bomb})
            call()
            path.unlink(missing_ok=True)


def write_often(folder: str, number: int) -> None:
    os.environ["TORCHDYNAMO_CACHE_DIR"] = folder
    for at in range(50):
        content = files.packed({"values": bytes([at]) * 1000})
        files.write(places.made_private(places.frames_in(places.folder(), "key")) / f"{at}.td", content)


def test_many_may_write_at_once(store: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(str(store), number)) for number in range(16)]
    for each in writers:
        each.start()
    for each in writers[:4]:
        each.kill()
    for each in writers:
        each.join()
    found = list(places.entries_at(places.folder(), "key"))
    assert len(found) == 50
    for path in found:
        assert files.unpacked(places.contents(path))["values"] == bytes([int(path.stem)]) * 1000


def test_an_error_of_ours_while_writing_leaves_the_result(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise KeyError("fault")

    monkeypatch.setattr(storing, "written_sections", fails)
    hits, told = call()
    assert hits == 0
    assert len(told) == 1 and "not stored" in told[0]


def compiled_call(**settings: Any) -> tuple[int, list[str], list[str]]:
    """Call the program under Inductor as if for the first time; return hits, warnings and what events tell."""
    torchdynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = torchdynamo.compile(program, backend="inductor", **settings)(X)
    assert torch.equal(got, program(X))
    seen = events.recent()
    told = [event.text for event in seen if event.kind == "cache"]
    return (
        sum(event.stored == "hit" for event in seen),
        [text for text in map(str, (each.message for each in caught)) if "the store" in text],
        told,
    )


def test_a_damaged_blob_costs_one_warning_and_is_written_again(store: Path) -> None:
    assert compiled_call() == (0, [], [])
    assert compiled_call() == (1, [], [])
    before = {path: path.read_bytes() for path in (store / "v1" / "blobs").iterdir()}
    for path, content in before.items():
        files.write(path, content[:-1] + b"?")  # another file: libraries of this one are in use
    hits, warned, _ = compiled_call()
    assert hits == 0
    assert len(warned) == 1 and "damaged" in warned[0]
    assert {path: path.read_bytes() for path in before} == before
    assert compiled_call() == (1, [], [])


@pytest.mark.parametrize("change", [{"structure": 1}, {"runtime": {}}, {"forward": {}}, {"format": 7}])
def test_data_that_a_backend_cannot_read_is_a_miss_without_a_warning(store: Path, change: dict[str, Any]) -> None:
    compiled_call()
    path = entry_in(store)
    content = compiled.unpacked(files.unpacked(path.read_bytes())["backend"])
    with_sections(path, backend=compiled.packed({**content, "data": {**content["data"], **change}}))
    hits, warned, told = compiled_call()
    assert (hits, warned) == (0, [])
    assert "what its backend has compiled" in told[0]


def test_settings_of_the_compilers_are_in_the_key(store: Path) -> None:
    from torch._functorch import config as of_aot_autograd
    from torch._inductor import config as of_inductor

    compiled_call()
    for patched in (of_inductor.patch(fallback_random=True), of_aot_autograd.patch(activation_memory_budget=0.5)):
        with patched:
            assert compiled_call() == (0, [], [])
    assert compiled_call() == (1, [], [])


def test_what_tune_has_chosen_is_in_the_key(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.VARIABLE, str(tmp_path / "choices.sqlite3"))
    tuned = {"options": {"tuned": True}}
    assert [compiled_call(**tuned)[0] for _ in range(2)] == [0, 1]
    option_sets.keep_choice("inductor a graph", [Row("small fusions", option_sets.CHOSEN)])
    assert [compiled_call(**tuned)[0] for _ in range(2)] == [0, 1]
    assert [compiled_call()[0] for _ in range(2)] == [0, 1]
    option_sets.keep_choice("inductor a graph", [Row("small fusions", "built"), Row("default", option_sets.CHOSEN)])
    assert compiled_call(**tuned)[0] == 0
    assert compiled_call()[0] == 1


def test_kernels_are_for_a_number_of_threads(store: Path) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert compiled_call() == (0, [], [])
        torch.set_num_threads(2)
        assert compiled_call() == (0, [], [])
        for number in (1, 2):
            torch.set_num_threads(number)
            assert compiled_call() == (1, [], [])
            assert call()[0] == number - 1  # the graph as it was captured is for any number
    finally:
        torch.set_num_threads(threads)


def test_what_follows_the_buckets_of_ddp_is_not_stored(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which a process group replaces
    weight = torch.ones(3, requires_grad=True)

    def trained() -> list[str]:
        torchdynamo.reset()
        torchdynamo.compile(lambda x: (x * weight).sin().sum(), backend="inductor")(X).backward()
        return [event.text for event in events.recent() if event.kind == "cache"]

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert "cannot be written" in " ".join(trained())
        assert "its backward has run" not in " ".join(trained())
    finally:
        dist.destroy_process_group()
    assert not list(store.rglob("*.td"))


def test_graphs_on_other_devices_are_told_before_anything_is_written() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    (node,) = gm.graph.find_nodes(op="placeholder")
    for device in ("cpu", "meta"):
        node.meta["example_value"] = torch.empty(2, device=device)
        with pytest.raises(NotStorable, match="meta") if device == "meta" else contextlib.nullcontext():
            compiled.check_devices(gm)


def test_what_another_process_removes_meanwhile_is_a_miss(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders that were there when they were listed."""
    call()
    listed = os.scandir
    for gone in (lambda path: path.unlink(), lambda path: shutil.rmtree(path.parent)):
        path = entry_in(store)

        def races(folder: Path, gone: Any = gone, path: Path = path) -> Any:
            monkeypatch.setattr(os, "scandir", listed)
            found = listed(folder)
            gone(path)
            return found

        monkeypatch.setattr(os, "scandir", races)
        assert call() == (0, [])
        assert call() == (1, [])
