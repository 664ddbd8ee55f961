"""The storage of disks without files: what is there, in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starverse.domain.disk_kind import DiskKind
from starverse.engines.base import DiskTree, DiskUse, StorageFailed


@dataclass(slots=True)
class FakeDisk:
    """``content`` stands for all bytes of it; ``snapshots`` are what they were."""

    tree: DiskTree
    content: str = ""
    used_bytes: int = 0
    snapshots: dict[str, str] = field(default_factory=dict)


class FakeDisks:
    """``before`` is told each call's name and may raise; ``fails`` names calls that will not do, and why.

    ``trees`` is what there is, by disk id: for tests to look at, and to write ``content`` and ``used_bytes``.
    """

    def __init__(self, before: Callable[[str], object] = lambda _call: None) -> None:
        self.trees: dict[str, FakeDisk] = {}
        self.fails: dict[str, str] = {}
        self._before = before

    def make(self, tree: DiskTree, snapshot: tuple[str, str] | None) -> bool:
        self._begin("make")
        if tree.disk_id not in self.trees:
            content = "" if snapshot is None else self._snapshot(*snapshot)
            self.trees[tree.disk_id] = FakeDisk(tree, content)
        return tree.kind is DiskKind.BLOCK

    def grow(self, tree: DiskTree) -> None:
        self._begin("grow")
        self._there(tree.disk_id).tree = tree

    def take_snapshot(self, tree: DiskTree, snapshot_id: str) -> int:
        self._begin("take_snapshot")
        disk = self._there(tree.disk_id)
        disk.snapshots.setdefault(snapshot_id, disk.content)
        return len(disk.content)

    def remove_snapshot(self, disk_id: str, snapshot_id: str) -> None:
        self._begin("remove_snapshot")
        if disk_id in self.trees:
            self.trees[disk_id].snapshots.pop(snapshot_id, None)

    def remove(self, disk_id: str) -> None:
        self._begin("remove")
        self.trees.pop(disk_id, None)

    def measure(self, tree: DiskTree, seconds_max: float) -> DiskUse | None:
        self._begin("measure")
        return DiskUse(self._there(tree.disk_id).used_bytes, 0 if tree.kind is DiskKind.SHARED else None)

    def ids(self) -> tuple[str, ...]:
        self._begin("ids")
        return tuple(sorted(self.trees))

    def _begin(self, call: str) -> None:
        self._before(call)
        if call in self.fails:
            raise StorageFailed(self.fails[call])

    def _there(self, disk_id: str) -> FakeDisk:
        if disk_id not in self.trees:
            raise StorageFailed(f"there is no disk {disk_id}")
        return self.trees[disk_id]

    def _snapshot(self, disk_id: str, snapshot_id: str) -> str:
        try:
            return self.trees[disk_id].snapshots[snapshot_id]
        except KeyError as missing:
            raise StorageFailed("the snapshot is not there any more") from missing
