"""One HTTP request passed on to an app inside, and its answer back: bodies stream, nothing is kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import h11
from starlette.types import Receive, Scope, Send

from starverse.app.inside import Pipe, Unreachable
from starverse.http.app_proxy.headers import Place, inbound, outbound

GONE = "What listens inside the instance hung up without an answer."
HEAD_BYTES_MAX = 256 * 1024
_FRAMING = (b"content-length", b"transfer-encoding")


async def pass_on(scope: Scope, receive: Receive, send: Send, pipe: Pipe, place: Place) -> None:
    """Raises :class:`Unreachable` where there was no answer at all."""
    upstream = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    started = False
    try:
        await pipe.write(_sent(upstream, _request(scope, place)))
        sending = asyncio.create_task(_send_body(upstream, receive, pipe))
        try:
            async for event in _events(upstream, pipe):
                if isinstance(event, h11.Response):
                    started = True
                    headers = outbound(event.headers.raw_items(), place)
                    await send(
                        {"type": "http.response.start", "status": event.status_code, "headers": headers}
                    )
                elif isinstance(event, h11.Data):
                    await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, h11.ProtocolError):
                await sending
    except (OSError, h11.ProtocolError) as error:
        if started:
            raise ConnectionResetError(GONE) from error  # the browser sees that it was cut
        raise Unreachable(GONE) from error
    finally:
        pipe.close()


def _request(scope: Scope, place: Place) -> h11.Request:
    raw = scope.get("raw_path") or scope["path"].encode()
    path = place.path_inside(raw.decode("latin-1"))
    query = scope["query_string"].decode("latin-1")
    headers = [(name, value) for name, value in inbound(scope["headers"], place)]
    if not any(name in _FRAMING for name, _ in headers) and _is_chunked(scope):
        headers.append((b"transfer-encoding", b"chunked"))
    headers.append((b"connection", b"close"))
    target = path + (f"?{query}" if query else "")
    return h11.Request(method=scope["method"], target=target, headers=headers)


def _is_chunked(scope: Scope) -> bool:
    return any(name.lower() == b"transfer-encoding" for name, _ in scope["headers"])


async def _send_body(upstream: h11.Connection, receive: Receive, pipe: Pipe) -> None:
    """The browser's body as it comes; each part waits until the one before was taken."""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            pipe.close()  # the browser is gone
            return
        if message.get("body"):
            await pipe.write(_sent(upstream, h11.Data(data=message["body"])))
        if not message.get("more_body"):
            await pipe.write(_sent(upstream, h11.EndOfMessage()))
            break
    while (await receive())["type"] != "http.disconnect":
        pass
    pipe.close()


def _sent(upstream: h11.Connection, event: h11.Request | h11.Data | h11.EndOfMessage) -> bytes:
    return upstream.send(event) or b""


async def _events(upstream: h11.Connection, pipe: Pipe) -> AsyncIterator[h11.Event]:
    while True:
        event = upstream.next_event()
        if event is h11.NEED_DATA:
            upstream.receive_data(await pipe.read())
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise ConnectionResetError(GONE)
        else:
            assert isinstance(event, h11.Event)
            yield event
            if isinstance(event, h11.EndOfMessage):
                return
