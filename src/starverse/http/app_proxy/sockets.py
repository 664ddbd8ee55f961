"""One WebSocket passed on to an app inside: message by message, at the pace of the slower side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from starverse.app.inside import Pipe, Unreachable
from starverse.http.app_proxy.headers import Place, inbound

MESSAGE_BYTES_MAX = 64 * 1024**2
_NOT_REPEATED = (b"host", b"connection", b"upgrade")


class InnerSocket:
    """A WebSocket client over a pipe."""

    def __init__(self, pipe: Pipe, protocol: ClientProtocol) -> None:
        self._pipe = pipe
        self._protocol = protocol
        self._early: list[object] = []

    async def shake_hands(self) -> None:
        """Raises what :mod:`websockets` says of a refusal, ``OSError`` where there was no answer."""
        await self.flush()
        while True:
            events = self._protocol.events_received()
            if self._protocol.handshake_exc is not None:
                raise self._protocol.handshake_exc
            if events:
                self._early = [event for event in events if not isinstance(event, Response)]
                return
            data = await self._pipe.read()
            if not data:
                raise ConnectionResetError
            self._protocol.receive_data(data)

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    @property
    def close_code(self) -> int:
        received = self._protocol.close_rcvd
        return 1000 if received is None else _sendable(received.code)

    async def send(self, data: bytes | str) -> None:
        if isinstance(data, str):
            self._protocol.send_text(data.encode())
        else:
            self._protocol.send_binary(data)
        await self.flush()

    async def end(self, code: int) -> None:
        with contextlib.suppress(OSError, WebSocketException):
            self._protocol.send_close(_sendable(code))
            await self.flush()

    async def flush(self) -> None:
        data = b"".join(self._protocol.data_to_send())  # at once: two tasks send
        if data:
            await self._pipe.write(data)

    async def messages(self) -> AsyncIterator[bytes | str]:
        """Whole messages, until the app closes."""
        parts: list[bytes] = []
        kind = Opcode.BINARY
        while True:
            early, self._early = self._early, []
            for event in [*early, *self._protocol.events_received()]:
                if not isinstance(event, Frame) or event.opcode not in _DATA:
                    continue
                kind = event.opcode if event.opcode is not Opcode.CONT else kind
                parts.append(bytes(event.data))
                if sum(map(len, parts)) > MESSAGE_BYTES_MAX:
                    return
                if event.fin:
                    whole, parts = b"".join(parts), []
                    yield whole.decode("utf-8", "replace") if kind is Opcode.TEXT else whole
            await self.flush()
            if self._protocol.close_expected():
                return
            data = await self._pipe.read()
            if not data:
                self._protocol.receive_eof()
                return
            self._protocol.receive_data(data)


_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


async def open_inner(socket: WebSocket, pipe: Pipe, place: Place, path: str) -> InnerSocket:
    """Shake hands with the app; raises :class:`Unreachable` where it will not."""
    wanted = [Subprotocol(name) for name in socket.scope.get("subprotocols", [])]
    uri = parse_uri(f"ws://{place.inside_host}{path}")
    protocol = ClientProtocol(uri, subprotocols=wanted or None, max_size=MESSAGE_BYTES_MAX)
    request = protocol.connect()
    for name, value in inbound(socket.scope["headers"], place):
        if name not in _NOT_REPEATED and not name.startswith(b"sec-websocket-"):
            _set(request.headers, name.decode("latin-1"), value.decode("latin-1"))
    protocol.send_request(request)
    inner = InnerSocket(pipe, protocol)
    try:
        await inner.shake_hands()
    except (OSError, InvalidHandshake, EOFError, ValueError) as error:
        pipe.close()
        raise Unreachable("What listens inside the instance takes no WebSocket here.") from error
    return inner


def _sendable(code: int) -> int:
    """A close code as it may be sent: those that stand for no code are not."""
    return code if 1000 <= code < 5000 and code not in (1005, 1006, 1015) else 1000


def _set(headers: Headers, name: str, value: str) -> None:
    if name in headers:
        del headers[name]
    headers[name] = value


async def pump(socket: WebSocket, inner: InnerSocket) -> None:
    """Until one side closes; then the other is closed with the same code."""
    out = asyncio.create_task(_to_browser(socket, inner))
    into = asyncio.create_task(_to_app(socket, inner))
    done, pending = await asyncio.wait({out, into}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    for task in done:
        if not task.cancelled():
            task.exception()  # whoever hung up has: there is nobody to tell
    if out in done:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(inner.close_code)


async def _to_browser(socket: WebSocket, inner: InnerSocket) -> None:
    async for message in inner.messages():
        if isinstance(message, str):
            await socket.send_text(message)
        else:
            await socket.send_bytes(message)


async def _to_app(socket: WebSocket, inner: InnerSocket) -> None:
    while True:
        message = await socket.receive()
        if message["type"] != "websocket.receive":
            await inner.end(message.get("code", 1000))
            return
        await inner.send(message["bytes"] if message.get("bytes") is not None else message["text"])
