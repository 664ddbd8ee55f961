"""The platform's end of the launchers' channel: one thread, one Unix socket, nothing that is the truth.

What launchers say is kept for :meth:`ChannelServer.newest`; their folders say the same. What is wanted of
them is sent at once, and again as they connect.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import selectors
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from starverse.domain.workloads.launch import PROTOCOL_VERSION, Desired, LauncherState
from starverse.node.api_proxy import bind_unix

_LINE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Answers:
    """What the server asks its engine: the token that a launcher must know, and what is wanted of it."""

    token_of: Callable[[str], str | None]
    desired_of: Callable[[str], Desired | None]
    news: Callable[[], None]


class _Line:
    """One launcher's connection; ``allocation_id`` ``""`` before its first line."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.allocation_id = ""
        self.received = b""
        self.unsent = b""


class ChannelServer:
    """Listens from :meth:`start` to :meth:`close`."""

    def __init__(self, path: Path, answers: Answers) -> None:
        self._path = path
        self._answers = answers
        self._selector: selectors.BaseSelector = selectors.SelectSelector()  # until the start
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake_pair: tuple[socket.socket, socket.socket] | None = None
        self._lock = threading.Lock()
        self._newest: dict[str, LauncherState] = {}
        self._to_send: dict[str, Desired] = {}
        self._closing = False

    def start(self) -> None:
        """Take over the socket's path; whoever listened there before is dead (a lock file saw to that)."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        bind_unix(self._listener, self._path)
        self._path.chmod(0o600)
        self._listener.listen(1024)
        self._selector = selectors.DefaultSelector()
        self._wake_pair = socket.socketpair()
        self._wake_pair[0].setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_pair[0], selectors.EVENT_READ, self._wake_pair[0])
        self._thread = threading.Thread(target=self._serve, name="channel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody; launchers dial again for ever."""
        if self._thread is not None:
            self._closing = True
            self._wake()
            self._thread.join()
            self._thread = None
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.data, _Line):
                key.data.socket.close()
        if self._listener is not None:
            self._listener.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        self._selector.close()
        for end in self._wake_pair or ():
            end.close()
        self._wake_pair = None

    def newest(self, allocation_id: str) -> LauncherState | None:
        """What its launcher said last on this server's watch."""
        with self._lock:
            return self._newest.get(allocation_id)

    def send(self, allocation_id: str, desired: Desired) -> None:
        """Tell a connected launcher; one that is not will hear as it connects."""
        with self._lock:
            self._to_send[allocation_id] = desired
        self._wake()

    def forget(self, allocation_id: str) -> None:
        with self._lock:
            self._newest.pop(allocation_id, None)

    def _wake(self) -> None:
        if self._wake_pair is not None:
            with contextlib.suppress(OSError):
                self._wake_pair[1].send(b"!")

    def _serve(self) -> None:
        while not self._closing:
            for key, event in self._selector.select(1.0):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, socket.socket):
                    with contextlib.suppress(OSError):
                        key.data.recv(4096)
                elif event & selectors.EVENT_READ:
                    self._read(key.data)
                else:
                    self._flush(key.data)
            self._send_waiting()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, _Line(connection))

    def _send_waiting(self) -> None:
        with self._lock:
            waiting, self._to_send = self._to_send, {}
        if not waiting:
            return
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Line) and key.data.allocation_id in waiting:
                self._tell(key.data, waiting[key.data.allocation_id])

    def _read(self, line: _Line) -> None:
        try:
            part = line.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part or len(line.received) > _LINE_BYTES_MAX:
            self._drop(line)
            return
        *texts, line.received = (line.received + part).split(b"\n")
        for text in texts:
            try:
                if line.allocation_id:
                    self._note(line.allocation_id, LauncherState.from_json(text.decode()))
                else:
                    self._greet(line, text.decode())
            except (ValueError, TypeError, KeyError, AttributeError):
                self._drop(line)
                return

    def _greet(self, line: _Line, text: str) -> None:
        """The first line: who it is and whether it knows the token; raises ``ValueError`` otherwise."""
        hello = json.loads(text)
        token = self._answers.token_of(hello["allocation_id"])
        if hello["version"] != PROTOCOL_VERSION or not token:
            raise ValueError("not a launcher of ours")
        if not hmac.compare_digest(token.encode(), str(hello["token"]).encode()):
            raise ValueError("wrong token")
        line.allocation_id = hello["allocation_id"]
        desired = self._answers.desired_of(line.allocation_id)
        if desired is not None:
            self._tell(line, desired)

    def _note(self, allocation_id: str, state: LauncherState) -> None:
        if state.allocation_id != allocation_id:
            raise ValueError("speaks for another allocation")
        with self._lock:
            before = self._newest.get(allocation_id)
            self._newest[allocation_id] = state
        if before is None or replace(before, alive_at=state.alive_at) != state:
            self._answers.news()

    def _tell(self, line: _Line, desired: Desired) -> None:
        if not line.unsent:  # else it is still busy with an older one; the file has the newest
            line.unsent = desired.to_json().encode() + b"\n"
            self._flush(line)

    def _flush(self, line: _Line) -> None:
        try:
            sent = line.socket.send(line.unsent, socket.MSG_NOSIGNAL) if line.unsent else 0
            line.unsent = line.unsent[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(line)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
        self._selector.modify(line.socket, events, line)

    def _drop(self, line: _Line) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(line.socket)
        line.socket.close()
