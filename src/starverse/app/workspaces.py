"""Files of a job's folder, for ``cp``: list, read (a folder as a tar), write. Never led out of it."""

from __future__ import annotations

import os
import secrets
import stat
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from starverse.app import beneath
from starverse.app import jobs as job_cases
from starverse.app.archives import DEPTH_MAX
from starverse.app.disk_space import require_space
from starverse.app.folders import unpack_workspace
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.views import PAGE_ITEMS_DEFAULT, Page
from starverse.db import folders
from starverse.domain.errors import NotFound, TooLarge

PIECE_BYTES = 1024**2
_BLOCK = tarfile.BLOCKSIZE
_FIRST_SECOND = int(datetime(1, 1, 2, tzinfo=UTC).timestamp())
_LAST_SECOND = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp())
"""A day short of the calendar, so that every time zone can show it."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """``kind`` is file, folder, link or other; ``path`` is relative to the job's folder."""

    path: str
    kind: str
    bytes: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where files are; ``owner`` is the Unix user that new ones belong to, ``seen_as`` the path under which
    workloads see them."""

    root: Path
    owner: int | None
    seen_as: tuple[str, ...] = beneath.SEEN_AS


class OpenFile:
    """A file or folder opened for reading; close it, or use it in ``with``."""

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._stack = ExitStack()
        self._descriptor = self._stack.enter_context(
            beneath.open_entry(workspace.root, path, workspace.seen_as)
        )
        status = os.fstat(self._descriptor)
        self.is_folder = stat.S_ISDIR(status.st_mode)
        self.bytes = status.st_size
        self.name = (beneath.clean_parts(path) or ["folder"])[-1]
        if self.is_folder:
            try:
                _require_packable(self._descriptor, "")
            except BaseException:
                self._stack.close()
                raise

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes ``[start, end)`` of a file; closes it at the end."""
        with self:
            at, stop = start, self.bytes if end is None else end
            while at < stop and (piece := os.pread(self._descriptor, min(PIECE_BYTES, stop - at), at)):
                yield piece
                at += len(piece)

    def tar(self) -> Iterator[bytes]:
        """A folder and all below it as an uncompressed tar; links as links. Closes it at the end."""
        with self:
            yield from _tar_folder(self._descriptor, "")
            yield b"\0" * (2 * _BLOCK)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_workspace(platform: Platform, identity: Identity, ref: str) -> Workspace:
    """The folder of a job of the caller's team; it is unpacked when nothing was started in it yet."""
    with platform.database.read() as connection:
        job = job_cases.find_jobs(connection, identity, ref)[0]
        found = folders.get_workspace(connection, job.workspace_id)
    if found is None or found.removed_at is not None:
        days = platform.settings.workspace_keep_days
        raise NotFound(f"The folder of job {job.display_number} is gone; folders are kept {days} days.")
    unpack_workspace(platform, found)
    owner = found.unix_uid if os.geteuid() == 0 else None
    return Workspace(platform.paths.workspace(found.id), owner)


def list_files(
    workspace: Workspace, path: str, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[FileEntry]:
    """What is in a folder (of a file: itself), by name, those after ``cursor``."""
    normal = "/".join(beneath.clean_parts(path))
    with beneath.open_entry(workspace.root, normal, workspace.seen_as) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            own = beneath.Entry(normal, "file", status.st_size, status.st_mtime)
            return Page((file_entry(own),))
        shown = sorted(map(file_entry, beneath.list_entries(descriptor, normal)), key=lambda own: own.path)
    found = [entry for entry in shown if cursor is None or entry.path > cursor]
    items = tuple(found[:limit])
    return Page(items, items[-1].path if len(found) > limit else None)


class NewFile:
    """A file on its way in, capped like a submit folder, or to ``bytes_max``."""

    def __init__(
        self, platform: Platform, workspace: Workspace, path: str, bytes_max: int | None = None
    ) -> None:
        require_space(platform, 0)
        self._cap = platform.settings.folder_bytes_max if bytes_max is None else bytes_max
        self._hint = "use a dataset or a disk" if bytes_max is None else "that is all there is room for"
        self._platform = platform
        self._stack = ExitStack()
        aside = workspace.root.with_name(f".incoming-{secrets.token_hex(8)}")
        incoming = beneath.new_file(workspace.root, path, workspace.owner, aside)
        self._descriptor = self._stack.enter_context(incoming)
        self._bytes = 0

    def write(self, piece: bytes) -> None:
        """Take in more; raises :class:`TooLarge` over the cap."""
        self._bytes += len(piece)
        if self._bytes > self._cap:
            raise TooLarge(f"The file is over {self._cap // 1024**2} MiB; {self._hint}.")
        require_space(self._platform, len(piece))
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    @property
    def bytes(self) -> int:
        """What came so far."""
        return self._bytes

    def finish(self) -> None:
        """Put it in its place."""
        self._stack.close()

    def abandon(self, error: BaseException) -> None:
        """Drop what came."""
        self._stack.__exit__(type(error), error, error.__traceback__)


def _require_packable(folder: int, prefix: str) -> None:
    """Before the first byte, which says that all went well: raises :class:`Conflict` for what may not be
    read (without it a copy would look whole), :class:`TooLarge` for too many levels."""
    looked_at = ("folder",) if os.geteuid() == 0 else ("file", "folder")
    for entry in beneath.list_entries(folder, prefix):
        if entry.kind not in looked_at:
            continue
        if entry.kind == "folder" and entry.path.count("/") >= DEPTH_MAX:
            raise _too_deep()
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            opened = os.open(entry.path.rpartition("/")[2], flags, dir_fd=folder)
        except PermissionError as error:
            raise beneath.others_own(entry.path) from error
        except OSError:
            continue  # gone, or replaced, meanwhile
        try:
            if stat.S_ISDIR(os.fstat(opened).st_mode):
                _require_packable(opened, entry.path)
        finally:
            os.close(opened)


def _too_deep() -> TooLarge:
    return TooLarge(f"The folder has more than {DEPTH_MAX} levels; copy a folder further down.")


def _tar_folder(descriptor: int, prefix: str) -> Iterator[bytes]:
    for entry in beneath.list_entries(descriptor, prefix):
        name = entry.path.rpartition("/")[2]
        info = tarfile.TarInfo(entry.path)
        info.mtime = int(entry.modified_seconds)
        if entry.kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=descriptor)
            yield info.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        elif entry.kind in ("file", "folder"):
            yield from _tar_opened(descriptor, name, info)


def _tar_opened(folder: int, name: str, info: tarfile.TarInfo) -> Iterator[bytes]:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return  # gone, or replaced, meanwhile
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            if info.name.count("/") >= DEPTH_MAX:
                raise _too_deep()  # it was not when it was opened
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            yield info.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
            yield from _tar_folder(descriptor, info.name)
        elif stat.S_ISREG(status.st_mode):
            info.size, info.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
            yield info.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
            yield from _exactly(descriptor, info.size)
    finally:
        os.close(descriptor)


def _exactly(descriptor: int, size: int) -> Iterator[bytes]:
    """``size`` bytes of a file and the padding of its block; zeros for what was cut off meanwhile."""
    at = 0
    while at < size:
        piece = os.pread(descriptor, min(PIECE_BYTES, size - at), at) or b"\0" * min(PIECE_BYTES, size - at)
        yield piece
        at += len(piece)
    yield b"\0" * (-size % _BLOCK)


def file_entry(entry: beneath.Entry) -> FileEntry:
    """What can be shown of a file, whatever its owner made of its name and time.

    A name that is not UTF-8 has its other bytes as ``\\xNN``; a time beyond the calendar is its last day.
    """
    path = os.fsencode(entry.path).decode("utf-8", "backslashreplace")
    seconds = min(max(int(entry.modified_seconds), _FIRST_SECOND), _LAST_SECOND)
    return FileEntry(path, entry.kind, entry.bytes, datetime.fromtimestamp(seconds, UTC))
