"""Packed folders from outside: read with distrust, unpacked where nothing in them can reach elsewhere.

Refused: names that are absolute or climb, names twice, links that leave the folder (or might, through
another link), hard links, devices, pipes, sparse files, too many entries, too many bytes once unpacked.
The bytes read are metered, so that no header or member makes the reader take more than it declared.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from starverse.domain.errors import FieldFault, Invalid, TooLarge

ENTRIES_MAX = 100_000
DEPTH_MAX = 100
"""Folders within folders; file systems and tools that walk them have limits of their own not far above."""
PATH_BYTES_MAX = 2048
"""Of one path within the folder: with the platform's own part before it, no system call refuses it."""
_HEADER_BYTES_MAX = 1024**2
_SLACK_BYTES = 64 * 1024
_PIECE_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """How much an archive may hold once unpacked; ``require_room`` raises where there is no room for so
    many more bytes."""

    bytes_max: int
    entries_max: int = ENTRIES_MAX
    require_room: Callable[[int], None] = lambda _bytes: None


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive holds."""

    entries: int
    bytes: int


def check_archive(file: BinaryIO, limits: UnpackLimits) -> Contents:
    """Read a gzipped tar whole, writing nothing. Raises :class:`Invalid` or :class:`TooLarge`."""
    entries = size = 0
    for member, content in _members(file, limits):
        entries += 1
        size += member.size
        for _ in content:
            pass
    return Contents(entries, size)


def unpack_archive(file: BinaryIO, target: Path, limits: UnpackLimits, owner: int | None = None) -> None:
    """Unpack into ``target``, an empty folder that nobody else reaches yet.

    Links are made last, so that nothing is ever written through one. ``owner``: the Unix user (and group)
    that everything belongs to; ``None``: oneself.
    """
    links: list[tuple[Path, str]] = []
    for member, content in _members(file, limits):
        place = target / member.name
        if member.isdir():
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
        elif member.issym():
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            links.append((place, member.linkname))
        else:
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            limits.require_room(member.size)
            _write_file(place, 0o755 if member.mode & 0o100 else 0o644, content)
    for place, linked in links:
        place.symlink_to(linked)
    if owner is not None:
        give_to(target, owner)


def give_to(folder: Path, owner: int) -> None:
    """Make a Unix user the owner of a folder and all below it, following no link."""
    os.chown(folder, owner, owner, follow_symlinks=False)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(parent, name), owner, owner, follow_symlinks=False)  # noqa: PTH118


def _write_file(place: Path, mode: int, content: Iterator[bytes]) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        for piece in content:
            file.write(piece)


class _Metered(io.RawIOBase):
    """Decompressed bytes, as long as there is an allowance for them."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._left = 0

    def allow(self, count: int) -> None:
        self._left = count + _SLACK_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _not_sound("a header of more than 1 MiB", "an archive made by `starverse submit`")
        return data


def _members(file: BinaryIO, limits: UnpackLimits) -> Iterator[tuple[tarfile.TarInfo, Iterator[bytes]]]:
    """Each sound member with its content, which is read to its end before the next one."""
    seen: dict[str, str] = {}
    left = limits.bytes_max
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as unzipped:
            metered = _Metered(unzipped)  # type: ignore[arg-type]
            metered.allow(_HEADER_BYTES_MAX)
            with tarfile.open(fileobj=metered, mode="r|") as archive:
                while (member := archive.next()) is not None:
                    member.name = _sound_name(member, seen)
                    left -= member.size
                    if left < 0 or len(seen) > limits.entries_max:
                        raise TooLarge(
                            f"Unpacked, the folder has more than {limits.bytes_max // 1024**2} MiB or "
                            f"{limits.entries_max} entries."
                        )
                    if member.name:
                        metered.allow(member.size)
                        yield member, _content(archive, member)
                    metered.allow(_HEADER_BYTES_MAX)
                    archive.members.clear()  # type: ignore[attr-defined]
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, OverflowError) as error:
        raise _not_sound(str(error)[:80] or type(error).__name__, "a gzipped tar archive") from error


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    source = archive.extractfile(member) if member.isreg() else None
    while source is not None and (piece := source.read(_PIECE_BYTES)):
        yield piece


def _sound_name(member: tarfile.TarInfo, seen: dict[str, str]) -> str:
    """The member's normal name, ``""`` for the folder itself; raises :class:`Invalid`."""
    name = posixpath.normpath(member.name)
    parts = name.split("/")
    shown = ascii(member.name)[1:-1][:200]
    if (
        member.name.startswith("/")
        or ".." in member.name.split("/")
        or "\0" in member.name
        or any(len(os.fsencode(part)) > 255 for part in parts)
    ):
        raise _not_sound(shown, "a name inside the folder")
    if len(parts) > DEPTH_MAX or len(os.fsencode(name)) > PATH_BYTES_MAX:
        expected = f"paths of at most {DEPTH_MAX} levels and {PATH_BYTES_MAX} bytes"
        raise _not_sound(f"{shown} ({len(parts)} levels, {len(os.fsencode(name))} bytes)", expected)
    if member.issparse() or not (member.isreg() or member.isdir() or member.issym()):
        raise _not_sound(shown, "a file, a folder or a link, nothing else")
    if not member.isreg() and member.size:
        raise _not_sound(shown, "content in files only")
    if name == ".":
        return ""
    kind = "folder" if member.isdir() else "link" if member.issym() else "file"
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        if seen.setdefault(parent, "folder") != "folder":
            raise _not_sound(shown, "a name below a folder, not below a file or a link")
    if name in seen and not seen[name] == kind == "folder":
        raise _not_sound(shown, "each name once")
    if kind == "link":
        _check_link(shown, parts, member.linkname)
    seen[name] = kind
    return name


def _check_link(shown: str, parts: list[str], linked: str) -> None:
    """A link stays inside: relative, climbing only at its beginning, not above the folder."""
    steps = linked.split("/")
    climbs = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    if not linked or linked.startswith("/") or ".." in steps[climbs:] or climbs > len(parts) - 1:
        raise _not_sound(f"{shown} -> {ascii(linked)[1:-1][:200]}", "a link that stays inside the folder")


def _not_sound(value: str, expected: str) -> Invalid:
    return Invalid(faults=[FieldFault("folder", value, expected)])
