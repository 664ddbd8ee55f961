"""The launcher's end of its channel: it dials out, tells its whole state, hears the whole desired state.

Newline-delimited JSON on a Unix socket. The first line is ``{"version", "allocation_id", "token"}``, each
further one a ``LauncherState``; each line back is a ``Desired``. Nothing blocks and nothing is owed: what
could not be sent is overtaken by the next state, and a server that is dead is dialled again for ever.
"""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

from starverse.domain.workloads.launch import PROTOCOL_VERSION, Desired, LauncherState, LaunchSpec
from starverse.node.api_proxy import connect_unix

BACKOFF_SECONDS_MAX = 1.0
LINE_BYTES_MAX = 1 << 20


class ChannelClient:
    """One connection at a time; ``heard`` is the newest desired state, ``None`` before the first."""

    def __init__(self, spec: LaunchSpec) -> None:
        hello = {
            "version": PROTOCOL_VERSION,
            "allocation_id": spec.allocation_id,
            "token": spec.channel_token,
        }
        self._hello = json.dumps(hello).encode() + b"\n"
        self._path = Path(spec.channel)
        self._socket: socket.socket | None = None
        self._unsent = b""
        self._received = b""
        self._dial_at = 0.0
        self._backoff = 0.1
        self.heard: Desired | None = None

    @property
    def handle(self) -> int | None:
        """The open socket's number to wait on; ``None`` while not connected."""
        return None if self._socket is None else self._socket.fileno()

    def tell(self, state: LauncherState, now: float) -> None:
        """Send the state; connects first where that is due. ``now``: a clock that does not jump."""
        if self._socket is None:
            self._dial(now)
        if self._socket is not None and not self._unsent:
            self._unsent = state.to_json().encode() + b"\n"
        self._flush(now)

    def listen(self, now: float) -> bool:
        """Read what has come; answers whether a new desired state is among it."""
        new = False
        while self._socket is not None:
            try:
                part = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            if not part or len(self._received) > LINE_BYTES_MAX:
                self._drop(now)
                break
            *lines, self._received = (self._received + part).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, TypeError):  # not for us to judge: the next one is whole
                    self.heard = Desired.from_json(line.decode())
                    new = True
        return new

    def finish(self, state: LauncherState, now: float) -> None:
        """Tell the last state as well as can be in a moment, and hang up; the report file is the truth."""
        self.tell(state, now)
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.settimeout(0.2)
                self._socket.sendall(self._unsent)
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _dial(self, now: float) -> None:
        if now < self._dial_at:
            return
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connect_unix(line, self._path)
        except OSError:
            line.close()
            self._dial_at = now + self._backoff
            self._backoff = min(BACKOFF_SECONDS_MAX, self._backoff * 2)
            return
        self._socket = line
        self._unsent = self._hello
        self._received = b""
        self._backoff = 0.1
        self._flush(now)

    def _flush(self, now: float) -> None:
        while self._socket is not None and self._unsent:
            try:
                sent = self._socket.send(self._unsent, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._drop(now)
                return
            self._unsent = self._unsent[sent:]

    def _drop(self, now: float) -> None:
        self.close()
        self._dial_at = now + self._backoff
