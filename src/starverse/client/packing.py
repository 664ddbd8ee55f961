"""Packing the folder a job is submitted from: the same folder gives the same bytes; a repeat costs nothing.

The archive is a gzipped PAX tar: entries in the order of their names' bytes, owner 0, one fixed time, mode
0755 or 0644 by the owner's execute bit. Its id is the SHA-256 of its bytes. What cannot arrive as it is here
(a link that leaves the folder, a socket, an unreadable file) is refused by name before anything is sent.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from starverse.client.errors import ClientError, Fault, Refused
from starverse.client.ignore_file import IGNORE_FILE_NAME, IgnoreRules

ENTRY_SECONDS = 946_684_800
"""Every entry's time, 2000-01-01 UTC: late enough for zip archives made in the job."""
_BIGGEST_SHOWN = 5
_FAULTS_SHOWN = 10
_PATH_SHOWN = 80
_PIECE_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class PackedFolder:
    """``file`` is an open temporary file that holds the archive; it is gone when it is closed."""

    folder_id: str
    file: BinaryIO
    archive_bytes: int
    entries: int
    files_bytes: int

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """What a server takes in. ``files_bytes`` is of the files themselves, before they are packed.

    The values here are a server's usual ones; a server that allows more files' bytes says so
    (``Jobs.limits``), one that allows less refuses what is over.
    """

    files_bytes: int = 100 * 1024**2
    depth: int = 100
    path_bytes: int = 2048


@dataclass(slots=True)
class _Found:
    """One entry; ``path`` is relative to the folder, with ``/``."""

    path: str
    status: os.stat_result
    link: str | None = None


@dataclass(slots=True)
class _Walk:
    root: Path
    rules: IgnoreRules
    limits: FolderLimits
    faults: list[Fault] = field(default_factory=list)


def pack_folder(folder: Path, limits: Callable[[], FolderLimits] = FolderLimits) -> PackedFolder:
    """Pack ``folder``; raises :class:`ClientError` that names what does not fit or cannot be packed.

    ``limits`` asks the server for its limits; it is called only where the usual ones do not do.
    """
    root = folder.resolve()
    walk = _Walk(root, _ignore_rules(root), FolderLimits())
    found = sorted(_entries(walk, ""), key=lambda entry: os.fsencode(entry.path))
    if walk.faults:
        raise ClientError(
            "invalid",
            "the folder cannot be packed: " + _faults_text(walk.faults),
            hint=f"leave these out with a line in {IGNORE_FILE_NAME}, or submit from another folder",
            faults=tuple(walk.faults),
        )
    files_bytes = sum(_file_bytes(entry) for entry in found)
    if files_bytes > walk.limits.files_bytes and files_bytes > (bytes_max := limits().files_bytes):
        raise _too_large(root, found, files_bytes, bytes_max)
    file = cast(BinaryIO, tempfile.TemporaryFile(prefix="starverse-folder-"))  # noqa: SIM115 (handed on)
    try:
        folder_id = _write(root, found, file)
        return PackedFolder(folder_id, file, file.seek(0, os.SEEK_END), len(found), files_bytes)
    except BaseException:
        file.close()
        raise


def _faults_text(faults: list[Fault]) -> str:
    more = len(faults) - _FAULTS_SHOWN
    return "; ".join(map(str, faults[:_FAULTS_SHOWN])) + (f"; and {more} more" if more > 0 else "")


def _ignore_rules(root: Path) -> IgnoreRules:
    try:
        return IgnoreRules((root / IGNORE_FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return IgnoreRules()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("invalid", f"{IGNORE_FILE_NAME} cannot be read: {error}") from error


def _entries(walk: _Walk, below: str) -> Iterator[_Found]:
    try:
        listing = list(os.scandir(walk.root / below))
    except OSError as error:
        walk.faults.append(Fault(below or ".", error.strerror or "unreadable", "a folder that can be read"))
        return
    for entry in listing:
        path = f"{below}/{entry.name}" if below else entry.name
        status = entry.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if walk.rules.ignores(path, is_folder=is_folder) or not _fits(walk, path):
            continue
        if is_folder:
            yield _Found(path, status)
            yield from _entries(walk, path)
        elif stat.S_ISLNK(status.st_mode):
            link = _link_inside(walk, path)
            if link is not None:
                yield _Found(path, status, link)
        elif not stat.S_ISREG(status.st_mode):
            walk.faults.append(Fault(path, _special_kind(status.st_mode), "a file, a folder or a link"))
        elif not os.access(walk.root / path, os.R_OK):
            walk.faults.append(Fault(path, "unreadable", "a file that can be read"))
        else:
            yield _Found(path, status)


def _fits(walk: _Walk, path: str) -> bool:
    levels, size = path.count("/") + 1, len(os.fsencode(path))
    if levels <= walk.limits.depth and size <= walk.limits.path_bytes:
        return True
    expected = f"a path of at most {walk.limits.depth} levels and {walk.limits.path_bytes} bytes"
    walk.faults.append(Fault(f"{path[:_PATH_SHOWN]}...", f"{levels} levels, {size} bytes", expected))
    return False


def _link_inside(walk: _Walk, path: str) -> str | None:
    """The link's target as a relative path, or ``None`` and a fault when it leaves the folder."""
    target = (walk.root / path).readlink()
    place = (walk.root / path).parent
    reached = Path(os.path.normpath(place / target))
    real = Path(os.path.realpath(walk.root / path))
    if not (reached.is_relative_to(walk.root) and real.is_relative_to(walk.root)):
        walk.faults.append(Fault(path, f"link to {target}", "a link that stays inside the folder"))
        return None
    return os.path.relpath(reached, place) if target.is_absolute() else str(target)


def _special_kind(mode: int) -> str:
    kinds = ((stat.S_ISSOCK, "socket"), (stat.S_ISFIFO, "named pipe"))
    return next((name for test, name in kinds if test(mode)), "device")


def _file_bytes(entry: _Found) -> int:
    return entry.status.st_size if stat.S_ISREG(entry.status.st_mode) else 0


def _write(root: Path, found: list[_Found], file: BinaryIO) -> str:
    """Write the archive to ``file`` and give its id."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in found:
            _add(archive, root, entry)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def _add(archive: tarfile.TarFile, root: Path, entry: _Found) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mtime = ENTRY_SECONDS
    executable = bool(entry.status.st_mode & stat.S_IXUSR)
    member.mode = 0o755 if executable else 0o644
    if stat.S_ISDIR(entry.status.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(member)
    elif entry.link is not None:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.link, 0o777
        archive.addfile(member)
    else:
        member.size = entry.status.st_size
        try:
            with (root / entry.path).open("rb") as content:
                archive.addfile(member, content)
        except OSError as error:
            raise Refused(
                "conflict",
                f"{entry.path} changed or vanished while it was packed: {error}",
                hint=f"submit again when nothing writes there, or leave it out with {IGNORE_FILE_NAME}",
            ) from error


def _too_large(root: Path, found: list[_Found], files_bytes: int, bytes_max: int) -> Refused:
    totals: dict[str, int] = {}
    biggest: dict[str, _Found] = {}
    for entry in found:
        top = entry.path.partition("/")[0]
        totals[top] = totals.get(top, 0) + _file_bytes(entry)
        if top not in biggest or _file_bytes(entry) > _file_bytes(biggest[top]):
            biggest[top] = entry
    shown = []
    for top in sorted(totals, key=lambda name: (-totals[name], name))[:_BIGGEST_SHOWN]:
        inside = biggest[top]
        note = "" if inside.path == top else f" (in it {inside.path} {size_text(_file_bytes(inside))})"
        shown.append(f"{top}{'/' if note else ''} {size_text(totals[top])}{note}")
    return Refused(
        "too_large",
        f"{root} holds {size_text(files_bytes)}; a job's folder may hold {size_text(bytes_max)}. "
        f"Biggest: {', '.join(shown)}",
        hint=f"leave data out with lines in {IGNORE_FILE_NAME}, or use a dataset of the shelf",
    )


def size_text(count: int) -> str:
    """Bytes for people: ``812 B``, ``1.5 KiB``, ``3.0 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
