"""Shared disks on file systems with project quotas, in a file, as their own tools make and mount them."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.domain.disk_kind import DiskKind
from starverse.engines.base import DiskTree
from starverse.engines.folders.disks import FolderDisks
from starverse.node.project_quotas import is_limited, refusal

TEAM_UID = 200_001
MIB = 1024**2
_TOOLS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def run(*command: str, user: int | None = None, at: str | Path = "/") -> str:
    """What it complained of; ``""``: nothing. ``at``: begun there, where the user may not get by the path."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=_TOOLS, user=user, group=user, cwd=at
    )
    return done.stderr.strip() or ("" if done.returncode == 0 else f"exit {done.returncode}")


MAKERS = {
    "ext4": ("mkfs.ext4", "-qF", "-O", "project,quota", "-E", "quotatype=prjquota", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q"),
}
REFUSED = ("Disk quota exceeded", "No space left on device")
"""In the words of ext4 and of XFS."""


@pytest.fixture(params=MAKERS)
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems and sets project quotas")
    command = MAKERS[request.param]
    if shutil.which(command[0], path=_TOOLS["PATH"]) is None:
        pytest.skip(f"{command[0]} is not installed")
    image, place = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(4096 * MIB)
    place.mkdir()
    assert run(*command, str(image)) == ""
    if why := run("mount", "-o", "loop,prjquota", str(image), str(place)):
        pytest.skip(f"this kernel has no project quotas for {request.param}: {why.splitlines()[0]}")
    try:
        yield place
    finally:
        assert run("umount", str(place)) == ""


def make(store: FolderDisks, gib: int = 1) -> DiskTree:
    tree = DiskTree(str(uuid.uuid4()), DiskKind.SHARED, gib, TEAM_UID)
    assert store.make(tree, None) is True
    assert store.make(tree, None) is True, "a repeat says the same"
    return tree


def take(place: Path, tree: DiskTree, name: str, mib: int) -> str:
    """Have the team's user take room on its disk; what the kernel said to that."""
    return run("fallocate", "-l", f"{mib}MiB", name, user=TEAM_UID, at=data_of(place, tree))


def data_of(place: Path, tree: DiskTree) -> Path:
    return place / "disks" / tree.disk_id / "data"


def test_a_shared_disk_cannot_hold_more_than_its_size(mounted: Path) -> None:
    store = FolderDisks(mounted)
    first, second = make(store), make(store)
    assert take(mounted, first, "most", 1000) == ""
    assert take(mounted, first, "rest", 100).endswith(REFUSED)
    assert take(mounted, second, "own", 1000) == "", "each disk has its own"
    for name in ("most", "rest"):
        (data_of(mounted, first) / name).unlink(missing_ok=True)
    assert take(mounted, first, "again", 1000) == "", "what is deleted is free again"


def test_a_resized_disk_has_its_new_limit_and_a_removed_one_leaves_none(mounted: Path) -> None:
    store = FolderDisks(mounted)
    tree = make(store)
    assert take(mounted, tree, "much", 1500).endswith(REFUSED)
    store.grow(DiskTree(tree.disk_id, tree.kind, 2, TEAM_UID))
    assert take(mounted, tree, "much", 1500) == ""
    store.remove(tree.disk_id)
    assert store.ids() == ()
    assert store.make(tree, None) is True, "its number is free for whoever comes next"
    assert take(mounted, tree, "much", 1000) == ""


def test_what_a_workload_can_do_takes_nothing_out_of_the_limit(mounted: Path) -> None:
    """A workload runs in a user namespace; what it makes, links and moves stays counted."""
    store = FolderDisks(mounted)
    tree = make(store)
    data = data_of(mounted, tree)
    assert take(mounted, tree, "most", 1000) == ""
    as_workload = ("unshare", "--user", "--map-root-user")
    for command, said in (
        (("chattr", "-p", "0", "most"), "Invalid argument"),
        (("chattr", "-P", "."), "Invalid argument"),
        (("mkdir", "inner"), ""),
    ):
        told = run(*as_workload, *command, user=TEAM_UID, at=data)
        assert (told == "") if said == "" else (said in told), (command, told)
    assert take(mounted, tree, "rest", 100).endswith(REFUSED)
    assert is_limited(data) and is_limited(data / "inner")


def test_a_snapshot_is_not_held_to_the_disks_limit_and_a_disk_made_of_it_is(mounted: Path) -> None:
    store = FolderDisks(mounted)
    tree = make(store)
    assert take(mounted, tree, "some", 600) == ""
    store.take_snapshot(tree, "s1")
    assert not is_limited(mounted / "snapshots" / tree.disk_id / "s1" / "data")
    assert take(mounted, tree, "more", 400) == ""
    other = DiskTree(str(uuid.uuid4()), tree.kind, 1, TEAM_UID)
    assert store.make(other, (tree.disk_id, "s1")) is True
    assert take(mounted, other, "rest", 1100).endswith(REFUSED)


def test_elsewhere_disks_are_counted_and_the_reason_is_told(tmp_path: Path) -> None:
    why = refusal(tmp_path)
    store = FolderDisks(tmp_path)
    tree = DiskTree(str(uuid.uuid4()), DiskKind.SHARED, 1)
    assert store.make(tree, None) is (why == "")
    assert is_limited(tmp_path / "disks" / tree.disk_id) is (why == "")
    store.grow(DiskTree(tree.disk_id, tree.kind, 2))
    store.remove(tree.disk_id)
    assert store.ids() == ()
    if os.geteuid() != 0:
        assert "root" in why
