"""One visitor's SSH connection: who they are, and what they ask for passed on inside."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncssh
from asyncssh.forward import SSHForwarder

from starverse.app.inside import Unreachable
from starverse.app.ssh_access import Ambiguous, Located, Visit
from starverse.gateway.inside import Inside
from starverse.gateway.limits import Doorkeeper
from starverse.gateway.sessions import GONE, Session

_Forwarder: Any = SSHForwarder
"""It serves as a session of every kind, which its type does not say."""

GOODBYE_SECONDS = 1.0
"""Between the end of the sessions and hanging up: most clients go by themselves, having heard why."""


@dataclass(frozen=True, slots=True)
class House:
    """What every door needs. ``admit`` takes a key's fingerprint and the name typed before the ``@``;
    ``arrived`` and ``left`` are told of visitors who are inside."""

    admit: Callable[[str, str], Awaitable[Visit | Ambiguous | None]]
    locate: Callable[[Visit], Awaitable[Located]]
    inside: Inside
    keeper: Doorkeeper
    arrived: Callable[[Door, Visit, str], None]
    left: Callable[[Door], None]


class Door(asyncssh.SSHServer):
    """An unknown key, an unknown instance and no way between them look alike: the key is not accepted. An
    instance that does not run says so in each session, after the sign-in."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._conn: asyncssh.SSHServerConnection
        self._place = ""
        self._stranger = False
        self._offered = 0
        self._ended = ""
        self._admitted: Visit | Ambiguous | None = None
        self._coming_in: asyncio.Task[asyncssh.SSHClientConnection] | None = None
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    # -- who they are

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        peer = conn.get_extra_info("peername")
        self._place = str(peer[0]) if peer else "local socket"
        self._stranger = self._house.keeper.enter(self._place)
        if not self._stranger:
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stranger:
            self._house.keeper.leave(self._place, signed_in=False)
            self._stranger = False
        self._house.left(self)
        if self._coming_in is not None:
            self._coming_in.add_done_callback(_hang_up)
            self._coming_in.cancel()

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return False

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Also asked before the visitor has proved to hold the key: what is kept here counts only when it
        was the last key asked for, which it is after the proof."""
        self._offered += 1
        if self._offered > self._house.keeper.limits.keys_offered:
            self._conn.abort()
            return False
        self._admitted = None
        admitted = await self._house.admit(key.get_fingerprint(), username)
        self._admitted = admitted
        return admitted is not None

    def auth_completed(self) -> None:
        self._house.keeper.leave(self._place, signed_in=True)
        self._stranger = False
        self._coming_in = asyncio.get_running_loop().create_task(self._come_in())
        self._coming_in.add_done_callback(_look_at)

    # -- what they ask for

    def session_requested(self) -> Session:
        session = Session(self.inside)
        self._sessions.add(session)
        return session

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        return self._forward(
            lambda inner: self._conn.forward_tunneled_connection(inner, dest_host, dest_port)
        )

    def unix_connection_requested(self, dest_path: str) -> Any:
        return self._forward(lambda inner: self._conn.forward_tunneled_unix_connection(inner, dest_path))

    def server_requested(self, listen_host: str, listen_port: int) -> Any:
        return self._listen_tcp(listen_host, listen_port)

    def unix_server_requested(self, listen_path: str) -> Any:
        return self._listen_unix(listen_path)

    async def inside(self) -> asyncssh.SSHClientConnection:
        """The connection inside; raises :class:`Unreachable`."""
        if self._ended:
            raise Unreachable(self._ended)
        assert self._coming_in is not None
        return await asyncio.shield(self._coming_in)

    def end(self, message: str) -> None:
        """Tell every session why, let nothing more in, and hang up."""
        if self._ended:
            return
        self._ended = message
        for session in list(self._sessions):
            session.refuse(message)
        asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self.hang_up)

    def hang_up(self) -> None:
        self._conn.disconnect(asyncssh.DISC_BY_APPLICATION, self._ended)

    async def _come_in(self) -> asyncssh.SSHClientConnection:
        admitted = self._admitted
        if not isinstance(admitted, Visit):
            raise Unreachable(admitted.message if admitted else GONE)
        located = await self._house.locate(admitted)
        if located.allocation_id is None:
            raise Unreachable(located.message)
        loop = asyncio.get_running_loop()
        inner = await self._house.inside.connect(
            located.allocation_id, lambda: loop.call_soon(self.end, GONE)
        )
        self._house.arrived(self, admitted, located.allocation_id)
        return inner

    async def _forward(
        self, forward: Callable[[asyncssh.SSHClientConnection], Awaitable[SSHForwarder]]
    ) -> SSHForwarder:
        try:
            return await forward(await self.inside())
        except Unreachable as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, error.detail) from error

    async def _listen_tcp(self, host: str, port: int) -> asyncssh.SSHListener | bool:
        async def accept(orig_host: str, orig_port: int) -> Any:
            _, visitor = await self._conn.create_connection(
                _Forwarder, host, port or listener.get_port(), orig_host, orig_port
            )
            return _Forwarder(visitor)

        try:
            inner = await self.inside()
            listener = await inner.create_server(accept, host, port)
        except (Unreachable, asyncssh.Error, OSError):
            return False
        return listener

    async def _listen_unix(self, path: str) -> asyncssh.SSHListener | bool:
        async def accept() -> Any:
            _, visitor = await self._conn.create_unix_connection(_Forwarder, path)
            return _Forwarder(visitor)

        try:
            inner = await self.inside()
            return await inner.create_unix_server(accept, path)
        except (Unreachable, asyncssh.Error, OSError):
            return False


def _look_at(task: asyncio.Task[asyncssh.SSHClientConnection]) -> None:
    """So that a refusal that nobody asked for is not reported as forgotten."""
    if not task.cancelled():
        task.exception()


def _hang_up(task: asyncio.Task[asyncssh.SSHClientConnection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
