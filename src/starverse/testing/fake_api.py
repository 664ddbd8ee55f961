"""An API server for tests of the client and the command line: answers what it is told, remembers what came.

It listens on loopback or on a Unix socket. Replies are given per method and path; several are used up in
order and the last one stays. ``BREAK`` closes the connection without an answer.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Reply:
    """``body``: a mapping is sent as JSON, bytes as they are. ``cut``: the connection breaks after the body,
    which is then shorter than announced."""

    status: int = 200
    body: Mapping[str, Any] | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


BREAK = Reply(status=0)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came; ``path`` is below ``/api/v1``, as sent."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FakeApi:
    """A context manager; ``url`` is the value for ``STARVERSE_API``."""

    def __init__(self, socket_path: Path | None = None) -> None:
        self.seen: list[Seen] = []
        self._replies: dict[tuple[str, str], list[Reply]] = {}
        self._lock = threading.Lock()
        self._server = _make_server(self, socket_path)
        port = 0 if socket_path else self._server.socket.getsockname()[1]
        self.url = f"unix:{socket_path}" if socket_path else f"http://127.0.0.1:{port}"

    def on(self, method: str, path: str, *replies: Reply | Mapping[str, Any]) -> None:
        """Answer a method and path; a mapping is a 200 with that JSON."""
        made = [reply if isinstance(reply, Reply) else Reply(body=reply) for reply in replies]
        self._replies[(method, path)] = made or [Reply(status=204)]

    def requests(self, method: str, path: str) -> list[Seen]:
        """What came for a method and path, in order."""
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def answer(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            replies = self._replies.get((seen.method, seen.path))
            if not replies:
                problem = {"code": "not_found", "detail": f"the fake has no {seen.method} {seen.path}"}
                return Reply(404, problem)
            return replies.pop(0) if len(replies) > 1 else replies[0]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def sse(*events: tuple[str, str, Mapping[str, Any]]) -> bytes:
    """Server-sent events of ``(kind, id, data)``."""
    return "".join(
        f"event: {kind}\nid: {event_id}\ndata: {json.dumps(data)}\n\n" for kind, event_id, data in events
    ).encode()


class _Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class _Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def _make_server(api: FakeApi, socket_path: Path | None) -> socketserver.TCPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            split = urlsplit(self.path)
            seen = Seen(
                self.command,
                split.path.removeprefix("/api/v1"),
                parse_qs(split.query, keep_blank_values=True),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            self._reply(api.answer(seen))

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _handle  # noqa: N815

        def _reply(self, reply: Reply) -> None:
            if reply is BREAK:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            raw = reply.body if isinstance(reply.body, bytes) else b""
            kind = "application/octet-stream"
            if isinstance(reply.body, Mapping):
                raw = json.dumps(reply.body).encode()
                kind = "application/json" if reply.status < 400 else "application/problem+json"
            headers = {"Content-Type": kind, **reply.headers}
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw) + (10 if reply.cut else 0)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)
            self.close_connection = self.close_connection or reply.cut

        def address_string(self) -> str:
            return "client"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
            """Keeps quiet."""

    if socket_path is not None:
        return _Unix(str(socket_path), Handler)
    return _Tcp(("127.0.0.1", 0), Handler)
