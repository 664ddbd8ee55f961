"""Which loops this server runs.

Target set: a server runs a loop if and only if it holds its lease; it holds a fair share of them among the
servers that live.

A server says every ``BEAT_SECONDS`` that it lives, keeps its leases, takes those that are free and lets go
of what is more than its share. It counts on a lease until ``LEASE_SECONDS`` after it asked for it, by a
clock of its own that does not jump; whatever it still does later is refused by the fence (``db/leases.py``).
So the leases of a server that died move within ``MOVED_WITHIN_SECONDS``, and those of one that ended move
at once.

A database that cannot be shared has one server: it takes every lease as it starts, for as long as it lives.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from starverse.app.ports import Wakeups
from starverse.app.servers import KnownServers
from starverse.app.views import ReconcilerStatus
from starverse.db import leases, servers
from starverse.db.leases import DatabaseClock, Lease, LeaseLost, Transaction
from starverse.db.session import Database, guarded
from starverse.domain.errors import Conflict, StarverseError
from starverse.domain.timespan import format_instant, parse_instant

LEASE_SECONDS = 6.0
BEAT_SECONDS = 2.0
MOVED_WITHIN_SECONDS = 10.0
WAKE = "leases"
"""The wake-up after which servers look at the leases at once."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shares:
    """What a server does about the leases: keep, try to take, let go."""

    keep: tuple[Lease, ...]
    take: tuple[Lease, ...]
    let_go: tuple[Lease, ...]


def share_out(rows: Sequence[Lease], me: str, living: int, busy: Collection[str], now: datetime) -> Shares:
    """A fair share of the leases for one of ``living`` servers.

    What is free is taken up to the share, what is more than the share is let go, unless its loop is
    ``busy`` with a round.
    """
    share = -(-len(rows) // max(1, living))
    mine = [row for row in rows if row.holder == me]
    free = [row for row in rows if row.holder != me and row.free_at(now)]
    surplus = max(0, len(mine) - share)
    let_go = [row for row in reversed(mine) if row.name not in busy][:surplus]
    keep = [row for row in mine if row not in let_go]
    return Shares(tuple(keep), tuple(free[: max(0, share - len(mine))]), tuple(let_go))


@dataclass(slots=True)
class _Held:
    """``good_until`` by this server's clock that does not jump."""

    lease: Lease
    good_until: float


@dataclass(slots=True)
class Terms:
    """How leases are held. ``clock``: the database's; ``elapsed``: seconds that do not jump.

    ``alone``: there is no other server, so every lease is free; ``None``: where the database is not shared.
    """

    lease_seconds: float = LEASE_SECONDS
    alone: bool | None = None
    clock: DatabaseClock = leases.clock
    elapsed: Callable[[], float] = field(default=lambda: time.clock_gettime(time.CLOCK_BOOTTIME))


class Leadership:
    """The leases of one server. Safe to call from any thread."""

    def __init__(
        self,
        database: Database,
        known: KnownServers,
        names: Sequence[str],
        wakeups: Wakeups,
        terms: Terms | None = None,
    ) -> None:
        self.me = known.me
        self._known = known
        self._database = database
        self._names = tuple(names)
        self._wakeups = wakeups
        self._terms = terms or Terms()
        self._alone = not database.shared if self._terms.alone is None else self._terms.alone
        self._held: dict[str, _Held] = {}
        self._busy: set[str] = set()
        self._rows: dict[str, Lease] = {}
        self._fault = ""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._statuses: Callable[[], Sequence[ReconcilerStatus]] = lambda: ()

    # -- what loops ask

    def holds(self, name: str) -> bool:
        """Whether this server may run the loop now."""
        return self._valid(name) is not None

    @contextmanager
    def round_of(self, name: str) -> Iterator[bool]:
        """Run one round in the block if it is given true: each write in it is fenced by the lease."""
        with self._lock:
            lease = self._valid(name)
            if lease is not None:
                self._busy.add(name)
        if lease is None:
            yield False
            return
        try:
            with guarded(partial(self._require, lease)):
                yield True
        finally:
            with self._lock:
                self._busy.discard(name)

    def why_not(self, name: str) -> str:
        """Why this server does not run the loop, in words."""
        if self._fault:
            return f"waits: {self._fault}"
        row = self._rows.get(name)
        if row is None or not row.holder or row.holder == self.me.id:
            return "waits for its lease"
        urls = {server.id: server.api_url for server in self._known.living}
        return f"runs on {urls.get(row.holder) or row.holder}"

    def fault(self) -> str:
        """Why no lease is kept or taken just now; ``""``: they are."""
        return self._fault

    def reports(self) -> Mapping[str, ReconcilerStatus]:
        """What other servers say about the loops that they run, as of the last beat."""
        found = {row.name: _read_report(row.report) for row in self._rows.values() if row.report}
        return {name: status for name, status in found.items() if status is not None}

    # -- its own loop

    def start(self, statuses: Callable[[], Sequence[ReconcilerStatus]]) -> None:
        """Beat in a thread from now on, where the database is shared; ``statuses`` are told to others."""
        self._statuses = statuses
        if self._alone:
            return
        self._wakeups.listen(WAKE, self._woken.set)
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let go of everything; others take it at once."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(BEAT_SECONDS + 10)
        with self._lock:
            held, self._held = [one.lease for one in self._held.values()], {}
        try:
            with self._database.write() as connection:
                for lease in held:
                    leases.release(connection, lease)
                servers.remove(connection, self.me.id)
        except StarverseError as error:  # they run out by themselves
            log.warning("leases not released", detail=error.detail)
        self._wakeups.wake(WAKE)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait(BEAT_SECONDS)
            self._woken.clear()
            if not self._stopping.is_set():
                self.try_beat()

    def try_beat(self) -> None:
        """:meth:`beat`; a fault is kept for :meth:`why_not`, and the next beat comes in its time."""
        try:
            self.beat()
        except Exception as error:  # this thread must survive whatever one beat meets
            detail = error.detail if isinstance(error, StarverseError) else f"{type(error).__name__}: {error}"
            if detail != self._fault and not isinstance(error, Conflict):
                log.warning("leases not kept", detail=detail)
            self._fault = detail

    def beat(self) -> None:
        """Say that this server lives, keep, take and let go of leases: one transaction."""
        asked = self._terms.elapsed()
        with self._lock:
            busy = frozenset(self._busy)
        with self._database.write() as connection:
            now = self._terms.clock(connection)
            servers.note_alive(connection, self.me, now)
            if self._alone:
                servers.remove_others(connection, self.me.id)
            since = now - timedelta(seconds=self._terms.lease_seconds)
            living = (self.me,) if self._alone else servers.living(connection, since)
            held = self._renew(connection, busy, len(living), now)
            rows = {row.name: row for row in leases.load(connection)}
        good_until = float("inf") if self._alone else asked + self._terms.lease_seconds
        with self._lock:
            gained = [name for name in held if self._valid(name) is None]
            self._held = {name: _Held(lease, good_until) for name, lease in held.items()}
            self._rows, self._fault = rows, ""
            self._known.note(living)
        for name in gained:
            self._wakeups.wake_here(name)

    def _renew(
        self, connection: Transaction, busy: Collection[str], living: int, now: datetime
    ) -> dict[str, Lease]:
        until = now + timedelta(seconds=self._terms.lease_seconds)
        rows = [row for row in leases.load(connection) if row.name in self._names]
        if {row.name for row in rows} != set(self._names):
            leases.ensure(connection, self._names)
            rows = [row for row in leases.load(connection) if row.name in self._names]
        free_from = datetime.max.replace(tzinfo=UTC) if self._alone else now
        shares = share_out(rows, self.me.id, living, busy, free_from)
        reports = {} if self._alone else self._own_reports()
        held: dict[str, Lease] = {}
        for row in shares.keep:
            if leases.renew(connection, row, until, reports.get(row.name, "")):
                held[row.name] = replace(row, expires_at=until)
        for row in shares.take:
            taken = leases.take(connection, row, self.me.id, until)
            if taken is not None:
                held[row.name] = taken
        for row in shares.let_go:
            leases.release(connection, row)
        return held

    def _own_reports(self) -> dict[str, str]:
        """What is told of the loops that were run here: nothing of those whose leases only just came back."""
        own = [status for status in self._statuses() if self.holds(status.name)]
        return {status.name: _write_report(replace(status, server=self.me.api_url)) for status in own}

    def _valid(self, name: str) -> Lease | None:
        held = self._held.get(name)
        return held.lease if held is not None and self._terms.elapsed() < held.good_until else None

    def _require(self, lease: Lease, connection: Transaction) -> None:
        try:
            leases.require(connection, lease)
        except LeaseLost:
            with self._lock:
                held = self._held.get(lease.name)
                if held is not None and held.lease.token == lease.token:
                    del self._held[lease.name]
            raise


def _write_report(status: ReconcilerStatus) -> str:
    last = None if status.last_at is None else format_instant(status.last_at)
    return json.dumps(asdict(status) | {"last_at": last}, separators=(",", ":"))


def _read_report(text: str) -> ReconcilerStatus | None:
    try:
        raw = json.loads(text)
        last = None if raw["last_at"] is None else parse_instant(raw["last_at"])
        return ReconcilerStatus(**raw | {"last_at": last})
    except (ValueError, TypeError, KeyError):  # of another version
        return None
