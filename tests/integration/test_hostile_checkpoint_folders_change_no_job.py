"""Whatever a job makes of its ``/checkpoint``: it ends, is charged, runs again, and so do its neighbours."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from starverse.app import checkpoints
from starverse.app.checkpoints import NEW_MAX
from starverse.checkpoint import Checkpointer
from starverse.checkpoint.manifest import FileEntry, Manifest, folder_name
from starverse.db import checkpoints as rows
from starverse.domain.money import Money
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

TIB = 1024**4


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def scan(world: World, job_id: str, team_id: str) -> int:
    with world.database.read() as connection:
        known = rows.of_job(connection, job_id)
    return checkpoints.record_found(world.platform, job_id, team_id, known)


def save(root: Path, step: int = 7) -> Path:
    return Checkpointer(root, environment={}, handle_signal=False).save_bytes(step, {"a": b"a"})


def forge(root: Path, *files: FileEntry, step: int = 9) -> Path:
    folder = root / folder_name(step, 1)
    folder.mkdir()
    (folder / "manifest.json").write_bytes(Manifest(1, step, "now", files).to_bytes())
    return folder


def loaded_at_no_time(root: Path, _held: ExitStack) -> None:
    report = {"version": 1, "checkpoint": save(root).name, "attempt": 1, "loaded_at": "when it was done"}
    (root / "loaded.json").write_text(json.dumps(report))


def loaded_before_all_time(root: Path, _held: ExitStack) -> None:
    report = {"version": 1, "checkpoint": save(root).name, "attempt": 1}
    (root / "loaded.json").write_text(json.dumps({**report, "loaded_at": "0001-01-01T00:00:00+14:00"}))


def loaded_what_is_not_there(root: Path, _held: ExitStack) -> None:
    report = {"version": 1, "checkpoint": folder_name(99, 1), "attempt": 1}
    (root / "loaded.json").write_text(json.dumps({**report, "loaded_at": "2026-01-02T03:04:05Z"}))


def pipes_everywhere(root: Path, _held: ExitStack) -> None:
    os.mkfifo(root / "loaded.json")
    os.mkfifo(root / "failed_loads.json")
    os.mkfifo(root / ".lock")
    os.mkfifo(forge(root).parent / folder_name(10, 1))
    (root / folder_name(11, 1)).mkdir()
    os.mkfifo(root / folder_name(11, 1) / "manifest.json")


def endless_files(root: Path, _held: ExitStack) -> None:
    (root / "loaded.json").symlink_to("/dev/zero")
    (root / "failed_loads.json").touch()
    os.truncate(root / "failed_loads.json", TIB)
    folder = root / folder_name(11, 1)
    folder.mkdir()
    (folder / "manifest.json").symlink_to("/dev/zero")


def steps_beyond_any_record(root: Path, _held: ExitStack) -> None:
    for step in (10**18 - 1, 10**18, 2**63 - 1, 2**63, 10**19, 10**30):
        (root / f"step-{step}-a1").mkdir()


def size_beyond_any_record(root: Path, _held: ExitStack) -> None:
    forge(root, FileEntry("a", 10**19, "0" * 64))


def path_that_no_file_can_have(root: Path, _held: ExitStack) -> None:
    forge(root, FileEntry("\ud800", 0, "0" * 64))


def names_that_are_no_text(root: Path, _held: ExitStack) -> None:
    folder = forge(root, FileEntry("\udcff\x1b", 0, "0" * 64))
    (folder / "\udcff\x1b").touch()


def a_hole_for_a_terabyte(root: Path, _held: ExitStack) -> None:
    folder = forge(root, FileEntry("a", TIB, "0" * 64))
    (folder / "a").touch()
    os.truncate(folder / "a", TIB)


def folder_that_nobody_may_read(root: Path, _held: ExitStack) -> None:
    save(root)
    root.chmod(0)


def lock_held_for_ever(root: Path, held: ExitStack) -> None:
    for step in range(8):
        save(root, step)
    (root / f".loading-{folder_name(7, 0)}-1").touch()
    lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT)
    held.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)


def file_where_the_folder_was(root: Path, _held: ExitStack) -> None:
    root.rmdir()
    root.write_text("")


HOSTILE: list[Callable[[Path, ExitStack], None]] = [
    loaded_at_no_time,
    loaded_before_all_time,
    loaded_what_is_not_there,
    pipes_everywhere,
    endless_files,
    steps_beyond_any_record,
    size_beyond_any_record,
    path_that_no_file_can_have,
    names_that_are_no_text,
    a_hole_for_a_terabyte,
    folder_that_nobody_may_read,
    lock_held_for_ever,
    file_where_the_folder_was,
]


@pytest.mark.parametrize("spoil", HOSTILE)
def test_a_hostile_folder_keeps_no_job_from_its_end(
    world: World, spoil: Callable[[Path, ExitStack], None]
) -> None:
    rival, lab = world.team("rival"), world.team("lab")
    world.plan("hostile", run_seconds=20, exit_code=99)
    world.plan("train", run_seconds=20, checkpoint_seconds=5)
    hostile = world.submit(rival, name="hostile")
    train = world.submit(lab, name="train")
    world.run(8)
    root = world.platform.paths.checkpoints(hostile.id)
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        held.callback(lambda: root.chmod(0o700))
        spoil(root, held)
        for reconciler in world.reconcilers:
            reconciler.act()  # none is failing
        world.run(40, step=2)

        assert world.job(lab, train.number).state is JobState.SUCCEEDED
        assert world.bill(lab).total == Money(1_660_000 * 20 // 3600)
        runs = world.job(rival, hostile.number).allocations
        assert len(runs) >= 2
        assert world.bill(rival).total >= Money(1_660_000 * 20 // 3600)
        world.assert_sound()


def test_only_so_many_new_folders_are_looked_at_in_one_go_newest_first(world: World) -> None:
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    root = world.platform.paths.checkpoints(job.id)
    for step in range(NEW_MAX + 10):
        (root / folder_name(step, 1)).mkdir(parents=True)
    assert scan(world, job.id, lab.team_id) == NEW_MAX
    with world.database.read() as connection:
        seen = [row.step for row in rows.of_job(connection, job.id)]
    assert seen == list(range(10, NEW_MAX + 10))
    assert scan(world, job.id, lab.team_id) == 10
    assert scan(world, job.id, lab.team_id) == 0


@pytest.mark.parametrize(
    "claimed", [0.0, 4_000_000_000.0, 2.0**40], ids=["year 1970", "year 2096", "year 36812"]
)
def test_no_owner_chooses_when_a_checkpoint_was_published(world: World, claimed: float) -> None:
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    folder = save(world.platform.paths.checkpoints(job.id))
    os.utime(folder, (claimed, claimed))
    published_at = folder.stat().st_ctime
    world.clock.at = datetime.fromtimestamp(published_at + 3600, UTC)
    assert scan(world, job.id, lab.team_id) == 1
    with world.database.read() as connection:
        (row,) = rows.of_job(connection, job.id)
    assert row.published_at.timestamp() == pytest.approx(published_at, abs=0.001)
