"""Folders that users write to are read with bounds: whatever lies there, the answer comes, and at once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from starverse.checkpoint import Checkpointer, Fault, published, verify
from starverse.checkpoint.hashing import run_all
from starverse.checkpoint.loads import RECORD_BYTES_MAX, failed_loads, last_loaded, settle_loads
from starverse.checkpoint.manifest import SPARSE_BYTES_FREE, FileEntry, Manifest, folder_name
from starverse.checkpoint.publish import folder_lock, replace_durably
from starverse.checkpoint.retention import prune

TIB = 1024**4
NAME = "step-0000000001-a0"


def publish(root: Path, step: int) -> Path:
    return Checkpointer(root, keep_last=None, environment={}, handle_signal=False).save_bytes(
        step, {"a": b"%d" % step}
    )


def report(**changes: object) -> bytes:
    body = {"version": 1, "checkpoint": NAME, "attempt": 1, "loaded_at": "2026-01-02T03:04:05Z"}
    return json.dumps({**body, **changes}).encode()


SPOILT_REPORTS = {
    "a word for a time": report(loaded_at="yesterday"),
    "a time without offset": report(loaded_at="2026-01-02T03:04:05"),
    "a time before the first": report(loaded_at="0001-01-01T00:00:00+14:00"),
    "a time after the last": report(loaded_at="9999-12-31T23:59:59-14:00"),
    "a number for a time": report(loaded_at=5),
    "an endless attempt": report(attempt=10**30),
    "an attempt that is true": report(attempt=True),
    "a path for a checkpoint": report(checkpoint="../../etc"),
    "a lone surrogate": report(checkpoint="\ud800"),
    "deep lists": b"[" * 60_000,
    "more digits than are read": b'{"version": 1, "attempt": ' + b"9" * 5000 + b"}",
    "bytes": bytes(range(256)),
    "too long": report() + b" " * RECORD_BYTES_MAX,
}


@pytest.mark.parametrize("content", SPOILT_REPORTS.values(), ids=SPOILT_REPORTS.keys())
def test_a_spoilt_record_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "loaded.json").write_bytes(content)
    (tmp_path / "failed_loads.json").write_bytes(content)
    assert last_loaded(tmp_path) is None
    assert failed_loads(tmp_path) == {}


def test_a_whole_record_has_an_instant(tmp_path: Path) -> None:
    (tmp_path / "loaded.json").write_bytes(report(loaded_at="2026-01-02T11:04:05+08:00"))
    found = last_loaded(tmp_path)
    assert found is not None
    assert (found.checkpoint, found.loaded_at) == (NAME, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def make_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_hole(path: Path) -> None:
    path.touch()
    os.truncate(path, TIB)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link to endless zeros": make_link_to_zeros,
    "one great hole": make_hole,
}


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES.keys())
@pytest.mark.parametrize(
    "name", ["loaded.json", "failed_loads.json", ".lock", f"{NAME}/manifest.json", f".loading-{NAME}-7", NAME]
)
def test_what_is_no_small_file_holds_nobody_up(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    assert last_loaded(tmp_path) is None
    assert failed_loads(tmp_path) == {}
    assert not any(verify(item.path, bytes_max=TIB).verified for item in published(tmp_path))
    for act in (lambda: settle_loads(tmp_path, wait=False), lambda: prune(tmp_path, 1, wait=False)):
        try:
            done = act()
        except OSError:
            done = []
        assert len(done) <= 1


def test_a_pipe_in_the_way_of_a_record_is_put_aside(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f".failed_loads.json.{os.getpid()}")
    replace_durably(tmp_path / "failed_loads.json", b"{}")
    assert (tmp_path / "failed_loads.json").read_bytes() == b"{}"


@pytest.mark.parametrize("step", [2**63 - 1, 2**63, 10**19, 10**40])
def test_a_step_that_no_record_holds_is_no_checkpoint(tmp_path: Path, step: int) -> None:
    (tmp_path / f"step-{step}-a1").mkdir()
    assert published(tmp_path) == []


class Forged(Manifest):
    """A manifest whose own digest is right, and one field is not."""

    changes: dict[str, object]

    def _body(self) -> dict[str, object]:
        return {**super()._body(), **self.changes}


def forge(root: Path, **changes: object) -> Path:
    kind = type("ForgedNow", (Forged,), {"changes": changes})
    folder = root / folder_name(1, 0)
    folder.mkdir()
    (folder / "manifest.json").write_bytes(kind(0, 1, "now", ()).to_bytes())
    return folder


FORGED_FIELDS: dict[str, dict[str, object]] = {
    "size beyond any record": {"files": [{"path": "a", "size": 10**19, "hash": "0" * 64}]},
    "path that no file can have": {"files": [{"path": "\ud800", "size": 0, "hash": "0" * 64}]},
    "link path that no file can have": {"links": [{"path": "\ud800", "target": "a"}]},
    "folder that no folder can be": {"folders": ["\udfff"]},
    "step beyond any record": {"step": 10**19},
    "blocks beyond any record": {"block_bytes": 10**19},
    "endless name of a version": {"version": "v" * 1_000_000},
    "control characters": {"algorithm": "\x1b[2J\n"},
}


@pytest.mark.parametrize("changes", FORGED_FIELDS.values(), ids=FORGED_FIELDS.keys())
def test_a_forged_manifest_is_a_fault_with_a_short_plain_reason(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    found = verify(forge(tmp_path, **changes))
    assert found.fault is Fault.INVALID_MANIFEST
    assert 0 < len(found.reason) <= 500
    assert found.reason.isprintable()
    assert found.reason.encode()


def test_a_path_longer_than_any_file_is_a_fault(tmp_path: Path) -> None:
    entry = {"path": "a" * 5000, "size": 0, "hash": "0" * 64}
    found = verify(forge(tmp_path, files=[entry]))
    assert found.fault is Fault.WRONG_KIND
    assert len(found.reason) <= 500


@pytest.mark.parametrize(
    "names", [("a",), ("a", "b", "c", "d", "e", "f")], ids=["a hole", "one hole under six names"]
)
def test_bytes_that_are_not_on_disk_are_refused_without_reading(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    size = SPARSE_BYTES_FREE * 64 // len(names)
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / names[0]).touch()
    os.truncate(folder / names[0], size)
    for name in names[1:]:
        os.link(folder / names[0], folder / name)
    files = tuple(FileEntry(name, size, "0" * 64) for name in names)
    (folder / "manifest.json").write_bytes(Manifest(0, 1, "now", files).to_bytes())
    found = verify(folder, bytes_max=TIB)
    assert found.fault is Fault.SPARSE
    assert str(size * len(names)) in found.reason


def test_a_small_hole_is_read_and_verified(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, environment={}, handle_signal=False).save(1) as folder:
        (folder / "a").touch()
        os.truncate(folder / "a", 1 << 20)
    assert verify(tmp_path / NAME, bytes_max=TIB).verified


@contextmanager
def held_by_its_owner(root: Path) -> Iterator[None]:
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_held_lock_is_not_waited_for(tmp_path: Path) -> None:
    folders = [publish(tmp_path, step) for step in (1, 2)]
    (tmp_path / f".loading-{NAME}-7").touch()
    with held_by_its_owner(tmp_path):
        with pytest.raises(BlockingIOError):
            prune(tmp_path, 1, {folders[1].name}, wait=False)
        with pytest.raises(BlockingIOError):
            settle_loads(tmp_path, wait=False)
        with pytest.raises(BlockingIOError), folder_lock(tmp_path, wait=False):
            pass
    assert prune(tmp_path, 1, {folders[1].name}, wait=False) == [folders[0]]


def test_many_dead_loads_are_counted_in_one_go_and_nothing_unpublished_is_kept(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    for pid in range(20):
        (tmp_path / f".loading-{NAME}-{pid}").touch()
    assert settle_loads(tmp_path) == [NAME] * 20
    assert failed_loads(tmp_path) == {NAME: 20}
    assert settle_loads(tmp_path) == []


def test_tasks_are_taken_as_they_are_done_and_the_first_error_ends_the_taking() -> None:
    taken = []

    def tasks(fails_at: int) -> Iterator[Callable[[], int]]:
        for index in range(20_000):
            taken.append(index)
            yield lambda index=index: index if index != fails_at else 1 // 0  # type: ignore[misc]

    assert run_all(tasks(fails_at=-1)) == list(range(20_000))
    taken.clear()
    with pytest.raises(ZeroDivisionError):
        run_all(tasks(fails_at=3))
    assert len(taken) < 10_000
