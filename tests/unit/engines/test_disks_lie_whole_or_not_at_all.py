"""Disks in the data folder: made, grown, copied and removed, whole or not at all, whatever is in them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from starverse.domain.disk_kind import DiskKind
from starverse.engines.base import DiskTree, EngineUnavailable, StorageFailed
from starverse.engines.folders.disks import FolderDisks
from starverse.node.disk_trees import TreeFault, copy_tree, measure
from starverse.testing.kill_points import killed_before

TOOLS = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin")
NAMES = ("plain", "two words", "数据", "x" * 255, "-rf", "new\nline")
SEEN = "s-1"


@pytest.fixture
def disks(tmp_path: Path) -> FolderDisks:
    return FolderDisks(tmp_path)


@pytest.fixture
def shared(disks: FolderDisks) -> DiskTree:
    tree = DiskTree(str(uuid.uuid4()), DiskKind.SHARED, 1)
    assert disks.make(tree, None) is False
    return tree


def content(tmp_path: Path, tree: DiskTree) -> Path:
    return tmp_path / "disks" / tree.disk_id / "data"


def block_of(tmp_path: Path, tree: DiskTree) -> Path:
    return tmp_path / "disks" / tree.disk_id / "block.img"


def left_aside(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob(".*") if path.name.startswith((".new", ".old"))]


@pytest.fixture
def block(disks: FolderDisks) -> DiskTree:
    if TOOLS is None:
        pytest.skip("mkfs.ext4 is missing")
    tree = DiskTree(str(uuid.uuid4()), DiskKind.BLOCK, 1)
    assert disks.make(tree, None) is True
    return tree


def sound(path: Path) -> bool:
    done = subprocess.run(["/usr/sbin/e2fsck", "-f", "-n", str(path)], capture_output=True, check=False)
    return done.returncode == 0


def test_a_snapshot_is_a_copy_and_a_new_disk_begins_as_it(
    disks: FolderDisks, shared: DiskTree, tmp_path: Path
) -> None:
    place = content(tmp_path, shared)
    for name in NAMES:
        (place / name).write_text(name)
    (place / "deep" / "er").mkdir(parents=True)
    (place / "deep" / "link").symlink_to("/etc/passwd")
    (place / "deep" / "er" / "script.sh").write_text("#!/bin/sh\n")
    (place / "deep" / "er" / "script.sh").chmod(0o750)
    os.mkfifo(place / "pipe")
    disks.take_snapshot(shared, SEEN)
    (place / "plain").write_text("changed since")

    other = DiskTree(str(uuid.uuid4()), DiskKind.SHARED, 1)
    disks.make(other, (shared.disk_id, SEEN))
    made = content(tmp_path, other)
    assert {path.name for path in made.iterdir()} == {*NAMES, "deep"}
    assert (made / "plain").read_text() == "plain"
    assert (made / "deep" / "link").readlink() == Path("/etc/passwd")
    assert (made / "deep" / "er" / "script.sh").stat().st_mode & 0o777 == 0o750
    assert (place / "plain").stat().st_ino != (made / "plain").stat().st_ino
    assert left_aside(tmp_path) == []


def test_what_is_repeated_changes_nothing(disks: FolderDisks, shared: DiskTree, tmp_path: Path) -> None:
    (content(tmp_path, shared) / "kept").write_text("kept")
    disks.take_snapshot(shared, SEEN)
    (content(tmp_path, shared) / "later").write_text("later")
    disks.make(shared, None)
    disks.take_snapshot(shared, SEEN)
    copied = tmp_path / "snapshots" / shared.disk_id / SEEN / "data"
    assert [path.name for path in copied.iterdir()] == ["kept"]
    disks.remove_snapshot(shared.disk_id, SEEN)
    disks.remove_snapshot(shared.disk_id, SEEN)
    disks.remove(shared.disk_id)
    disks.remove(shared.disk_id)
    assert disks.ids() == ()
    with pytest.raises(StorageFailed, match="not there any more"):
        disks.make(DiskTree(str(uuid.uuid4()), DiskKind.SHARED, 1), (shared.disk_id, SEEN))


def test_a_removal_follows_no_link_out(disks: FolderDisks, shared: DiskTree, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (content(tmp_path, shared) / "way out").symlink_to(outside)
    disks.remove(shared.disk_id)
    assert (outside / "kept").read_text() == "kept"


def test_holes_and_second_names_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 8192)
    os.link(tmp_path / "file", tmp_path / "same")
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(1024**3)
    (tmp_path / "loop").symlink_to(tmp_path)
    found = measure(tmp_path)
    assert found.files == 3
    assert found.bytes < 100_000


def test_a_disk_too_large_to_be_measured_in_the_time_is_told_as_not_measured(
    disks: FolderDisks, shared: DiskTree, tmp_path: Path
) -> None:
    (content(tmp_path, shared) / "folder").mkdir()
    assert disks.measure(shared, 0) is None
    assert disks.measure(shared, 60) is not None


def test_a_tree_deeper_than_any_is_refused_and_nothing_is_left(
    disks: FolderDisks, shared: DiskTree, tmp_path: Path
) -> None:
    here = os.open(content(tmp_path, shared), os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert disks.measure(shared, 60) is not None
    with pytest.raises(StorageFailed, match="levels of folders"):
        disks.take_snapshot(shared, SEEN)
    assert left_aside(tmp_path) == []
    disks.remove(shared.disk_id)
    assert not content(tmp_path, shared).exists()


class _Growing:
    """A file that its owner writes to whenever somebody has read of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> None:
        with self.path.open("ab") as file:
            file.write(b"more")


def test_a_file_that_never_rests_fails_the_copy_instead_of_being_torn(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "log").write_bytes(b"x" * 1000)
    grow = _Growing(source / "log")
    with pytest.raises(TreeFault, match="kept changing"):
        copy_tree(source, tmp_path / "target", between=grow)


def _points(limit: int = 40) -> Iterator[int]:
    yield from range(1, limit)


def test_killed_at_any_change_a_snapshot_is_whole_or_not_there(tmp_path: Path) -> None:
    for point in _points():
        data = tmp_path / str(point)
        disks = FolderDisks(data)
        tree = DiskTree(str(uuid.uuid4()), DiskKind.SHARED, 1)
        disks.make(tree, None)
        for name in ("a", "b"):
            (content(data, tree) / name).mkdir()
            (content(data, tree) / name / "file").write_text(name)
        died = killed_before(point, partial(disks.take_snapshot, tree, SEEN))
        copied = data / "snapshots" / tree.disk_id / SEEN / "data"
        if copied.exists():
            assert sorted(str(p.relative_to(copied)) for p in copied.rglob("*")) == [
                "a",
                "a/file",
                "b",
                "b/file",
            ]
        disks.take_snapshot(tree, SEEN)
        assert (copied / "b" / "file").read_text() == "b"
        if not died:
            return
    raise AssertionError("it never ended")


def test_a_block_disk_is_a_sound_file_system_that_grows_and_is_copied(
    disks: FolderDisks, block: DiskTree, tmp_path: Path
) -> None:
    path = block_of(tmp_path, block)
    assert path.stat().st_size == 1024**3
    assert path.stat().st_blocks * 512 >= 1024**3  # its bytes are its own
    assert sound(path)
    larger = DiskTree(block.disk_id, DiskKind.BLOCK, 2)
    disks.grow(larger)
    disks.grow(larger)
    assert path.stat().st_size == 2 * 1024**3
    assert sound(path)
    disks.take_snapshot(larger, SEEN)
    copy = DiskTree(str(uuid.uuid4()), DiskKind.BLOCK, 3)
    disks.make(copy, (block.disk_id, SEEN))
    assert block_of(tmp_path, copy).stat().st_size == 3 * 1024**3
    assert sound(block_of(tmp_path, copy))
    found = disks.measure(copy, 60)
    assert found is not None
    assert found.files is None


def test_a_block_disk_that_somebody_has_is_neither_grown_nor_copied(
    disks: FolderDisks, block: DiskTree, tmp_path: Path
) -> None:
    with block_of(tmp_path, block).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EngineUnavailable, match="in use"):
            disks.grow(DiskTree(block.disk_id, DiskKind.BLOCK, 2))
        with pytest.raises(EngineUnavailable, match="in use"):
            disks.take_snapshot(block, SEEN)
    assert left_aside(tmp_path) == []
    disks.take_snapshot(block, SEEN)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_is_made_for_a_team_belongs_to_its_user_and_nobody_else_looks_in(
    disks: FolderDisks, tmp_path: Path
) -> None:
    tree = DiskTree(str(uuid.uuid4()), DiskKind.SHARED, 1, unix_uid=234_567)
    disks.make(tree, None)
    place = content(tmp_path, tree)
    assert (place.stat().st_uid, place.stat().st_gid) == (234_567, 234_567)
    (place / "file").write_text("x")
    os.chown(place / "file", 234_567, 234_567)
    disks.take_snapshot(tree, SEEN)
    copied = tmp_path / "snapshots" / tree.disk_id / SEEN
    assert (copied / "data" / "file").stat().st_uid == 234_567
    assert copied.parent.stat().st_mode & 0o077 == 0


def test_what_a_layer_says_of_its_image_is_copied(tmp_path: Path) -> None:
    """What hides a file or a folder of the image, and people's own marks; other devices are left out."""
    layer = tmp_path / "layer"
    (layer / "hides").mkdir(parents=True)
    os.mknod(layer / "removed", stat.S_IFCHR)
    os.setxattr(layer / "hides", "user.overlay.opaque", b"y")
    (layer / "file").write_text("x")
    os.setxattr(layer / "file", "user.mine", b"1")
    if os.geteuid() == 0:
        os.mknod(layer / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    copy_tree(layer, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert sorted(entry.name for entry in copy.iterdir()) == ["file", "hides", "removed"]
    assert (copy / "removed").stat().st_rdev == 0
    assert os.getxattr(copy / "hides", "user.overlay.opaque") == b"y"
    assert os.getxattr(copy / "file", "user.mine") == b"1"


def test_a_copy_of_what_its_own_user_may_not_read_is_whole(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "closed").mkdir(parents=True)
    (tree / "closed/inner").write_text("kept")
    (tree / "closed").chmod(0)
    (tree / "secret").write_text("kept too")
    (tree / "secret").chmod(0)
    copy_tree(tree, tmp_path / "copy")
    assert measure(tmp_path / "copy").files == measure(tree).files == 2
    for place in (tree, tmp_path / "copy"):
        (place / "closed").chmod(0o700)
        assert (place / "closed/inner").read_text() == "kept"
