"""The listening end of launchers' connections: many of them in one loop, and no slow one holds up another.

A connection shows itself by its first line (TLS before that, where it came in by TCP), then speaks lines, or
its bytes are passed on to another one. What has not shown itself in time is hung up on, and only so many may
be about it at once. :meth:`Hub.step` does what can be done without waiting for anybody.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import ssl
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from starverse.node.link import keep_awake

LINE_BYTES_MAX = 1 << 20
HELLO_BYTES_MAX = 4096
HELLO_SECONDS_MAX = 5.0
STRANGERS_MAX = 256
"""Connections that have not shown themselves yet; of more than these the oldest is hung up on."""

WAITING_BYTES_MAX = 1 << 20
"""Of a passed-on connection: above this its source is not read until its target has taken some."""

FAULTS_TOLD_MAX = 20
"""Of this many that should not be the whole story is written to stderr, so that nobody can fill a disk."""

_READS_MAX = 16
_SEND_BYTES = 16384
_BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Peer:
    """One connection. ``owner`` is whatever its first line made of it; ``None``: still a stranger."""

    def __init__(self, connection: socket.socket, since: float) -> None:
        self.socket = connection
        self.since = since
        self.shaking = isinstance(connection, ssl.SSLSocket)
        self.owner: object = None
        self.received = b""
        self.unsent = bytearray()
        self.watched = selectors.EVENT_READ
        self.partner: Peer | None = None
        self.held = False
        self.closing = False

    @property
    def host(self) -> str:
        """The other end's address; ``""`` for a Unix socket."""
        return "" if self.socket.family == socket.AF_UNIX else _plain(self.socket.getpeername()[0])

    @property
    def own_host(self) -> str:
        """This end's address, as the other one reached it."""
        return "" if self.socket.family == socket.AF_UNIX else _plain(self.socket.getsockname()[0])


@dataclass(frozen=True, slots=True)
class Rules:
    """What a hub does with lines. ``greet`` sets the peer's ``owner`` or raises; ``hear`` gets each further
    line. ``ValueError`` and ``OSError`` refuse a line and hang up; so does anything else that is raised, and
    is told to stderr. ``gone`` is told of every peer that had an owner."""

    greet: Callable[[Peer, bytes], None]
    hear: Callable[[Peer, bytes], None]
    gone: Callable[[Peer], None]


class Hub:
    """Listeners and peers. All of it from one thread, but :meth:`wake`."""

    def __init__(self, rules: Rules, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules
        self._elapsed = elapsed
        self._selector = selectors.DefaultSelector()
        self._wake_pair = socket.socketpair()
        for end in self._wake_pair:
            end.setblocking(False)
        self._selector.register(self._wake_pair[0], selectors.EVENT_READ)
        self._strangers: list[Peer] = []
        self._again: set[Peer] = set()
        self._listeners: list[socket.socket] = []
        self._faults_told = 0
        self.peers: set[Peer] = set()

    def listen(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Take connections from a listening socket, which is the hub's from now on."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, (listener, context))

    def wake(self) -> None:
        """End the wait of a :meth:`step`; from any thread."""
        with contextlib.suppress(OSError):
            self._wake_pair[1].send(b"!")

    def step(self, seconds_max: float) -> None:
        """Wait for something to do, at most so long, and do it."""
        self._drop_overdue()
        for key, event in self._selector.select(0 if self._again else seconds_max):
            if isinstance(key.data, Peer):
                if event & selectors.EVENT_WRITE:
                    self._for_one(self._flush, key.data)
                if event & selectors.EVENT_READ and key.data in self.peers:
                    self._for_one(self._read, key.data)
            elif key.data is not None:
                self._accept(*key.data)
            else:
                with contextlib.suppress(OSError):
                    self._wake_pair[0].recv(4096)
        again, self._again = self._again, set()
        for peer in again:
            if peer in self.peers:
                self._for_one(self._read, peer)

    def note_fault(self) -> None:
        """Tell of the exception that is being handled, which nobody expected."""
        self._faults_told += 1
        if self._faults_told <= FAULTS_TOLD_MAX:
            traceback.print_exc()

    def tell(self, peer: Peer, line: bytes) -> bool:
        """Send a line; ``False`` where an earlier one is still on its way or nobody is there."""
        if peer.unsent or peer not in self.peers:
            return False
        peer.unsent += line
        self._flush(peer)
        return True

    def hold(self, peer: Peer) -> None:
        """Read no more from it until it is joined to another one."""
        peer.held = True
        self._look_out(peer)

    def join(self, first: Peer, second: Peer) -> None:
        """From now on whatever comes from one goes to the other; when one ends, so does the other."""
        first.partner, second.partner = second, first
        for source, target in ((first, second), (second, first)):
            target.unsent += source.received
            source.received = b""
            source.held = False
        for peer in (first, second):
            self._flush(peer)
            if peer in self.peers and peer.partner is not None:
                self._again.add(peer)

    def adopt(self, connection: socket.socket, owner: object) -> Peer:
        """A connection that was made from here."""
        connection.setblocking(False)
        peer = Peer(connection, self._elapsed())
        peer.owner = owner
        self._add(peer)
        return peer

    def release(self, peer: Peer) -> socket.socket:
        """Let go of a connection that is somebody else's from now on; blocking, as nobody here reads it."""
        self._forget(peer)
        peer.socket.setblocking(True)
        return peer.socket

    def drop(self, peer: Peer) -> None:
        """Hang up; what a partner has not been sent yet is still sent to it."""
        if peer not in self.peers:
            return
        self._forget(peer)
        peer.socket.close()
        if peer.partner is not None:
            partner, peer.partner = peer.partner, None
            partner.partner, partner.closing = None, True
            self._flush(partner)
        if peer.owner is not None:
            try:
                self._rules.gone(peer)
            except Exception:
                self.note_fault()

    def close(self) -> None:
        """Hang up on everybody and listen no more."""
        for peer in list(self.peers):
            self.drop(peer)
        for listener in self._listeners:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(listener)
            listener.close()
        self._selector.close()
        for end in self._wake_pair:
            end.close()

    def _forget(self, peer: Peer) -> None:
        self.peers.discard(peer)
        self._again.discard(peer)
        if peer in self._strangers:
            self._strangers.remove(peer)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.socket)

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self._strangers:
                self.drop(self._strangers[0])
            return
        try:
            connection.setblocking(False)
            if connection.family != socket.AF_UNIX:
                keep_awake(connection)
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError:
            connection.close()
            return
        if len(self._strangers) >= STRANGERS_MAX:
            self.drop(self._strangers[0])
        peer = Peer(connection, self._elapsed())
        self._strangers.append(peer)
        self._for_one(self._add, peer)

    def _for_one(self, act: Callable[[Peer], None], peer: Peer) -> None:
        """Whatever goes wrong with one connection ends that one and no other."""
        try:
            act(peer)
        except Exception:
            self.note_fault()
            self.drop(peer)

    def _add(self, peer: Peer) -> None:
        self.peers.add(peer)
        self._selector.register(peer.socket, selectors.EVENT_READ, peer)

    def _drop_overdue(self) -> None:
        now = self._elapsed()
        while self._strangers and now - self._strangers[0].since > HELLO_SECONDS_MAX:
            self.drop(self._strangers[0])

    def _shake(self, peer: Peer) -> None:
        assert isinstance(peer.socket, ssl.SSLSocket)
        try:
            peer.socket.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._watch(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
            return
        except OSError:
            self.drop(peer)
            return
        peer.shaking = False
        self._look_out(peer)
        self._again.add(peer)

    def _read(self, peer: Peer) -> None:
        if peer.shaking:
            self._shake(peer)
            return
        for _ in range(_READS_MAX):
            if peer.held or peer.closing or self._is_full(peer):
                self._look_out(peer)
                return
            try:
                part = peer.socket.recv(65536)
            except _BUSY:
                return
            except OSError:
                part = b""
            if not part:
                self.drop(peer)
                return
            self._take(peer, part)
            if peer not in self.peers:
                return
        self._again.add(peer)  # TLS may hold more of it than the kernel knows

    def _take(self, peer: Peer, part: bytes) -> None:
        if peer.partner is not None:
            peer.partner.unsent += part
            self._flush(peer.partner)
            return
        peer.received += part
        while not peer.held and peer.partner is None and b"\n" in peer.received and peer in self.peers:
            line, peer.received = peer.received.split(b"\n", 1)
            self._hear(peer, line)
        if len(peer.received) > (HELLO_BYTES_MAX if peer.owner is None else LINE_BYTES_MAX):
            self.drop(peer)

    def _hear(self, peer: Peer, line: bytes) -> None:
        try:
            if peer.owner is None:
                self._rules.greet(peer, line)
                if peer in self._strangers:
                    self._strangers.remove(peer)
            else:
                self._rules.hear(peer, line)
        except (ValueError, OSError):
            self.drop(peer)
        except Exception:
            self.note_fault()
            self.drop(peer)

    def _is_full(self, peer: Peer) -> bool:
        return peer.partner is not None and len(peer.partner.unsent) > WAITING_BYTES_MAX

    def _flush(self, peer: Peer) -> None:
        if peer.shaking or peer not in self.peers:
            if peer.shaking and peer in self.peers:
                self._shake(peer)
            return
        was_full = len(peer.unsent) > WAITING_BYTES_MAX
        try:
            while peer.unsent:
                sent = peer.socket.send(bytes(peer.unsent[:_SEND_BYTES]))
                del peer.unsent[:sent]
        except _BUSY:
            pass
        except OSError:
            self.drop(peer)
            return
        if peer.closing and not peer.unsent:
            self.drop(peer)
            return
        if was_full and len(peer.unsent) <= WAITING_BYTES_MAX and peer.partner is not None:
            self._again.add(peer.partner)
            self._look_out(peer.partner)
        self._look_out(peer)

    def _look_out(self, peer: Peer) -> None:
        """Wait for what this peer can do next."""
        if peer not in self.peers:
            return
        reads = not (peer.held or peer.closing or self._is_full(peer))
        writes = bool(peer.unsent)
        self._watch(peer, reads * selectors.EVENT_READ | writes * selectors.EVENT_WRITE)

    def _watch(self, peer: Peer, events: int) -> None:
        if events == peer.watched:
            return
        if not events:
            self._selector.unregister(peer.socket)
        elif not peer.watched:
            self._selector.register(peer.socket, events, peer)
        else:
            self._selector.modify(peer.socket, events, peer)
        peer.watched = events


def _plain(host: object) -> str:
    """An IPv4 address as such, where a listener for both kinds shows it as IPv6."""
    return str(host).removeprefix("::ffff:")
