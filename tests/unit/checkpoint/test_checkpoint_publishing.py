"""Publishing is one step: it happens whole or not at all, and never by an older run."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from starverse.checkpoint import (
    AlreadyPublished,
    Checkpointer,
    CheckpointError,
    DiskFull,
    Fenced,
    Unusable,
    published,
    verify,
)
from starverse.testing.checkpoint_kills import KillLoop, kill_loop


def new_checkpointer(root: Path, attempt: int = 0, keep_last: int | None = 3) -> Checkpointer:
    environment = {"STARVERSE_RETRY": str(attempt), "STARVERSE_JOB_ID": "job-1"}
    return Checkpointer(root, keep_last=keep_last, environment=environment, handle_signal=False)


def steps(root: Path) -> list[int]:
    return [item.step for item in published(root)]


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".lock"}


def test_what_is_written_in_the_block_is_published_at_its_end(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path, attempt=2)
    with checkpointer.save(40) as folder:
        (folder / "deep/er").mkdir(parents=True)
        (folder / "deep/er/model.bin").write_bytes(b"weights")
        (folder / "latest").symlink_to("deep/er")
        (folder / "logs").mkdir()
        assert steps(tmp_path) == []
    found = checkpointer.latest()
    assert found is not None
    assert found.path == tmp_path / "step-0000000040-a2"
    manifest = verify(found.path).manifest
    assert manifest is not None
    assert (manifest.run, manifest.folders, manifest.links[0].target) == ("job-1", ("logs",), "deep/er")
    assert (found.path / "latest/model.bin").read_bytes() == b"weights"


def test_an_exception_in_the_block_abandons_the_checkpoint(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    checkpointer.save_bytes(1, {"a": b"1"})
    with pytest.raises(ZeroDivisionError), checkpointer.save(2) as folder:
        (folder / "a").write_bytes(b"2")
        _ = 1 / 0
    assert names(tmp_path) == {"step-0000000001-a0"}


def test_a_lower_attempt_than_the_newest_published_cannot_publish(tmp_path: Path) -> None:
    older, newer = new_checkpointer(tmp_path, attempt=1), new_checkpointer(tmp_path, attempt=2)
    older.save_bytes(10, {"a": b"1"})
    newer.save_bytes(11, {"a": b"2"})
    with pytest.raises(Fenced, match="attempt 2 has published step-0000000011-a2"):
        older.save_bytes(12, {"a": b"3"})
    older.save_async(13, {"a": b"4"})
    with pytest.raises(Fenced):
        older.wait()
    assert names(tmp_path) == {"step-0000000010-a1", "step-0000000011-a2"}


def test_a_folder_without_a_manifest_fences_nobody(tmp_path: Path) -> None:
    (tmp_path / "step-0000000001-a9").mkdir()
    new_checkpointer(tmp_path, attempt=1).save_bytes(5, {"a": b"1"})
    found = new_checkpointer(tmp_path, attempt=1).latest()
    assert found is not None
    assert (found.attempt, found.step) == (1, 5)


def test_a_published_step_never_changes(tmp_path: Path) -> None:
    new_checkpointer(tmp_path).save_bytes(1, {"a": b"first"})
    new_checkpointer(tmp_path).save_bytes(1, {"a": b"first"})
    with pytest.raises(AlreadyPublished, match="save a higher step"):
        new_checkpointer(tmp_path).save_bytes(1, {"a": b"second"})
    assert (tmp_path / "step-0000000001-a0/a").read_bytes() == b"first"


def test_saving_the_same_step_again_in_one_run_keeps_the_first(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    checkpointer.save_bytes(1, {"a": b"at every 100 steps"})
    checkpointer.save_bytes(1, {"a": b"and on notice"})
    assert (tmp_path / "step-0000000001-a0/a").read_bytes() == b"at every 100 steps"


def test_a_damaged_step_is_written_anew(tmp_path: Path) -> None:
    folder = new_checkpointer(tmp_path).save_bytes(1, {"a": b"first"})
    (folder / "a").write_bytes(b"other")
    new_checkpointer(tmp_path).save_bytes(1, {"a": b"again"})
    assert verify(folder).verified
    assert (folder / "a").read_bytes() == b"again"


@pytest.mark.parametrize("keep_last", [1, 2, 5, None])
def test_the_newest_few_are_kept(tmp_path: Path, keep_last: int | None) -> None:
    checkpointer = new_checkpointer(tmp_path, keep_last=keep_last)
    for step in range(8):
        checkpointer.save_bytes(step, {"a": b"%d" % step})
    assert steps(tmp_path) == list(range(8))[-keep_last if keep_last else 0 :]
    assert names(tmp_path) == {item.path.name for item in published(tmp_path)}


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "manifest.json", ""], ids=repr)
def test_a_file_name_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Unusable):
        new_checkpointer(tmp_path / "root").save_bytes(1, {name: b"x"})
    assert names(tmp_path / "root") == set()
    assert not (tmp_path / "outside").exists()


def test_a_link_out_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path)
    with pytest.raises(Unusable, match="stolen"), checkpointer.save(1) as folder:
        (folder / "stolen").symlink_to("/etc/passwd")
    assert names(tmp_path) == set()


def test_files_are_copied_into_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    folder = new_checkpointer(tmp_path / "root").save_files(1, {"sub/model.bin": tmp_path / "model.bin"})
    assert (folder / "sub/model.bin").read_bytes() == b"weights"


def test_the_leftover_of_a_dead_writer_goes_and_one_at_work_stays(tmp_path: Path) -> None:
    dead = tmp_path / ".writing-0-7-999"
    dead.mkdir()
    (dead / "half").write_bytes(b"x")
    checkpointer = new_checkpointer(tmp_path)
    with checkpointer.save(1) as at_work:
        (at_work / "a").write_bytes(b"1")
        new_checkpointer(tmp_path).save_bytes(2, {"a": b"2"})
        assert at_work.is_dir()
        assert not dead.exists()
    assert steps(tmp_path) == [1, 2]


@pytest.mark.parametrize("text", ["-1", "two", "1.5", "²", "99999999999"])
def test_an_impossible_attempt_number_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unusable, match="STARVERSE_RETRY"):
        Checkpointer(tmp_path, environment={"STARVERSE_RETRY": text}, handle_signal=False)


@pytest.mark.parametrize("step", [-1, 10**18])
def test_an_impossible_step_is_refused(tmp_path: Path, step: int) -> None:
    with pytest.raises(Unusable, match="step"):
        new_checkpointer(tmp_path).save_bytes(step, {"a": b"1"})


def test_a_full_disk_is_named_and_leaves_the_previous_one(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk, so that no root is needed."""
    program = f"""
import resource, signal
from starverse.checkpoint import Checkpointer, DiskFull
checkpointer = Checkpointer({str(tmp_path)!r}, environment={{}})
checkpointer.save_bytes(1, {{"a": b"small"}})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for way in ("save_bytes", "save_arrays", "save_async"):
    try:
        getattr(checkpointer, way)(2, {{"a": b"large" * 100_000}})
        checkpointer.wait()
    except DiskFull as error:
        print(way, error)
print(checkpointer.latest().step)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["save_bytes", "save_arrays", "save_async"]
    assert all("previous one is untouched" in line for line in lines[:3])
    assert lines[3] == "1"
    assert names(tmp_path) == {"step-0000000001-a0"}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_really_full_disk_is_named_and_room_is_given_back(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False).returncode:
        pytest.skip("this machine lets root mount no tmpfs")
    try:
        checkpointer = new_checkpointer(small)
        checkpointer.save_bytes(1, {"a": b"x" * 300_000})
        for step in (2, 3):
            with pytest.raises(DiskFull):
                checkpointer.save_bytes(step, {"a": b"y" * 900_000})
        checkpointer.save_arrays(4, {"a": b"z" * 300_000})
        assert steps(small) == [1, 4]
        assert all(verify(item.path).verified for item in published(small))
    finally:
        subprocess.run(["umount", small], check=True)


def test_too_many_files_for_the_open_file_limit_are_no_problem(tmp_path: Path) -> None:
    many = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1024) + 100
    checkpointer = new_checkpointer(tmp_path)
    folder = checkpointer.save_arrays(1, {f"a{index}": b"%d" % index for index in range(many)})
    assert verify(folder).verified
    assert bytes(checkpointer.load(folder)[f"a{many - 1}"]) == b"%d" % (many - 1)


@pytest.mark.serial
def test_kill_nine_at_any_moment_leaves_the_last_reported_checkpoint_or_a_newer_one(tmp_path: Path) -> None:
    outcome = kill_loop(KillLoop(tmp_path, kills=27, seed=19))
    assert (outcome.torn, outcome.older) == (0, 0)
    assert outcome.leftovers > 0, "no kill hit a write: the test says nothing"


def test_errors_are_one_family_with_a_code() -> None:
    for kind in (AlreadyPublished, DiskFull, Fenced, Unusable):
        assert issubclass(kind, CheckpointError)
        assert kind().detail
        assert kind.code.startswith("checkpoint")
