"""How ``srun`` and the agent of a far node speak: frames of kind, rank and bytes on one connection."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator

START, SIGNAL, INPUT = b"S", b"K", b"I"
"""To the agent: the step as JSON with its node's number as rank; a signal for all; input of a rank
(``b""``: its end)."""

OUTPUT, ERROR, FAILED, EXIT = b"O", b"E", b"F", b"X"
"""To ``srun``: what a rank wrote; why it could not be executed (error number); how it ended (as
``Popen.returncode``)."""

_HEADER = struct.Struct("!cII")
_BYTES_MAX = 1 << 24


def connect(path: str) -> socket.socket:
    """Connect to a Unix socket, by its folder where the path is longer than a socket's may be."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        line.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")  # noqa: PTH119
    except OSError:
        line.close()
        raise
    finally:
        os.close(folder)
    return line


class FrameLine:
    """One end of the connection. Sending is for any thread, reading for one."""

    def __init__(self, line: socket.socket) -> None:
        self.socket = line
        self._sending = threading.Lock()

    def send(self, kind: bytes, rank: int, payload: bytes = b"") -> None:
        """Raises ``OSError`` where the other end is gone."""
        with self._sending:
            self.socket.sendall(_HEADER.pack(kind, rank, len(payload)) + payload)

    def read(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Frames until the other end hangs up; a frame that is too large ends it, too."""
        received = bytearray()
        while True:
            while len(received) >= _HEADER.size:
                kind, rank, length = _HEADER.unpack_from(received)
                if length > _BYTES_MAX:
                    return
                if len(received) < _HEADER.size + length:
                    break
                payload = bytes(received[_HEADER.size : _HEADER.size + length])
                del received[: _HEADER.size + length]
                yield kind, rank, payload
            try:
                part = self.socket.recv(65536)
            except OSError:
                return
            if not part:
                return
            received += part
