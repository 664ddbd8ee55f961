"""Uvicorn's WebSockets, without an error in the log where one is refused as it should be."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class RefusedSockets(WebSocketsSansIOProtocol):
    """An answer of HTTP instead of a WebSocket, once it is whole, is a handshake that is complete: uvicorn
    takes it for one that was forgotten, and logs an error for each."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
