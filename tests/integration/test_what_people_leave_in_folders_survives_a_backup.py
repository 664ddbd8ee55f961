"""Whatever workloads leave in their folders goes into a backup as it is, and leads it nowhere else."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from starverse.app.maintenance.backup import Wanted, make_backup
from starverse.app.maintenance.manifest import Manifest
from starverse.app.maintenance.restore import restore
from starverse.app.maintenance.trees import pack, unpack
from starverse.db import schema
from starverse.node.sandbox import syscalls
from starverse.testing.launcher_platforms import ORDINARY_UID
from starverse.testing.platforms import empty_database

NOW = datetime(2026, 12, 1, tzinfo=UTC)
GIB = 1024**3
ODD = ("a space", "new\nline", "-C", "--checkpoint-action=exec=false", "训练", "\udcff\udcfe", "x" * 200)
"""File names that a careless packer stumbles over; one is no text at all."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "data" / "workspaces" / "one"
    place.mkdir(parents=True)
    return place


def there_and_back(tmp_path: Path) -> tuple[Manifest, Path]:
    """A backup of the workspaces, restored into a new data folder; where the workspace is there."""
    data, fresh = tmp_path / "data", tmp_path / "fresh"
    with empty_database("sqlite", data) as database:
        schema.upgrade(database)
        made = make_backup(database, data, tmp_path / "backup", Wanted(("workspaces",)), NOW)
    restore(tmp_path / "backup", fresh, f"sqlite:///{fresh / 'starverse.db'}", NOW, replace=False)
    return made.manifest, fresh / "workspaces" / "one"


def test_names_modes_and_times_stay(workspace: Path, tmp_path: Path) -> None:
    for name in ODD:
        (workspace / name).write_text(repr(name))
    (workspace / "run.sh").write_text("true\n")
    (workspace / "run.sh").chmod(0o755)
    os.utime(workspace / "run.sh", ns=(0, 1_700_000_000_123_456_789))
    (workspace / "closed").mkdir(mode=0o555)
    manifest, found = there_and_back(tmp_path)
    assert manifest.unread == ()
    assert {file.name for file in found.iterdir()} == {*ODD, "run.sh", "closed"}
    assert all((found / name).read_text() == repr(name) for name in ODD)
    assert (found / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (found / "run.sh").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert (found / "closed").stat().st_mode & 0o777 == 0o555


@pytest.mark.skipif(os.geteuid() != 0, reason="owners are given by root alone")
def test_what_was_written_over_a_container_image_hides_of_it_what_it_hid(
    workspace: Path, tmp_path: Path
) -> None:
    """Files that were removed are devices without number, folders that were made anew have a mark."""
    os.mknod(workspace / "removed", 0o600 | stat.S_IFCHR, os.makedev(0, 0))
    (workspace / "anew").mkdir()
    os.setxattr(workspace / "anew", "user.overlay.opaque", b"y")
    (workspace / "anew" / "given").touch()
    os.chown(workspace / "anew" / "given", 2**30 + 33, 2**30 + 33)
    _, found = there_and_back(tmp_path)
    removed = (found / "removed").lstat()
    assert (stat.S_ISCHR(removed.st_mode), removed.st_rdev) == (True, 0)
    assert os.getxattr(found / "anew", "user.overlay.opaque") == b"y"
    assert (found / "anew" / "given").stat().st_uid == 2**30 + 33


def test_links_are_kept_and_not_followed(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not theirs")
    (workspace / "link").symlink_to(tmp_path / "secret")
    (workspace / "folder").symlink_to(tmp_path)
    (workspace / "twice").write_text("one file")
    (workspace / "again").hardlink_to(workspace / "twice")
    _, found = there_and_back(tmp_path)
    assert (found / "link").readlink() == tmp_path / "secret"
    assert (found / "folder").is_symlink()
    assert (found / "twice").samefile(found / "again")
    archive = (tmp_path / "backup/trees/workspaces.tar").read_bytes()
    assert b"not theirs" not in archive


def test_holes_stay_holes(workspace: Path, tmp_path: Path) -> None:
    """As in a log whose oldest part was punched out: it is larger than the disk, and takes nothing."""
    with (workspace / "log").open("wb") as log:
        log.truncate(64 * GIB)
        log.seek(0, os.SEEK_END)
        log.write(b"the end\n")
    manifest, found = there_and_back(tmp_path)
    assert manifest.files["trees/workspaces.tar"].bytes < 1024**2
    assert (found / "log").stat().st_size == 64 * GIB + 8
    assert (found / "log").stat().st_blocks * 512 < 1024**2


def test_what_is_no_file_holds_nothing_up(workspace: Path, tmp_path: Path) -> None:
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(workspace / "s"))
        (workspace / "file").write_text("here")
        manifest, found = there_and_back(tmp_path)
    assert manifest.unread == ()
    assert (found / "pipe").is_fifo()
    assert (found / "file").read_text() == "here"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_owners_stay(workspace: Path, tmp_path: Path) -> None:
    (workspace / "file").write_text("theirs")
    os.chown(workspace / "file", 200_007, 200_007)
    _, found = there_and_back(tmp_path)
    assert (found / "file").stat().st_uid == 200_007


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_named(workspace: Path, tmp_path: Path) -> None:
    """Where the user has ids in /etc/subuid it can be read."""
    (workspace / "closed").write_text("x")
    (workspace / "closed").chmod(0)
    manifest, found = there_and_back(tmp_path)
    assert any("closed" in line for line in manifest.unread) != (found / "closed").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a user ids")
@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="apt-get install uidmap")
def test_an_ordinary_user_packs_what_root_in_a_container_image_gave_to_others(tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp())
    try:
        (place / "disks/theirs").mkdir(parents=True)
        (place / "disks/theirs/file").write_text("kept")
        (place / "back").mkdir()
        for path, uid in (
            (place, ORDINARY_UID),
            (place / "disks", ORDINARY_UID),
            (place / "back", ORDINARY_UID),
            (place / "disks/theirs/file", 400_032),
            (place / "disks/theirs", 400_032),
        ):
            os.chown(path, uid, uid)
        (place / "disks/theirs").chmod(0o700)
        (tmp_path / "ids").write_text(f"{ORDINARY_UID}:400000:65536\n")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                become_user_with_ids(tmp_path / "ids")
                with (place / "disks.tar").open("wb") as out:
                    _, unread = pack(place, "disks", out)
                unpack(place / "disks.tar", place / "back")
                code = 2 if unread else 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        found = place / "back/disks"
        assert (found / "theirs/file").read_text() == "kept"
        assert [(found / name).stat().st_uid for name in ("", "theirs", "theirs/file")] == [
            ORDINARY_UID,
            400_032,
            400_032,
        ]
    finally:
        shutil.rmtree(place)


def become_user_with_ids(file: Path) -> None:
    """This process, for good: who is in ``file`` as in ``/etc/subuid``, in a mount namespace of its own."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    for name in ("/etc/subuid", "/etc/subgid"):
        syscalls.mount(str(file), name, None, syscalls.MS_BIND)
    os.setgroups([])
    os.setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
    os.setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
