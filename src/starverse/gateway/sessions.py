"""One session (a shell, a command, a subsystem) passed on to the sshd inside, and its end passed back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncssh

from starverse.app.inside import Unreachable

REFUSED_EXIT_CODE = 255
"""What ``ssh`` itself answers where it could not connect."""

GONE = "The connection into the instance has ended."

ComeIn = Callable[[], Awaitable[asyncssh.SSHClientConnection]]


class Session(asyncssh.SSHServerSession[bytes]):
    """The visitor's side. What comes before the inside answers is kept: no more than a packet, since reading
    stops then."""

    def __init__(self, come_in: ComeIn) -> None:
        self._come_in = come_in
        self._outer: Any = None
        self._inner: asyncssh.SSHClientChannel[bytes] | None = None
        self._request: dict[str, Any] = {}
        self._early: list[Callable[[asyncssh.SSHClientChannel[bytes]], None]] = []
        self._opening: asyncio.Task[None] | None = None

    # -- what the visitor asks for

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._outer = chan

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Any) -> bool:
        self._request |= {
            "request_pty": "force",
            "term_type": term_type,
            "term_size": term_size,
            "term_modes": dict(term_modes),
        }
        return True

    def shell_requested(self) -> bool:
        return self._begin()

    def exec_requested(self, command: str) -> bool:
        return self._begin(command=command)

    def subsystem_requested(self, subsystem: str) -> bool:
        return self._begin(subsystem=subsystem)

    # -- what the visitor sends

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self._inner is None:
            self._outer.pause_reading()
        self._pass_on(lambda inner: inner.write(data))

    def eof_received(self) -> bool:
        self._pass_on(lambda inner: inner.write_eof())
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self._pass_on(lambda inner: inner.change_terminal_size(width, height, pixwidth, pixheight))

    def signal_received(self, signal: str) -> None:
        self._pass_on(lambda inner: inner.send_signal(signal))

    def break_received(self, msec: int) -> bool:
        self._pass_on(lambda inner: inner.send_break(msec))
        return True

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._inner is not None:
            self._inner.close()

    # -- what the inside says

    def say(self, data: bytes, datatype: int | None) -> None:
        if not self._outer.is_closing():
            self._outer.write(data, datatype)

    def let_in(self, wanted: bool) -> None:
        """Read on from the visitor, or no more for now."""
        if wanted:
            self._outer.resume_reading()
        else:
            self._outer.pause_reading()

    def finish(self, exit_status: int | None, exit_signal: tuple[str, bool, str, str] | None) -> None:
        """The end of what ran inside: all that it said was passed on before."""
        if exit_signal is not None:
            self._outer.exit_with_signal(*exit_signal)
        elif exit_status is not None:
            self._outer.exit(exit_status)
        else:
            self.refuse(GONE)

    def refuse(self, message: str) -> None:
        """End it with a message for people."""
        if self._outer is not None and not self._outer.is_closing():
            self._outer.write_stderr(f"{message}\r\n".encode())
            self._outer.exit(REFUSED_EXIT_CODE)

    def _begin(self, **what: str) -> bool:
        self._request |= {"env": dict(self._outer.get_environment_bytes()), **what}
        self._opening = asyncio.get_running_loop().create_task(self._open())
        return True

    async def _open(self) -> None:
        try:
            connection = await self._come_in()
            inner, _ = await connection.create_session(
                lambda: _InnerSession(self), encoding=None, **self._request
            )
        except Unreachable as error:
            self.refuse(error.detail)
            return
        except (OSError, asyncssh.Error) as error:
            reason = error.reason if isinstance(error, asyncssh.Error) else str(error)
            self.refuse(f"The instance does not take this session: {reason}")
            return
        self._inner = inner
        early, self._early = self._early, []
        for act in early:
            self._pass_on(act)
        self._outer.resume_reading()

    def _pass_on(self, act: Callable[[asyncssh.SSHClientChannel[bytes]], None]) -> None:
        if self._inner is None:
            self._early.append(act)
        elif not self._inner.is_closing():
            act(self._inner)


class _InnerSession(asyncssh.SSHClientSession[bytes]):
    """The inside's side of one session."""

    def __init__(self, visitor: Session) -> None:
        self._visitor = visitor
        self._exit_status: int | None = None
        self._exit_signal: tuple[str, bool, str, str] | None = None

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._visitor.say(data, datatype)

    def eof_received(self) -> bool:
        """Kept until the end: a visitor whose own input is over closes the channel on it, and a closed one
        takes no exit code any more."""
        return True

    def exit_status_received(self, status: int) -> None:
        self._exit_status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._exit_signal = signal, core_dumped, msg, lang

    def pause_writing(self) -> None:
        self._visitor.let_in(False)

    def resume_writing(self) -> None:
        self._visitor.let_in(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._visitor.finish(self._exit_status, self._exit_signal)
