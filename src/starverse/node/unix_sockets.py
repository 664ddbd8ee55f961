"""Unix sockets at paths of any length: a socket's own limit is 107 bytes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATH_BYTES_MAX = 107


def bind_unix(listener: socket.socket, path: Path) -> None:
    with _short_path(path) as short:
        listener.bind(short)


def connect_unix(line: socket.socket, path: Path) -> None:
    with _short_path(path) as short:
        line.connect(short)


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """The path itself, or a way to it through its open folder."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
