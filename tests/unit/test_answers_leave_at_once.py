"""What the server sends does not wait for the far end to say that it has what was sent before."""

from __future__ import annotations

import asyncio
import socket

import pytest

from starverse.main import listen_tcp


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_to_the_server_send_at_once(host: str) -> None:
    """Else the body of an answer follows its head 40 ms later on any connection that is used again."""
    if ":" in host and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")

    async def look() -> int:
        came: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _, writer: came.set_result(writer), sock=listener)
        async with server:
            _, caller = await asyncio.open_connection(host, listener.getsockname()[1])
            served = await asyncio.wait_for(came, 10)
            kept = served.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for writer in (caller, served):
                writer.close()
        return int(kept)

    with listen_tcp(host, 0) as listener:
        assert asyncio.run(look()) != 0
