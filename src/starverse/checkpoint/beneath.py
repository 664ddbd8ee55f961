"""Opening what is in a checkpoint folder, which others may write to, without being led out or held up.

No symbolic link below the folder is followed, no pipe or device is waited for, and what is read whole is
read only up to a bound, whatever the file says of its size.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class OpenFile:
    """An open descriptor that closes itself; what :func:`open_beneath` returns."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.number)


def open_beneath(folder: Path, path: str, flags: int = os.O_RDONLY) -> OpenFile:
    """Open ``path`` inside ``folder`` without following any symbolic link below it; raises ``OSError``."""
    *parents, name = path.split("/")
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        return OpenFile(
            os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=here)
        )
    finally:
        os.close(here)


def read_beneath(folder: Path, path: str, bytes_max: int) -> bytes:
    """The content of a regular file of at most ``bytes_max`` bytes; raises ``OSError`` for anything else."""
    with open_beneath(folder, path) as opened:
        found = os.fstat(opened.number)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, f"{path} is not a regular file")
        if found.st_size > bytes_max:
            raise OSError(errno.EFBIG, f"{path} is larger than {bytes_max} bytes")
        with os.fdopen(os.dup(opened.number), "rb") as file:
            content = file.read(bytes_max + 1)
    if len(content) > bytes_max:  # it grew meanwhile
        raise OSError(errno.EFBIG, f"{path} is larger than {bytes_max} bytes")
    return content
