"""Where a plug may be shown, and that it shows what it names and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

ROOT = "/data"
"""The folder inside below which all plugs are shown."""

_DEPTH_MAX = 16
_NAME_BYTES_MAX = 255


class PlugRefused(Exception):
    """The plug cannot be had as asked; the text says why. Nothing was changed."""


def place_of(target: str, taken: Iterable[str] = ()) -> str:
    """The path of ``target`` below :data:`ROOT`; raises :class:`PlugRefused`.

    ``taken`` are the targets of other plugs: none may lie within another one, where the workload could have
    put anything at its place.
    """
    parts = target.split("/")[2:]
    if not target.startswith(f"{ROOT}/") or not all(parts) or {".", ".."} & set(parts) or "\0" in target:
        raise PlugRefused(f"{target!r}: expected a path such as {ROOT}/NAME, without . and ..")
    if len(parts) > _DEPTH_MAX or any(len(os.fsencode(part)) > _NAME_BYTES_MAX for part in parts):
        raise PlugRefused(
            f"{target[:80]!r}: names of at most {_NAME_BYTES_MAX} bytes, {_DEPTH_MAX} levels at most"
        )
    for other in taken:
        if f"{target}/".startswith(f"{other}/") or f"{other}/".startswith(f"{target}/"):
            raise PlugRefused(f"{target} and {other} would lie within each other")
    return "/".join(parts)


def open_folder(source: str) -> int:
    """The folder itself: where its name became a link or anything else, :class:`PlugRefused`."""
    return _open(source, os.O_PATH | os.O_DIRECTORY, stat.S_IFDIR, "folder")


def open_file(source: str, *, write: bool) -> int:
    """The regular file itself, as :func:`open_folder`."""
    mode = os.O_RDWR if write else os.O_RDONLY
    return _open(source, mode | os.O_NONBLOCK, stat.S_IFREG, "file")


def _open(source: str, flags: int, kind: int, word: str) -> int:
    parent, _, name = source.rpartition("/")
    if not parent.startswith("/") or not name or ".." in source.split("/"):
        raise PlugRefused(f"{source!r} is no path of a disk")
    try:
        above = os.open(os.path.realpath(parent), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            handle = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        finally:
            os.close(above)
    except OSError as error:
        raise PlugRefused(f"the disk's {word} cannot be opened: {error.strerror}") from error
    if stat.S_IFMT(os.fstat(handle).st_mode) != kind:
        os.close(handle)
        raise PlugRefused(f"the disk has no {word} where it should")
    return handle
