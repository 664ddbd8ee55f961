"""Files of a shared disk, for ``disk cp``: list, read (a folder as a tar), write, remove."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from starverse.app import beneath
from starverse.app.disks.finding import find_disk, require_ready, tree_of
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.views import PAGE_ITEMS_DEFAULT, Page
from starverse.app.workspaces import FileEntry, NewFile, OpenFile, Workspace
from starverse.app.workspaces import list_files as list_entries
from starverse.checkpoint.removing import remove_tree
from starverse.db import disks
from starverse.db.disks import Disk
from starverse.domain.catalog.disks import GIB
from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Conflict, TooLarge


@dataclass(frozen=True, slots=True)
class DiskFiles:
    """A disk whose files may be looked at and changed by whoever asked."""

    disk: Disk
    place: Workspace

    @property
    def bytes_left(self) -> int:
        """What may be added, as far as it was measured."""
        return max(0, self.disk.gib * GIB - (self.disk.used_bytes or 0))


def find_files(platform: Platform, identity: Identity, ref: str) -> DiskFiles:
    """The files of a shared disk of the caller's team. Raises :class:`Conflict` for a block disk, whose file
    system only who has it attached can read."""
    with platform.database.read() as connection:
        disk = find_disk(connection, identity, ref)
        require_ready(disk)
        tree = tree_of(connection, platform, disk)
    if disk.kind is DiskKind.BLOCK:
        raise Conflict(
            f"The disk {disk.name} is a block disk; its files are seen where it is attached.",
            hint="Attach it to an instance and copy there: `starverse cp`.",
        )
    root = platform.paths.disk(disk.id, disk.kind)
    return DiskFiles(disk, Workspace(root, tree.unix_uid, ("data", disk.name)))


def list_files(
    files: DiskFiles, path: str, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[FileEntry]:
    """What is in a folder (of a file: itself), by name, those after ``cursor``."""
    return list_entries(files.place, path, limit, cursor)


def open_file(files: DiskFiles, path: str) -> OpenFile:
    """A file or folder to be read; raises :class:`NotFound`."""
    return OpenFile(files.place, path)


def new_file(platform: Platform, files: DiskFiles, path: str) -> NewFile:
    """A file on its way in, to be told to :func:`count_new`; raises :class:`TooLarge` without room."""
    if files.bytes_left == 0:
        raise TooLarge(
            f"The disk {files.disk.name} is full: {files.disk.gib} GiB.",
            hint="Remove files, or `starverse disk resize` it.",
        )
    return NewFile(platform, files.place, path, files.bytes_left)


def count_new(platform: Platform, files: DiskFiles, size: int) -> None:
    """Count what was written until it is measured again, so that many small writes find the disk full too."""
    with platform.database.write() as connection:
        disks.add_usage(connection, files.disk.id, size)


def remove_file(files: DiskFiles, path: str) -> None:
    """Remove a file, a link, or a folder with all in it; raises :class:`NotFound`."""
    aside = files.place.root.with_name(f".old-{secrets.token_hex(8)}")
    beneath.take_out(files.place.root, path, aside, files.place.seen_as)
    remove_tree(aside)
