"""One suite that every store of disks passes: the folders that engines share, and the fake one in memory."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from starverse.domain.disk_kind import DiskKind
from starverse.engines.base import DiskStore, DiskTree, StorageFailed
from starverse.engines.fake.disks import FakeDisks
from starverse.engines.folders.disks import FolderDisks
from starverse.node.project_quotas import refusal

MAKERS: dict[str, Callable[[Path], DiskStore]] = {
    "fake": lambda _folder: FakeDisks(),
    "folders": FolderDisks,
}


@pytest.fixture(params=sorted(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DiskStore:
    return MAKERS[request.param](tmp_path)


@pytest.fixture(params=list(DiskKind))
def tree(request: pytest.FixtureRequest) -> DiskTree:
    if request.param is DiskKind.BLOCK and shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None:
        pytest.skip("mkfs.ext4 is missing")
    return DiskTree(str(uuid.uuid4()), request.param, 1)


def test_a_disk_is_made_once_and_is_hard_where_it_can_be(
    store: DiskStore, tree: DiskTree, tmp_path: Path
) -> None:
    with_quotas = isinstance(store, FolderDisks) and refusal(tmp_path) == ""
    assert store.ids() == ()
    assert store.make(tree, None) is (tree.kind is DiskKind.BLOCK or with_quotas)
    assert store.make(tree, None) is (tree.kind is DiskKind.BLOCK or with_quotas)
    assert store.ids() == (tree.disk_id,)


def test_it_grows_and_a_repeat_does_nothing(store: DiskStore, tree: DiskTree) -> None:
    store.make(tree, None)
    for _ in range(2):
        store.grow(DiskTree(tree.disk_id, tree.kind, 2))
    assert store.ids() == (tree.disk_id,)


def test_what_it_holds_is_told(store: DiskStore, tree: DiskTree) -> None:
    store.make(tree, None)
    use = store.measure(tree, 60)
    assert use is not None
    assert use.bytes < 1024**3
    assert (use.files is None) is (tree.kind is DiskKind.BLOCK)


def test_a_snapshot_outlives_changes_and_begins_other_disks(store: DiskStore, tree: DiskTree) -> None:
    store.make(tree, None)
    assert store.take_snapshot(tree, "s1") == store.take_snapshot(tree, "s1")
    other = DiskTree(str(uuid.uuid4()), tree.kind, 1)
    store.make(other, (tree.disk_id, "s1"))
    assert set(store.ids()) == {tree.disk_id, other.disk_id}
    store.remove_snapshot(tree.disk_id, "s1")
    store.remove_snapshot(tree.disk_id, "s1")
    with pytest.raises(StorageFailed):
        store.make(DiskTree(str(uuid.uuid4()), tree.kind, 1), (tree.disk_id, "s1"))
    assert set(store.ids()) == {tree.disk_id, other.disk_id}, "nothing is half made"


def test_a_removed_disk_takes_its_snapshots_along(store: DiskStore, tree: DiskTree) -> None:
    store.make(tree, None)
    store.take_snapshot(tree, "s1")
    store.remove(tree.disk_id)
    store.remove(tree.disk_id)
    assert store.ids() == ()
    with pytest.raises(StorageFailed):
        store.make(DiskTree(str(uuid.uuid4()), tree.kind, 1), (tree.disk_id, "s1"))
