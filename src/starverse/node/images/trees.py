"""Reading a tree entry by entry, and making it one that nobody changes any more."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from starverse.domain.catalog.image_trees import Entry, EntryKind

PIECE_BYTES = 4 * 1024**2


class OddEntry(Exception):
    """Neither a file, a folder nor a link; the text is its path."""


class LargeEntry(Exception):
    """The file with which a tree is larger than was allowed; the text is its path."""


def scan(root: Path, bytes_max: int | None = None) -> tuple[Entry, ...]:
    """Every file and link below ``root``, hashed, no link followed; raises :class:`OddEntry`, and
    :class:`LargeEntry` before what is over ``bytes_max`` is read: a hole is read for as long as bytes."""
    return tuple(_scan(root, bytes_max))


def _scan(root: Path, bytes_max: int | None) -> Iterator[Entry]:
    waiting, seen = [""], 0
    while waiting:
        here = waiting.pop()
        with os.scandir(root / here) as found:
            for item in sorted(found, key=lambda item: item.name):
                path = f"{here}/{item.name}" if here else item.name
                status = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
                elif stat.S_ISLNK(status.st_mode):
                    target = os.fsencode(os.readlink(item.path))  # noqa: PTH115
                    yield Entry(path, EntryKind.LINK, len(target), hashlib.sha256(target).hexdigest())
                elif stat.S_ISREG(status.st_mode):
                    seen += status.st_size
                    if bytes_max is not None and seen > bytes_max:
                        raise LargeEntry(ascii(path))
                    kind = EntryKind.PROGRAM if status.st_mode & 0o111 else EntryKind.FILE
                    size, digest = hash_file(item.path)
                    yield Entry(path, kind, size, digest)
                else:
                    raise OddEntry(ascii(path))


def hash_file(path: str) -> tuple[int, str]:
    """Bytes and SHA-256 of a file, which is no link."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def freeze(root: Path) -> None:
    """Readable by all, writable by nobody, and the platform's own; the top itself may still be moved."""
    root_owns = os.geteuid() == 0
    for parent, folders, names in os.walk(root, topdown=False):
        for name in (*folders, *names):
            path = Path(parent, name)
            status = path.lstat()
            if root_owns:
                os.chown(path, 0, 0, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                path.chmod(0o555 if status.st_mode & 0o111 or stat.S_ISDIR(status.st_mode) else 0o444)
    if root_owns:
        os.chown(root, 0, 0)
