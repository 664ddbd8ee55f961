"""Unpacking a tar archive of a job's folder, so that nothing in it can reach outside the target folder.

The standard library's own filters are newer than Python 3.11.0; these are the same rules: no absolute or
climbing names, no links that leave, no devices, no owners.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starverse.client.errors import Refused


class _Pieces(io.RawIOBase):
    """Pieces of bytes as one readable stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


@dataclass(frozen=True, slots=True)
class Unpacked:
    """How many files were written, and the links that were left out because they lead elsewhere."""

    files: int
    left_out: tuple[str, ...]


def unpack_folder(pieces: Iterator[bytes], target: Path) -> Unpacked:
    """Unpack into ``target``, made when it is not there.

    Raises :class:`Refused` at the first member whose name would leave ``target``; what came before it stays.
    """
    target.mkdir(parents=True, exist_ok=True)
    root = Path(os.path.realpath(target))
    files, left_out = 0, []
    with tarfile.open(fileobj=io.BufferedReader(_Pieces(pieces)), mode="r|") as archive:
        for member in archive:
            place = _place(root, member.name)
            if place == root:
                continue
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            elif member.isfile():
                files += 1
                _write_file(archive, member, place)
            elif member.issym():
                if not _write_link(root, member, place):
                    left_out.append(member.name)
            else:
                raise Refused("invalid", f"{member.name!r} in the archive is neither file, folder nor link")
    return Unpacked(files, tuple(left_out))


def _place(root: Path, name: str) -> Path:
    place = Path(os.path.normpath(root / name))
    parent = Path(os.path.realpath(place.parent))
    inside = place.is_relative_to(root) and (place == root or parent.is_relative_to(root))
    if name.startswith("/") or not inside:
        raise Refused("invalid", f"{name!r} in the archive would be written outside {root}")
    return place


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    content = archive.extractfile(member)
    with place.open("wb") as file:
        if content is not None:
            shutil.copyfileobj(content, file)
    place.chmod(0o755 if member.mode & 0o100 else 0o644)


def _write_link(root: Path, member: tarfile.TarInfo, place: Path) -> bool:
    """Whether it was written: one that leaves the folder is not."""
    reached = Path(os.path.realpath(place.parent / member.linkname))
    if Path(member.linkname).is_absolute() or not reached.is_relative_to(root):
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or place.is_file():
        place.unlink()
    place.symlink_to(member.linkname)
    return True
