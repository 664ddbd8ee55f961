"""Ports, terminals and JupyterLab inside allocations, for the API (``app/inside.py``).

One SSH connection for each allocation is kept while it is used and a little longer: a page of an app asks for
dozens of things, each of which is a channel of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from dataclasses import dataclass, field
from typing import Any

import asyncssh

from starverse.app.inside import READ_BYTES, Jupyter, Unreachable
from starverse.gateway.inside import Inside

IDLE_SECONDS = 60.0
EXIT_SECONDS_MAX = 5.0
CLOSE_SECONDS_MAX = 3.0
JUPYTER_SECONDS_MAX = 75.0
ANSWER_BYTES_MAX = 65_536
LOOPBACK = "127.0.0.1"


class Channel:
    """A pipe over an SSH channel."""

    def __init__(self, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, bytes_max: int = READ_BYTES) -> bytes:
        try:
            return await self._reader.read(bytes_max)
        except asyncssh.Error as error:
            raise ConnectionResetError(str(error)) from error

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except asyncssh.Error as error:
            raise ConnectionResetError(str(error)) from error

    def end_input(self) -> None:
        if not self._writer.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


class Shell:
    """A shell on a terminal, over an SSH session."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._process = process
        self._channel = Channel(process.stdout, process.stdin)
        self.write, self.end_input = self._channel.write, self._channel.end_input

    async def read(self, bytes_max: int = READ_BYTES) -> bytes:
        data = await self._channel.read(bytes_max)
        if not data:  # the exit code comes after the last byte
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS_MAX):
                    await self._process.wait_closed()
        return data

    def close(self) -> None:
        self._process.close()

    def resize(self, columns: int, rows: int) -> None:
        if not self._process.is_closing():
            self._process.change_terminal_size(columns, rows)

    def exit_code(self) -> int | None:
        signalled = self._process.exit_signal
        if signalled is not None:
            number = getattr(signal, f"SIG{signalled[0]}", None)
            return None if number is None else 128 + int(number)
        return self._process.exit_status


@dataclass(slots=True)
class _Room:
    """The connection of one allocation; ``users`` are channels being opened or open."""

    opening: asyncio.Task[asyncssh.SSHClientConnection]
    users: int = 0
    leaving: asyncio.TimerHandle | None = field(default=None)


class Rooms:
    """For one event loop: that of the API."""

    def __init__(self, inside: Inside, idle_seconds: float = IDLE_SECONDS) -> None:
        self._inside = inside
        self._idle_seconds = idle_seconds
        self._rooms: dict[str, _Room] = {}

    async def open_port(self, allocation_id: str, port: int) -> Channel:
        connection = await self._enter(allocation_id)
        try:
            reader, writer = await connection.open_connection(LOOPBACK, port, encoding=None)
        except (OSError, asyncssh.Error) as error:
            self._leave(allocation_id)
            raise Unreachable(f"Nothing answers on port {port} inside the instance.") from error
        self._leave_with(allocation_id, writer.channel)
        return Channel(reader, writer)

    async def open_terminal(self, allocation_id: str, columns: int, rows: int) -> Shell:
        connection = await self._enter(allocation_id)
        try:
            process: Any = await connection.create_process(
                term_type="xterm-256color",
                term_size=(columns, rows),
                env={"LANG": "C.UTF-8"},
                encoding=None,
                stderr=asyncssh.STDOUT,
            )
        except (OSError, asyncssh.Error) as error:
            self._leave(allocation_id)
            raise Unreachable("The instance does not open a terminal right now; try again.") from error
        self._leave_with(allocation_id, process.channel)
        return Shell(process)

    async def start_jupyter(self, allocation_id: str, base_url: str, port: int) -> Jupyter:
        stream = await self._inside.stream(allocation_id, "jupyter-start")
        wish = json.dumps({"base_url": base_url, "port": port}).encode() + b"\n"
        try:
            async with asyncio.timeout(JUPYTER_SECONDS_MAX):
                answer = await _ask(stream, wish)
        except (OSError, TimeoutError) as error:
            raise Unreachable("JupyterLab did not start in time; try again.") from error
        return _read_jupyter(answer)

    async def close(self) -> None:
        """Hang up everywhere."""
        opened = [room.opening for room in self._rooms.values() if room.opening.done()]
        for allocation_id in list(self._rooms):
            self._forget(allocation_id)
        connections = [task.result() for task in opened if not task.cancelled() and not task.exception()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def _enter(self, allocation_id: str) -> asyncssh.SSHClientConnection:
        """The connection, counted as used once more."""
        room = self._rooms.get(allocation_id)
        if room is None:
            room = self._rooms[allocation_id] = self._open_room(allocation_id)
        if room.leaving is not None:
            room.leaving.cancel()
            room.leaving = None
        room.users += 1
        try:
            return await asyncio.shield(room.opening)
        except BaseException:
            self._leave(allocation_id)
            if room.opening.done() and (room.opening.cancelled() or room.opening.exception()):
                self._forget(allocation_id, room.opening)
            raise

    def _open_room(self, allocation_id: str) -> _Room:
        def lost() -> None:
            self._forget(allocation_id, room.opening)

        room = _Room(asyncio.create_task(self._inside.connect(allocation_id, lost)))
        return room

    def _leave_with(self, allocation_id: str, channel: Any) -> None:
        """Count no longer once the channel has closed."""
        closing = asyncio.create_task(channel.wait_closed())
        _KEPT.add(closing)
        closing.add_done_callback(_KEPT.discard)
        closing.add_done_callback(lambda _: self._leave(allocation_id))

    def _leave(self, allocation_id: str) -> None:
        room = self._rooms.get(allocation_id)
        if room is None:
            return
        room.users -= 1
        if room.users == 0:
            loop = asyncio.get_running_loop()
            room.leaving = loop.call_later(self._idle_seconds, self._forget, allocation_id, room.opening)

    def _forget(
        self, allocation_id: str, opening: asyncio.Task[asyncssh.SSHClientConnection] | None = None
    ) -> None:
        room = self._rooms.get(allocation_id)
        if room is None or opening not in (None, room.opening):
            return
        del self._rooms[allocation_id]
        if room.leaving is not None:
            room.leaving.cancel()
        if not room.opening.done():
            room.opening.cancel()
        elif not room.opening.cancelled() and room.opening.exception() is None:
            room.opening.result().close()


_KEPT: set[asyncio.Task[None]] = set()
"""Tasks that nobody awaits; the loop itself would forget them."""


async def _ask(stream: socket.socket, wish: bytes) -> bytes:
    """Send a line, read a line."""
    loop = asyncio.get_running_loop()
    with stream:
        stream.setblocking(False)
        await loop.sock_sendall(stream, wish)
        answer = b""
        while b"\n" not in answer and len(answer) < ANSWER_BYTES_MAX:
            part = await loop.sock_recv(stream, ANSWER_BYTES_MAX)
            if not part:
                break
            answer += part
        return answer


def _read_jupyter(answer: bytes) -> Jupyter:
    """What the agent inside said; it is the workload's own, so nothing of it is believed unread."""
    try:
        said = json.loads(answer)
        if "error" in said:
            raise Unreachable(f"JupyterLab does not start: {str(said['error'])[:300]}")
        port, base_url, token = int(said["port"]), str(said["base_url"]), str(said["token"])
    except (ValueError, TypeError, KeyError) as error:
        raise Unreachable("JupyterLab does not start: its answer cannot be read.") from error
    if not (1 <= port <= 65535 and token.isascii() and token.isprintable()):
        raise Unreachable("JupyterLab does not start: its answer cannot be used.")
    return Jupyter(port, base_url, token)
