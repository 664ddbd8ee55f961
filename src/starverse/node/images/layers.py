"""Copying folders that a team's workloads filled into an image, and out of it: nothing in them is trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from starverse.checkpoint.beneath import open_beneath
from starverse.node.disk_trees import data_spans
from starverse.node.images.sandbox import BuildFailed

LEFT_OUT = frozenset({"./.cache"})
"""What programs fetch again by themselves."""
PIECE_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class CopyRules:
    """``private``: the copy is its owner's alone, who may write it; else all may read it. ``owner`` ``None``:
    one's own. ``obstacle`` says what stands against going on."""

    private: bool = False
    owner: int | None = None
    bytes_max: int | None = None
    obstacle: Callable[[], str] = lambda: ""

    def mode(self, program: bool) -> int:
        return (0o700 if program else 0o600) if self.private else (0o755 if program else 0o644)


def copy_layer(source: Path, target: Path, rules: CopyRules) -> None:
    """Copy files, folders and links, following none; sockets and pipes are passed over.

    Raises :class:`BuildFailed` when it is too large or an obstacle comes up.
    """
    waiting, copied = ["."], 0
    while waiting:
        here = waiting.pop()
        (target / here).mkdir(mode=rules.mode(program=True))
        with (
            open_beneath(source, here, os.O_RDONLY | os.O_DIRECTORY) as opened,
            os.scandir(opened.number) as found,
        ):
            for entry in found:
                path = f"{here}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting += [path] if path not in LEFT_OUT else []
                else:
                    _check(copied + _size_of(entry), rules, path)
                    copied += _copy(opened.number, entry, target / path, rules)
                    _check(copied, rules, path)
        _give(target / here, rules)


def _copy(folder: int, entry: os.DirEntry[str], place: Path, rules: CopyRules) -> int:
    """One file or link; its bytes."""
    mode, size = entry.stat(follow_symlinks=False).st_mode, 0
    if stat.S_ISLNK(mode):
        place.symlink_to(os.readlink(entry.name, dir_fd=folder))
    elif stat.S_ISREG(mode):
        handle = os.open(
            entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
        with os.fdopen(handle, "rb"), place.open("xb") as writer:
            size = _copy_data(handle, writer, rules, entry.name)
        place.chmod(rules.mode(program=bool(mode & stat.S_IXUSR)))
    else:
        return 0
    _give(place, rules)
    return size


def _copy_data(source: int, writer: BinaryIO, rules: CopyRules, name: str) -> int:
    """What an open file holds, its holes as holes; its bytes with them."""
    size = os.fstat(source).st_size
    for start, end in data_spans(source):
        at = start
        while at < end and (piece := os.pread(source, min(PIECE_BYTES, end - at), at)):
            writer.seek(at)
            at += writer.write(piece)
            _check(at, rules, name)
    writer.truncate(size)
    return size


def _size_of(entry: os.DirEntry[str]) -> int:
    return entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0


def _give(place: Path, rules: CopyRules) -> None:
    if rules.owner is not None:
        os.chown(place, rules.owner, rules.owner, follow_symlinks=False)


def _check(copied: int, rules: CopyRules, path: str) -> None:
    if rules.bytes_max is not None and copied > rules.bytes_max:
        most = f"{rules.bytes_max // 1024**2} MiB"
        raise BuildFailed(f"with {path[-200:]!a} it is larger than the {most} kept of one; holes count")
    said = rules.obstacle()
    if said:
        raise BuildFailed(said)
