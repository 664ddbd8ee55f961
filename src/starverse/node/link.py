"""A launcher's connection to whoever it dials: one line stream at a time, and nothing of it blocks.

The addresses are tried in turn, for ever; one that answers is kept until it hangs up. TLS reaches only a
server whose certificate the given authority signed.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
from functools import cache
from pathlib import Path
from typing import Any

from starverse.node.addresses import SERVER_NAME, Address, parse_addresses
from starverse.node.unix_sockets import connect_unix

BACKOFF_SECONDS_MAX = 1.0
DIAL_SECONDS_MAX = 5.0
"""For connecting and shaking hands with one address."""

DEAD_SECONDS = 10
"""Without an acknowledgement a TCP connection is given up after this long."""

LINE_BYTES_MAX = 1 << 20
_FIRST_BACKOFF_SECONDS = 0.1
_UNDER_WAY = (errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN)


@cache
def client_context(authority: str) -> ssl.SSLContext:
    """Trusts what ``authority`` (PEM) signed and nothing else; raises ``ssl.SSLError`` where that is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    return context


def keep_awake(line: socket.socket) -> None:
    """Send small lines at once, and notice within seconds that the other host is no more."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, DEAD_SECONDS)


class Link:
    """Says ``hello`` first, then what :meth:`say` is given; :meth:`hear` answers whole lines.

    ``refused``: the last attempt found nobody listening at an address that had answered before.
    """

    def __init__(self, addresses: str, authority: str, hello: bytes) -> None:
        self._addresses = parse_addresses(addresses)
        self._authority = authority
        self._hello = hello
        self._at = 0
        self._answered: set[Address] = set()
        self._places: dict[Address, tuple[int, Any]] = {}
        self._socket: socket.socket | None = None
        self._shaking: ssl.SSLSocket | None = None
        self._connecting = False
        self._give_up_at = 0.0
        self._unsent = b""
        self._received = b""
        self._dial_at = 0.0
        self._backoff = _FIRST_BACKOFF_SECONDS
        self.refused = False

    @property
    def is_open(self) -> bool:
        """Whether the other end is reached; what was said since may still be on its way."""
        return self._socket is not None and not self._connecting and self._shaking is None

    @property
    def address(self) -> str:
        """The address that is dialled, or open."""
        return str(self._addresses[self._at])

    @property
    def own_host(self) -> str:
        """This host's address as the other end sees it; ``""`` where that is no TCP connection."""
        if self._socket is None or self._socket.family == socket.AF_UNIX or not self.is_open:
            return ""
        return str(self._socket.getsockname()[0])

    def wait_on(self) -> tuple[int, int] | None:
        """The open socket's number with the events of ``poll`` to wait for; ``None``: nothing."""
        if self._socket is None:
            return None
        if self._connecting or self._unsent:
            return self._socket.fileno(), select.POLLIN | select.POLLOUT
        return self._socket.fileno(), select.POLLIN

    def say(self, line: bytes, now: float) -> None:
        """Send a line, unless an earlier one is still on its way: the next one is newer anyway.

        Connects first where that is due. ``now``: a clock that does not jump.
        """
        self.tend(now)
        if self.is_open and not self._unsent:
            self._unsent = line
            self._flush(now)

    def tend(self, now: float) -> None:
        """Go on with connecting and sending as far as it goes without waiting."""
        if self._socket is None and now >= self._dial_at and self._addresses:
            self._dial(now)
        if self._socket is not None and not self.is_open:
            self._progress(now)
        if self.is_open:
            self._flush(now)

    def hear(self, now: float) -> list[bytes]:
        """The lines that have come."""
        self.tend(now)
        found: list[bytes] = []
        while self.is_open and self._socket is not None:
            try:
                part = self._socket.recv(65536)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                part = b""
            if not part or len(self._received) > LINE_BYTES_MAX:
                self._drop(now)
                break
            *lines, self._received = (self._received + part).split(b"\n")
            found += lines
        return found

    def finish(self, line: bytes, now: float) -> None:
        """Say a last line as well as can be in a moment, and hang up."""
        self.say(line, now)
        if self._socket is not None and self.is_open:
            with contextlib.suppress(OSError):
                self._socket.settimeout(0.2)
                self._socket.sendall(self._unsent)
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._shaking = None
        self._connecting = False

    def _dial(self, now: float) -> None:
        address = self._addresses[self._at]
        self._give_up_at = now + DIAL_SECONDS_MAX
        try:
            if address.path:
                line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                self._socket = line
                connect_unix(line, Path(address.path))
                self._opened(now)
                return
            family, place = self._resolve(address)
            self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._connecting = True
            answer = self._socket.connect_ex(place)
            if answer not in (0, *_UNDER_WAY):
                raise OSError(answer, "connect")
        except OSError as error:
            self._failed(now, error)

    def _resolve(self, address: Address) -> tuple[int, Any]:
        """Once for each address: a name service that hangs must not hold up a launcher again and again."""
        if address not in self._places:
            family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[
                0
            ]
            self._places[address] = (family, place)
        return self._places[address]

    def _progress(self, now: float) -> None:
        assert self._socket is not None
        try:
            if now > self._give_up_at:
                raise TimeoutError("nobody answers")
            if self._connecting:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if not poll.poll(0):
                    return
                answer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if answer:
                    raise OSError(answer, "connect")
                self._connecting = False
                keep_awake(self._socket)
                self._socket = self._shaking = client_context(self._authority).wrap_socket(
                    self._socket, server_hostname=SERVER_NAME, do_handshake_on_connect=False
                )
            assert self._shaking is not None
            self._shaking.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:  # ssl.SSLError is one
            self._failed(now, error)
            return
        self._shaking = None
        self._opened(now)

    def _opened(self, now: float) -> None:
        self._answered.add(self._addresses[self._at])
        self._unsent = self._hello
        self._received = b""
        self._backoff = _FIRST_BACKOFF_SECONDS
        self.refused = False
        self._flush(now)

    def _failed(self, now: float, error: OSError) -> None:
        """On to the next address at once; after the last of a round, wait a little."""
        if self._addresses[self._at] in self._answered:
            self.refused = error.errno in (errno.ECONNREFUSED, errno.ENOENT)
        self.close()
        self._at = (self._at + 1) % len(self._addresses)
        if self._at == 0:
            self._dial_at = now + self._backoff
            self._backoff = min(BACKOFF_SECONDS_MAX, self._backoff * 2)

    def _flush(self, now: float) -> None:
        while self._socket is not None and self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self._drop(now)
                return
            self._unsent = self._unsent[sent:]

    def _drop(self, now: float) -> None:
        """Hung up on: the same address is tried again first."""
        self.close()
        self._dial_at = now + self._backoff
