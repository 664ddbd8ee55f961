"""Disks as trees in the data folder, which nodes share.

::

    DATA/disks/ID/data/                  a shared disk, owned by its team's user
    DATA/disks/ID/block.img              a block disk: one file with a file system
    DATA/snapshots/ID/SNAPSHOT/          a copy of either, with ``data/`` or ``block.img``

Whatever is made lies aside until it is whole (``.new-...``), then gets its name by one rename; whatever is
removed loses its name first (``.old-...``). So a server that dies leaves a disk, or none.

Where project quotas are enforced, the folder ``ID`` of a shared disk is a project: its size is hard.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from starverse.checkpoint.removing import remove_tree
from starverse.domain.disk_kind import DiskKind
from starverse.domain.ids import is_uuid
from starverse.engines.base import DiskTree, DiskUse, EngineUnavailable, StorageFailed
from starverse.node.disk_files import (
    GIB,
    InUse,
    copy_block_file,
    grow_block_file,
    make_block_file,
    require_room,
    written_bytes,
)
from starverse.node.disk_trees import TreeFault, Unfinished, copy_tree, measure
from starverse.node.project_quotas import change_limit, is_limited, limit_tree

SHARED, BLOCK = "data", "block.img"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FolderDisks:
    """The disks of one data folder; ``reserve_bytes`` of its storage stay free of block disks."""

    def __init__(self, data: Path, reserve_bytes: int = 0) -> None:
        self.reserve_bytes = reserve_bytes
        self._disks = data / "disks"
        self._snapshots = data / "snapshots"

    def make(self, tree: DiskTree, snapshot: tuple[str, str] | None) -> bool:
        place = self._disks / tree.disk_id
        with _in_our_words():
            if not place.is_dir():
                source = None if snapshot is None else self._snapshots / snapshot[0] / snapshot[1]
                _whole(place, lambda aside: self._fill(aside, tree, source))
            return tree.kind is DiskKind.BLOCK or is_limited(place)

    def grow(self, tree: DiskTree) -> None:
        """A shared disk without a limit has no size of its own: what it may hold is counted."""
        place = self._disks / tree.disk_id
        with _in_our_words():
            if tree.kind is DiskKind.BLOCK:
                grow_block_file(place / BLOCK, tree.gib, self.reserve_bytes)
            else:
                change_limit(place, tree.gib * GIB)

    def take_snapshot(self, tree: DiskTree, snapshot_id: str) -> int:
        place = self._snapshots / tree.disk_id / snapshot_id
        with _in_our_words():
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not place.is_dir():  # else it was made before, and not recorded
                _whole(place, lambda aside: _copy(self._disks / tree.disk_id, aside, tree.kind))
            return measure(place).bytes

    def remove_snapshot(self, disk_id: str, snapshot_id: str) -> None:
        with _in_our_words():
            _remove(self._snapshots / disk_id / snapshot_id)

    def remove(self, disk_id: str) -> None:
        with _in_our_words():
            _remove(self._snapshots / disk_id)
            with contextlib.suppress(FileNotFoundError):
                change_limit(self._disks / disk_id, 0)
            _remove(self._disks / disk_id)

    def measure(self, tree: DiskTree, seconds_max: float) -> DiskUse | None:
        until = time.monotonic() + seconds_max
        place = self._disks / tree.disk_id
        with _in_our_words():
            if tree.kind is DiskKind.BLOCK:
                return DiskUse(written_bytes(place / BLOCK), None)
            try:
                found = measure(place / SHARED, lambda: time.monotonic() < until)
            except Unfinished:
                return None
            return DiskUse(found.bytes, found.files)

    def ids(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in self._disks.iterdir() if is_uuid(entry.name)))
        except FileNotFoundError:
            return ()

    def _fill(self, aside: Path, tree: DiskTree, source: Path | None) -> None:
        if tree.kind is DiskKind.SHARED:
            limit_tree(aside, tree.disk_id, tree.gib * GIB)
        if source is not None:
            if not source.is_dir():
                raise StorageFailed("the snapshot is not there any more")
            if tree.kind is DiskKind.BLOCK:
                require_room(aside, tree.gib, self.reserve_bytes)
            _copy(source, aside, tree.kind)
            if tree.kind is DiskKind.BLOCK:
                grow_block_file(aside / BLOCK, tree.gib, self.reserve_bytes)
        elif tree.kind is DiskKind.SHARED:
            (aside / SHARED).mkdir(mode=0o755)
        else:
            owner = tree.unix_uid or 0  # without root it is served in a namespace where our user is 0
            make_block_file(aside / BLOCK, tree.gib, owner, self.reserve_bytes)
        if tree.unix_uid is not None:
            inner = aside / (SHARED if tree.kind is DiskKind.SHARED else BLOCK)
            os.chown(inner, tree.unix_uid, tree.unix_uid, follow_symlinks=False)


def _copy(source: Path, target: Path, kind: DiskKind) -> None:
    if kind is DiskKind.SHARED:
        copy_tree(source / SHARED, target / SHARED)
    else:
        copy_block_file(source / BLOCK, target / BLOCK)


def _whole(place: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder whole or not at all; of two that make it at once, one does."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    aside = place.with_name(f".new-{place.name}-{secrets.token_hex(4)}")
    aside.mkdir(mode=0o711)
    try:
        fill(aside)
        _flush(aside)
        try:
            aside.rename(place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        _flush(place.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            if aside.is_dir():
                remove_tree(aside)


def _remove(place: Path) -> None:
    aside = place.with_name(f".old-{place.name}-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        place.rename(aside)
        remove_tree(aside)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except TreeFault as error:
        raise StorageFailed(str(error)) from error
    except InUse as error:
        raise EngineUnavailable(f"the storage of disks: {error}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFailed("the platform's storage is full") from error
        raise EngineUnavailable(f"the storage of disks: {error.strerror}") from error
