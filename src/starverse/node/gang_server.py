"""The head's end of a gang: companions come in here, and streams between ``srun`` and far nodes.

Until the workload is forked the launcher itself turns the loop (:meth:`GangServer.step_unless_served`),
since a process with threads must not be forked; from then on a thread does (:meth:`GangServer.serve`).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from starverse.domain.workloads.launch import PROTOCOL_VERSION, LauncherState, LaunchSpec
from starverse.node.addresses import join_host
from starverse.node.folder import AllocationFolder
from starverse.node.gang import (
    AWAY_SECONDS_MAX,
    GANG_SOCKET,
    SILENT_SECONDS_MAX,
    STREAMS_OPEN_MAX,
    HeadFile,
    Order,
)
from starverse.node.hello import Hello, WayAsked
from starverse.node.hub import Hub, Peer, Rules
from starverse.node.unix_sockets import bind_unix

ORDER_SECONDS = 1.0
STREAM_SECONDS_MAX = 15.0
"""For a companion to take up a stream that ``srun`` asked for."""

STREAMS_MAX = 64
"""Of one node that may wait at once."""

_FILES_FOR_OTHERS = 512
_FAULT_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """A companion as the head knows it. ``state`` ``None``: it has never come. Times by the head's clock."""

    node: str
    state: LauncherState | None = None
    connected: bool = False
    heard_at: float = 0.0
    host: str = ""

    def is_away(self, now: float) -> bool:
        """Whether it cannot be counted on right now."""
        return not self.connected or now - self.heard_at > SILENT_SECONDS_MAX / 2

    def is_lost(self, now: float) -> bool:
        quiet = now - self.heard_at
        return quiet > SILENT_SECONDS_MAX or (not self.connected and quiet > AWAY_SECONDS_MAX)

    def has_ended(self) -> bool:
        return self.state is not None and self.state.phase == "ended"


@dataclass(slots=True)
class _Stream:
    """One way to a far node: ``srun``'s end waits here until the companion has dialled for it."""

    index: int
    since: float
    waiting: Peer


class GangServer:
    """Listens from :meth:`open` to :meth:`close`; what is known of companions is in :attr:`members`."""

    def __init__(
        self, spec: LaunchSpec, folder: AllocationFolder, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._elapsed = elapsed
        self._token = secrets.token_urlsafe(32)
        self._hub = Hub(Rules(self._greet, self._hear, self._gone), elapsed)
        self._lock = threading.Lock()
        self._order = Order()
        self._due = True
        self._told_at = 0.0
        self._members = {index: Member(name) for index, name in enumerate(spec.node_names) if index}
        self._lines: dict[int, Peer] = {}
        self._streams: dict[str, _Stream] = {}
        self._joined: dict[str, int] = {}
        self._heard_until = elapsed()
        self._thread: threading.Thread | None = None
        self._closing = False
        self.own_host = ""

    def open(self) -> None:
        """Listen, and write into the folder where; raises ``OSError`` where that cannot be done."""
        from starverse.node.tls import make_identity, server_context

        identity = make_identity(datetime.now(UTC))
        both = socket.has_dualstack_ipv6()
        listener = socket.create_server(
            ("", 0),
            family=socket.AF_INET6 if both else socket.AF_INET,
            backlog=len(self._members) + STREAMS_MAX,
            dualstack_ipv6=both,
        )
        port = listener.getsockname()[1]
        self._hub.listen(listener, server_context(identity))
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._folder.run / GANG_SOCKET
        path.unlink(missing_ok=True)
        bind_unix(inside, path)
        path.chmod(0o600)
        if self._spec.unix_uid is not None and os.geteuid() == 0:
            os.chown(path, self._spec.unix_uid, self._spec.unix_uid)
        inside.listen(STREAMS_MAX)
        self._hub.listen(inside)
        addresses = ",".join(join_host(host, port) for host in own_hosts(self._spec.node))
        HeadFile(addresses, identity.authority, self._token).write(self._folder)

    def step_unless_served(self, seconds_max: float) -> None:
        """Turn the loop once, where no thread does; else let the time pass."""
        if self._thread is None:
            self._step(seconds_max)
        else:
            time.sleep(seconds_max)

    def serve(self) -> None:
        """From now on in a thread of its own."""
        self._thread = threading.Thread(target=self._serve, name="gang", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody, and forget where it was."""
        self._closing = True
        if self._thread is not None:
            self._hub.wake()
            self._thread.join(ORDER_SECONDS * 5)
        self._hub.close()
        (self._folder.run / GANG_SOCKET).unlink(missing_ok=True)

    def order(self, **changes: Any) -> None:
        """Change what is wanted of all companions; from any thread."""
        with self._lock:
            self._order = replace(self._order, **changes)
            self._due = True
        self._hub.wake()

    @property
    def members(self) -> Mapping[int, Member]:
        """Every companion by its node number."""
        with self._lock:
            return dict(self._members)

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """Every node with the address by which the others reach it; all have to be there."""
        others = [(member.node, member.host) for member in self.members.values()]
        return ((self._spec.node_names[0], self.own_host), *others)

    def wake(self) -> None:
        """Have what has come read now."""
        self._hub.wake()

    def now(self) -> float:
        """The clock of :class:`Member`'s times."""
        return self._elapsed()

    @property
    def heard_until(self) -> float:
        """Up to when everything that companions said was heard: no later time may judge who is silent."""
        return self._heard_until

    @property
    def is_served(self) -> bool:
        """Whether a thread does it."""
        return self._thread is not None

    def _serve(self) -> None:
        """The thread: whatever happens, it goes on until :meth:`close`."""
        while not self._closing:
            try:
                self._step(ORDER_SECONDS / 2)
            except Exception:
                self._hub.note_fault()
                time.sleep(_FAULT_PAUSE_SECONDS)

    def _step(self, seconds_max: float) -> None:
        self._hub.step(seconds_max)
        self._heard_until = self._elapsed()
        self._tend()

    # -- lines

    def _greet(self, peer: Peer, text: bytes) -> None:
        if not peer.host:
            self._begin_stream(peer, WayAsked.from_json(text.decode()).node_index)
            return
        hello = Hello.from_json(text.decode())
        if hello.version != PROTOCOL_VERSION or hello.allocation_id != self._spec.allocation_id:
            raise ValueError("not of this gang")
        if not hmac.compare_digest(self._token.encode(), hello.token.encode()):
            raise ValueError("wrong token")
        if hello.kind == "stream":
            self._join_stream(peer, hello.stream)
            return
        index = hello.node_index
        if hello.kind != "companion" or index not in self._members:
            raise ValueError("no companion of ours")
        earlier = self._lines.pop(index, None)
        if earlier is not None:
            self._hub.drop(earlier)
        peer.owner = index
        self._lines[index] = peer
        self.own_host = self.own_host or peer.own_host
        self._note(index, connected=True, host=peer.host)
        self._due = True

    def _hear(self, peer: Peer, text: bytes) -> None:
        state = LauncherState.from_json(text.decode())
        if not isinstance(peer.owner, int) or state.allocation_id != self._spec.allocation_id:
            raise ValueError("speaks for another allocation")
        self._note(peer.owner, state=state)

    def _gone(self, peer: Peer) -> None:
        if isinstance(peer.owner, int):
            if self._lines.get(peer.owner) is peer:
                del self._lines[peer.owner]
                self._note(peer.owner, connected=False)
        elif isinstance(peer.owner, str):
            self._streams.pop(peer.owner, None)
            self._joined.pop(peer.owner, None)

    def _note(self, index: int, **news: Any) -> None:
        with self._lock:
            self._members[index] = replace(self._members[index], heard_at=self._elapsed(), **news)

    # -- streams

    def _begin_stream(self, peer: Peer, index: int) -> None:
        """``srun`` wants to speak with the agent of a node; it waits until that node has dialled for it."""
        waiting = sum(stream.index == index for stream in self._streams.values())
        open_ones = waiting + sum(joined == index for joined in self._joined.values())
        if index not in self._lines or waiting >= STREAMS_MAX or open_ones >= STREAMS_OPEN_MAX:
            raise ValueError("that node cannot be reached")
        if len(self._streams) + len(self._joined) >= _streams_of_all_max():
            raise ValueError("no files for a further way")
        name = secrets.token_urlsafe(16)
        peer.owner = name
        self._streams[name] = _Stream(index, self._elapsed(), peer)
        self._hub.hold(peer)
        self._due = True

    def _join_stream(self, peer: Peer, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream is None:
            raise ValueError("nobody waits for it")
        peer.owner = name
        self._joined[name] = stream.index
        self._hub.join(stream.waiting, peer)

    def _tend(self) -> None:
        """Tell companions what is wanted, when it changed or a second went by; give up streams."""
        now = self._elapsed()
        for stream in list(self._streams.values()):
            if now - stream.since > STREAM_SECONDS_MAX:
                self._hub.drop(stream.waiting)
        with self._lock:
            order, due = self._order, self._due
            self._due = False
        if not due and now - self._told_at < ORDER_SECONDS:
            return
        self._told_at = now
        for index, peer in list(self._lines.items()):
            names = tuple(name for name, stream in self._streams.items() if stream.index == index)
            if not self._hub.tell(peer, replace(order, streams=names).to_json().encode() + b"\n"):
                self._due = True


def _streams_of_all_max() -> int:
    """Each takes two of the files that this process may have open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = files == resource.RLIM_INFINITY
    return STREAMS_OPEN_MAX * 64 if unlimited else max(STREAMS_MAX, (files - _FILES_FOR_OTHERS) // 2)


def own_hosts(node: str) -> tuple[str, ...]:
    """Names and addresses by which other nodes may reach this one, the likeliest first.

    A companion tries them in turn; whoever answers at a wrong one has not this gang's certificate.
    """
    found = [node, os.uname().nodename]
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))  # sends nothing: it only picks the way out
            found.append(str(probe.getsockname()[0]))
    found.append("127.0.0.1")
    return tuple(dict.fromkeys(found))
