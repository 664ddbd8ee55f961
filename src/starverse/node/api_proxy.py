"""The API socket inside a sandbox: each connection is passed on, byte by byte, to the platform's."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from starverse.node.unix_sockets import bind_unix

CONNECTIONS_MAX = 64


class ApiProxy:
    """Listens at ``run/api.sock``; a platform that is down refuses the connection, nothing more.

    ``dial`` connects to the platform (:mod:`starverse.node.dialing`); raises ``OSError`` where it is down.
    ``owner`` is the Unix user inside, ``None``: the launcher's own.
    """

    def __init__(self, path: Path, dial: Callable[[], socket.socket], owner: int | None) -> None:
        self._path = path
        self._dial = dial
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
            with inside, self._dial() as outside:
                if outside.family != socket.AF_UNIX:
                    pass_between(inside, outside)
                    return
                back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
                back.start()
                _pump(inside, outside)
                back.join()
        except OSError:
            return
        finally:
            self._free.release()


def pass_between(inside: socket.socket, outside: socket.socket) -> None:
    """Pass bytes both ways until either end hangs up; from one thread, as TLS needs it."""
    from starverse.node.hub import Hub, Rules

    hub = Hub(Rules(lambda *_: None, lambda *_: None, lambda *_: None))
    try:
        hub.join(hub.adopt(inside, None), hub.adopt(outside, None))
        while hub.peers:
            hub.step(60.0)
    finally:
        hub.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
