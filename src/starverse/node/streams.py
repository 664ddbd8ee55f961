"""Streams: connections that the platform asks a launcher for, each of them ending inside its sandbox.

::

    somebody -> engine.open_stream -> StreamDesk: a wish with an id ---- line of the channel ---> launcher
    somebody <- a socket <----------- the desk <- hello of kind stream, "ok" -- dials back ------ launcher
                                                                                  hands it to the agent inside

A server that a launcher is not connected to has the others pass its wish on (:func:`relay_text`), and the
launcher dials the one that asked. On one machine the launcher's end of the connection is passed on to the
agent as a descriptor, so that nobody copies a byte; what came by TLS is passed on byte by byte. Who asked
waits at most :data:`STREAM_SECONDS_MAX`: nothing is kept of a wish that was not granted.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from urllib.parse import quote, unquote

from starverse.domain.workloads.lines import read_fields
from starverse.engines.base import EngineUnavailable

STREAM_SECONDS_MAX = 5.0
_AGAIN_SECONDS = 1.5
_RELAYED = "stream/"
GO_AHEAD = b"ok\n"
"""What the platform says once a stream is its asker's; only then is there anybody to speak to."""


@dataclass(frozen=True, slots=True)
class StreamWish:
    """A connection that is wanted. ``kind`` is for the agent (``ssh``, ``jupyter-start``); ``addresses`` is
    where the launcher is to dial, ``""``: where its channel is connected to."""

    id: str
    kind: str
    addresses: str = ""

    def to_line(self) -> bytes:
        """As a line of the channel."""
        return json.dumps({"stream": asdict(self)}).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> StreamWish | None:
        """``None`` for a line that is none; raises ``ValueError`` on one that is damaged."""
        if not line.startswith(b'{"stream"'):
            return None
        return cls(**read_fields(cls, json.dumps(json.loads(line).get("stream"))))


def relay_text(allocation_id: str, wish: StreamWish) -> str:
    """A wish as one word, for the other servers."""
    return f"{_RELAYED}{allocation_id}/{quote(wish.to_line().decode().strip())}"


def read_relayed(text: str) -> tuple[str, StreamWish] | None:
    """Allocation and wish; ``None`` for a word that is none."""
    allocation_id, slash, quoted = text.removeprefix(_RELAYED).partition("/")
    if not text.startswith(_RELAYED) or not slash:
        return None
    try:
        wish = StreamWish.from_line(unquote(quoted).encode())
    except ValueError:
        return None
    return None if wish is None else (allocation_id, wish)


class _Waiting:
    """A wish of somebody here, or (``until``, a monotonic instant) of another server's."""

    def __init__(self, allocation_id: str, wish: StreamWish, until: float | None = None) -> None:
        self.allocation_id = allocation_id
        self.wish = wish
        self.until = until
        self.told: set[object] = set()
        self.line: socket.socket | None = None
        self.settled = threading.Event()


class StreamDesk:
    """The platform's wishes that were not granted yet. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}

    def ask(
        self, allocation_id: str, kind: str, tell: Callable[[str, StreamWish], None], seconds_max: float
    ) -> socket.socket:
        """Wait for a connection; ``tell`` has it asked for, now and again. Raises :class:`EngineUnavailable`
        where none came in time."""
        entry = _Waiting(allocation_id, StreamWish(secrets.token_hex(16), kind))
        with self._lock:
            self._waiting[entry.wish.id] = entry
        try:
            give_up = time.monotonic() + seconds_max
            while not entry.settled.is_set() and (left := give_up - time.monotonic()) > 0:
                tell(allocation_id, entry.wish)
                entry.settled.wait(min(left, _AGAIN_SECONDS))
        finally:
            with self._lock:
                self._waiting.pop(entry.wish.id, None)
        if entry.line is None:
            raise EngineUnavailable(f"the launcher opened no connection within {seconds_max:g} s")
        return entry.line

    def pass_on(self, allocation_id: str, wish: StreamWish) -> None:
        """Tell its launcher what another server wants of it, should it be connected here soon."""
        until = time.monotonic() + STREAM_SECONDS_MAX
        with self._lock:
            self._waiting.setdefault(wish.id, _Waiting(allocation_id, wish, until))

    def asked(self) -> set[str]:
        """The allocations of which a stream is wanted."""
        now = time.monotonic()
        with self._lock:
            old = [
                key for key, entry in self._waiting.items() if entry.until is not None and entry.until < now
            ]
            for key in old:
                del self._waiting[key]
            return {entry.allocation_id for entry in self._waiting.values()}

    def untold(self, allocation_id: str, launcher: object) -> list[StreamWish]:
        """The wishes to one allocation that this connection of its launcher was not told yet."""
        with self._lock:
            found = [entry for entry in self._waiting.values() if entry.allocation_id == allocation_id]
            return [entry.wish for entry in found if launcher not in entry.told]

    def note_told(self, wish: StreamWish, launcher: object) -> None:
        with self._lock:
            if wish.id in self._waiting:
                self._waiting[wish.id].told.add(launcher)

    def is_wanted(self, allocation_id: str, stream: str) -> bool:
        """Whether somebody still waits for this stream of this allocation."""
        with self._lock:
            entry = self._waiting.get(stream)
            return entry is not None and entry.until is None and entry.allocation_id == allocation_id

    def deliver(self, stream: str, line: socket.socket) -> bool:
        """Give the connection to whoever waits for it; ``False``: nobody does any more."""
        with self._lock:
            entry = self._waiting.pop(stream, None)
            if entry is None:
                return False
            entry.line = line
            entry.settled.set()
            return True


def with_addresses(wish: StreamWish, addresses: str) -> StreamWish:
    """The same wish for a launcher whose channel is connected to another server."""
    return replace(wish, addresses=addresses)
