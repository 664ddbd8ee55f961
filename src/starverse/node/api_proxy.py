"""The API socket inside a sandbox: each connection is passed on, byte by byte, to the platform's."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

CONNECTIONS_MAX = 64


class ApiProxy:
    """Listens at ``run/api.sock``; a platform that is down refuses the connection, nothing more."""

    def __init__(self, path: Path, platform: str, owner: int | None) -> None:
        self._path = path
        self._platform = platform
        self._owner = owner
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def bind(self) -> None:
        """Make the socket; before the workload starts, so that it is there from its first line on."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        bind_unix(self._listener, self._path)
        self._path.chmod(0o600)
        if self._owner is not None:
            os.chown(self._path, self._owner, self._owner)
        self._listener.listen(CONNECTIONS_MAX)

    def serve(self) -> None:
        """Start passing on, in threads of its own; after the workload was forked."""
        threading.Thread(target=self._accept, name="api", daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:
                return
            if not self._free.acquire(blocking=False):
                inside.close()
                continue
            threading.Thread(target=self._pass_on, args=(inside,), daemon=True).start()

    def _pass_on(self, inside: socket.socket) -> None:
        try:
            with inside, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as outside:
                connect_unix(outside, Path(self._platform))
                back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
                back.start()
                _pump(inside, outside)
                back.join()
        except OSError:
            return
        finally:
            self._free.release()


def bind_unix(listener: socket.socket, path: Path) -> None:
    """Bind at a path of any length: a socket's own limit is 107 bytes."""
    with _short_path(path) as short:
        listener.bind(short)


def connect_unix(line: socket.socket, path: Path) -> None:
    with _short_path(path) as short:
        line.connect(short)


class _short_path:  # noqa: N801  (used as a function)
    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= 107:
            return str(self._path)
        self._folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
