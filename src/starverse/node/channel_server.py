"""The platform's end of the launchers' channel: one thread, a Unix socket, TLS where nodes are far.

What launchers say is kept for :meth:`ChannelServer.newest`; their folders say the same. What is wanted of
them is sent at once, and again as they connect. By TLS a launcher also reaches the API for its shims.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from starverse.domain.workloads.launch import PROTOCOL_VERSION, Desired, LauncherState
from starverse.node.addresses import join_host, split_host
from starverse.node.api_proxy import CONNECTIONS_MAX
from starverse.node.hello import Hello
from starverse.node.hub import Hub, Peer, Rules
from starverse.node.streams import (
    GO_AHEAD,
    STREAM_SECONDS_MAX,
    StreamDesk,
    StreamWish,
    read_relayed,
    relay_text,
    with_addresses,
)
from starverse.node.unix_sockets import bind_unix, connect_unix

BACKLOG = 1024
FAULT_PAUSE_SECONDS = 0.05
_EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Answers:
    """What the server asks its engine: the token that a launcher must know, and what is wanted of it."""

    token_of: Callable[[str], str | None]
    desired_of: Callable[[str], Desired | None]
    news: Callable[[], None]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Where to listen by TLS (``HOST:PORT``; port 0 takes a free one) with the certificates kept in
    ``folder``, and the Unix socket of the API that launchers far away are passed on to. Launchers are told
    the same address, with the name of this host where it is ``0.0.0.0``."""

    address: str
    folder: Path
    api_socket: Path

    @property
    def advertised(self) -> str:
        """What launchers are told to dial; with port 0 only the started server knows it."""
        host, port = split_host(self.address)
        return join_host(socket.gethostname() if host in _EVERYWHERE else host, port)

    def authority(self) -> str:
        """The authority (PEM) that launchers are to pin, made where there is none yet.

        Raises ``OSError`` or ``ValueError`` where the folder cannot be used.
        """
        from starverse.node.tls import keep_identity

        return keep_identity(self.folder, datetime.now(UTC)).authority


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose connection it is, and what it is for: ``launcher``, ``api`` or ``stream``."""

    allocation_id: str
    kind: str


class ChannelServer:
    """Listens from :meth:`start` to :meth:`close`. ``authority`` (PEM) and ``tls_address`` (``HOST:PORT``
    as bound) are ``""`` without TLS. ``relay`` tells the other servers a word, for their :meth:`hear`."""

    def __init__(self, path: Path, answers: Answers, tls: TlsSettings | None = None) -> None:
        self._path = path
        self._answers = answers
        self._tls = tls
        self._hub: Hub | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._newest: dict[str, LauncherState] = {}
        self._to_send: dict[str, Desired] = {}
        self._lines: dict[str, set[Peer]] = {}
        self._api_lines: dict[str, int] = {}
        self._desk = StreamDesk()
        self._closing = False
        self.relay: Callable[[str], None] = lambda _word: None
        self.authority = ""
        self.tls_address = ""

    def start(self) -> None:
        """Take over the socket's path; whoever listened there before is dead (a lock file saw to that).

        Raises ``OSError`` where an address or the folder of the certificates cannot be used, ``ValueError``
        where it is none.
        """
        self._closing = False
        self._hub = Hub(Rules(self._greet, self._hear, self._gone))
        self._hub.listen(self._listen_unix())
        if self._tls is not None:
            self._listen_tls(self._hub, self._tls)
        self._thread = threading.Thread(target=self._serve, name="channel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody; launchers dial again for ever."""
        if self._thread is not None:
            self._closing = True
            self._wake()
            self._thread.join()
            self._thread = None
        if self._hub is not None:
            self._hub.close()
            self._hub = None
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    def newest(self, allocation_id: str) -> LauncherState | None:
        """What its launcher said last on this server's watch."""
        with self._lock:
            return self._newest.get(allocation_id)

    def send(self, allocation_id: str, desired: Desired) -> None:
        """Tell a connected launcher; one that is not will hear as it connects."""
        with self._lock:
            self._to_send[allocation_id] = desired
        self._wake()

    def open_stream(
        self, allocation_id: str, kind: str, seconds_max: float = STREAM_SECONDS_MAX
    ) -> socket.socket:
        """A blocking socket to the agent of a sandbox, by way of its launcher. Raises
        :class:`~starverse.engines.base.EngineUnavailable` where none came in time."""
        return self._desk.ask(allocation_id, kind, self._ask, seconds_max)

    def hear(self, word: str) -> bool:
        """Take what another server's ``relay`` told; ``False``: it is not for here."""
        found = read_relayed(word)
        if found is None:
            return False
        self._desk.pass_on(*found)
        self._wake()
        return True

    def _ask(self, allocation_id: str, wish: StreamWish) -> None:
        self._wake()
        if not self._lines.get(allocation_id):
            addresses = ",".join(filter(None, (str(self._path), self.tls_address)))
            self.relay(relay_text(allocation_id, with_addresses(wish, addresses)))

    def forget(self, allocation_id: str) -> None:
        with self._lock:
            self._newest.pop(allocation_id, None)

    def _listen_unix(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        bind_unix(listener, self._path)
        self._path.chmod(0o600)
        listener.listen(BACKLOG)
        return listener

    def _listen_tls(self, hub: Hub, settings: TlsSettings) -> None:
        from starverse.node.tls import keep_identity, server_context

        identity = keep_identity(settings.folder, datetime.now(UTC))
        host, port = split_host(settings.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
            hub.listen(listener, server_context(identity))
        except OSError:
            listener.close()
            raise
        self.authority = identity.authority
        bound = replace(settings, address=join_host(host, listener.getsockname()[1]))
        self.tls_address = bound.advertised

    def _wake(self) -> None:
        if self._hub is not None:
            self._hub.wake()

    def _serve(self) -> None:
        """The thread: whatever happens, it goes on until :meth:`close`."""
        assert self._hub is not None
        while not self._closing:
            try:
                self._hub.step(1.0)
                self._send_waiting()
            except Exception:
                self._hub.note_fault()
                time.sleep(FAULT_PAUSE_SECONDS)

    def _send_waiting(self) -> None:
        with self._lock:
            waiting, self._to_send = self._to_send, {}
        for allocation_id, desired in waiting.items():
            for peer in tuple(self._lines.get(allocation_id, ())):
                self._tell(peer, desired)
        for allocation_id in self._desk.asked():
            for peer in tuple(self._lines.get(allocation_id, ())):
                self._tell_wishes(peer, allocation_id)

    def _greet(self, peer: Peer, text: bytes) -> None:
        """The first line: who it is and whether it knows the token; raises ``ValueError`` otherwise."""
        hello = Hello.from_json(text.decode())
        allocation_id, kind = hello.allocation_id, hello.kind
        token = self._answers.token_of(allocation_id)
        if hello.version != PROTOCOL_VERSION or not token:
            raise ValueError("not a launcher of ours")
        if not hmac.compare_digest(token.encode(), hello.token.encode()):
            raise ValueError("wrong token")
        if kind == "api":
            self._pass_on(peer, allocation_id)
            return
        if kind == "stream":
            self._take_stream(peer, hello)
            return
        if kind != "launcher":
            raise ValueError("no kind of ours")
        peer.owner = _Owner(allocation_id, kind)
        self._lines.setdefault(allocation_id, set()).add(peer)
        desired = self._answers.desired_of(allocation_id)
        if desired is not None:
            self._tell(peer, desired)
        self._tell_wishes(peer, allocation_id)

    def _pass_on(self, peer: Peer, allocation_id: str) -> None:
        """Bytes between a shim far away and this server's API; raises ``ValueError`` where it is down."""
        assert self._hub is not None
        if self._tls is None or self._api_lines.get(allocation_id, 0) >= CONNECTIONS_MAX:
            raise ValueError("no further connection to the API")
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connect_unix(line, self._tls.api_socket)
        except OSError as error:
            line.close()
            raise ValueError("the API does not listen") from error
        peer.owner = _Owner(allocation_id, "api")
        self._api_lines[allocation_id] = self._api_lines.get(allocation_id, 0) + 1
        self._hub.join(peer, self._hub.adopt(line, None))

    def _take_stream(self, peer: Peer, hello: Hello) -> None:
        """A stream that was asked for: from a Unix socket the connection itself, else one that it is passed
        on to; raises ``ValueError`` where nobody waits for it."""
        assert self._hub is not None
        if not self._desk.is_wanted(hello.allocation_id, hello.stream):
            raise ValueError("nobody waits for this stream")
        peer.owner = _Owner(hello.allocation_id, "stream")
        if peer.socket.family == socket.AF_UNIX:
            peer.socket.sendall(GO_AHEAD)
            line = self._hub.release(peer)
        else:
            line, inner = socket.socketpair()
            peer.unsent += GO_AHEAD
            self._hub.join(peer, self._hub.adopt(inner, None))
        if not self._desk.deliver(hello.stream, line):
            line.close()

    def _hear(self, peer: Peer, text: bytes) -> None:
        assert isinstance(peer.owner, _Owner)
        allocation_id = peer.owner.allocation_id
        state = LauncherState.from_json(text.decode())
        if state.allocation_id != allocation_id:
            raise ValueError("speaks for another allocation")
        with self._lock:
            before = self._newest.get(allocation_id)
            self._newest[allocation_id] = state
        if before is None or replace(before, alive_at=state.alive_at, activity=state.activity) != state:
            self._answers.news()

    def _gone(self, peer: Peer) -> None:
        assert isinstance(peer.owner, _Owner)
        allocation_id = peer.owner.allocation_id
        if peer.owner.kind == "stream":
            return
        if peer.owner.kind == "api":
            self._api_lines[allocation_id] -= 1
            if not self._api_lines[allocation_id]:
                del self._api_lines[allocation_id]
            return
        others = self._lines.get(allocation_id, set())
        others.discard(peer)
        if not others:
            self._lines.pop(allocation_id, None)

    def _tell_wishes(self, peer: Peer, allocation_id: str) -> None:
        """Those that this connection was not told yet; where a line is still on its way, at the next turn."""
        assert self._hub is not None
        for wish in self._desk.untold(allocation_id, peer):
            if self._hub.tell(peer, wish.to_line()):
                self._desk.note_told(wish, peer)

    def _tell(self, peer: Peer, desired: Desired) -> None:
        """Where an older one is still on its way the file has the newest."""
        assert self._hub is not None
        self._hub.tell(peer, desired.to_json().encode() + b"\n")
