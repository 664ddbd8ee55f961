"""What is free, coming free and kept while a decision is being made.

Three things are told apart. *Room* is free now. A *release* gives cards back: at once known for an
allocation under notice, at its time limit for the others. A *keep* is an EASY shadow start (Lifka, 1995):
the cards of a blocked job at the instant when it will fit. Cards promised to a job before they are free
are *pinned*: nobody else counts on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain

import numpy as np

from starverse.domain.ids import JobId
from starverse.domain.scheduling.capacity import Bits, Ints, Layout, Room, Share, layout_of
from starverse.domain.scheduling.rank import Choice
from starverse.domain.scheduling.snapshot import (
    KILL_AFTER_SECONDS,
    RECLAIMABLE_CLAIMS,
    Claim,
    Pool,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)

BACKFILL_SECONDS_MIN = 1800
"""A reclaimable job may use kept cards when at least this long is left until they are needed: it is
reclaimed then. Shorter would cost more work than it gives (a checkpoint every 30 min by template)."""

_PLENTY = 1 << 62


@dataclass(slots=True)
class Release:
    """A running allocation as a giver of cards. ``ends_at`` seconds since the epoch, ``inf``: never.

    ``free_at`` is set once it is under notice; ``promised_to`` is the job that the cards are for.
    """

    allocation: RunningAllocation
    shares: tuple[Share, ...]
    ends_at: float
    free_at: float | None
    promised_to: JobId | None

    @property
    def reclaimable(self) -> bool:
        return self.free_at is None and self.allocation.claim in RECLAIMABLE_CLAIMS


@dataclass(frozen=True, slots=True)
class Keep:
    """A shadow start: ``bits`` per row that long jobs leave alone, and what they may use beside them."""

    job_id: JobId
    number: str
    claim: Claim
    pool: Pool
    start_at: float
    end_at: float
    shares: tuple[Share, ...]
    bits: Bits
    spare_cpus: Ints
    spare_memory_bytes: Ints


@dataclass(frozen=True, slots=True)
class Bound:
    """What the keeps leave to one job, all of them together."""

    bits: Bits
    spare_cpus: Ints
    spare_memory_bytes: Ints


@dataclass(slots=True)
class Tally:
    """The state of one decision; :func:`tally_of` makes it. ``now`` in seconds since the epoch.

    ``soon`` is the room once the ``noticed`` releases are over, ``noticed_on`` has them per row.
    ``open_promises`` are the jobs whose turn is still to come and in whose name cards were reclaimed,
    with their claims. ``later`` holds what was placed or promised in this decision as (end, shares).
    ``version`` grows with each change, ``row_versions`` per row.
    """

    layout: Layout
    snapshot: Snapshot
    now: float
    room: Room
    releases: list[Release]
    pinned: Bits
    soon: Room
    noticed: list[Release] = field(default_factory=list)
    noticed_on: dict[int, list[Release]] = field(default_factory=dict)
    open_promises: dict[JobId, Claim] = field(default_factory=dict)
    keeps: list[Keep] = field(default_factory=list)
    later: list[tuple[float, tuple[Share, ...]]] = field(default_factory=list)
    version: int = 0
    row_versions: dict[int, int] = field(default_factory=dict)

    @property
    def reclaimed_at(self) -> float:
        """When cards are free whose notice is given now."""
        return self.now + self.snapshot.grace_seconds + KILL_AFTER_SECONDS

    def bound(self, job: WaitingJob, start_at: float) -> Bound | None:
        """What keeps bind this job if it starts then; ``None``: none does."""
        binding = [keep for keep in self.keeps if self._binds(keep, job, start_at)]
        if not binding:
            return None
        return Bound(
            bits=np.bitwise_or.reduce([keep.bits for keep in binding]),
            spare_cpus=np.minimum.reduce([keep.spare_cpus for keep in binding]),
            spare_memory_bytes=np.minimum.reduce([keep.spare_memory_bytes for keep in binding]),
        )

    def room_now(self, bound: Bound | None) -> Room:
        """What a job may take at once."""
        return self.room if bound is None else within(self.room, bound)

    def room_soon(self, job: WaitingJob) -> Room:
        """Free now, or after the notices whose cards this job may count on (keeps not yet taken out).

        Not to be changed by the caller.
        """
        away = [r for r in self.noticed if self.promised_away(r, job)] if self.open_promises else []
        if not away:
            return self.soon
        room = self.soon.copy()
        for release in away:
            for share in release.shares:
                room.take(self.returned(share))
        return room

    def awaited(self, job: WaitingJob, choice: Choice) -> list[Release]:
        """The allocations under notice on the chosen nodes that this job counts on."""
        found = {r.allocation.id: r for s in choice.shares for r in self.noticed_on.get(s.row, ())}
        return [found[i] for i in sorted(found) if not self.promised_away(found[i], job)]

    def returned(self, share: Share) -> Share:
        """What comes back of a share for everybody: not what is pinned, broken or on a drained node."""
        bits = share.bits & int(self.layout.usable_bits[share.row]) & ~int(self.pinned[share.row])
        return Share(share.row, bits, share.cpus, share.memory_bytes)

    def take_now(self, job: WaitingJob, choice: Choice) -> None:
        """A placement: gone from now until the job's time limit."""
        self._consume(job, choice.shares, self.now)

    def promise(self, job: WaitingJob, choice: Choice, start_at: float) -> None:
        """Cards that are free or coming free are this job's from ``start_at``; nobody else takes them."""
        for share in choice.shares:
            self.pinned[share.row] |= np.uint64(share.bits)
        self._consume(job, choice.shares, start_at)

    def keep(self, job: WaitingJob, choice: Choice, start_at: float, room_then: Room) -> Keep:
        """Hold a shadow start; ``room_then`` is what will be free at ``start_at``."""
        n = len(self.layout.nodes)
        bits = np.zeros(n, dtype=np.uint64)
        cpus = np.full(n, _PLENTY, dtype=np.int64)
        memory = np.full(n, _PLENTY, dtype=np.int64)
        for share in choice.shares:
            bits[share.row] = np.uint64(share.bits)
            cpus[share.row] = room_then.cpus[share.row] - share.cpus
            memory[share.row] = room_then.memory_bytes[share.row] - share.memory_bytes
        end_at = start_at + job.time_limit_seconds
        pool = choice.pool.pool
        made = Keep(
            job.job_id, job.number, job.claim, pool, start_at, end_at, choice.shares, bits, cpus, memory
        )
        self.keeps.append(made)
        self.version += 1
        return made

    def notice(self, release: Release, promised_to: JobId | None) -> None:
        """This allocation gets its notice now: it is coming free."""
        release.free_at = self.reclaimed_at
        release.promised_to = promised_to
        self.version += 1
        self.count_on(release)
        for share in release.shares:
            self._touch(share.row)

    def count_on(self, release: Release) -> None:
        self.noticed.append(release)
        for share in release.shares:
            self.soon.give(self.returned(share))
            self.noticed_on.setdefault(share.row, []).append(release)

    def _consume(self, job: WaitingJob, shares: tuple[Share, ...], start_at: float) -> None:
        end_at = start_at + job.time_limit_seconds
        for keep in self.keeps:
            if self._binds(keep, job, start_at):
                for share in shares:
                    keep.spare_cpus[share.row] -= share.cpus
                    keep.spare_memory_bytes[share.row] -= share.memory_bytes
        for share in shares:
            self.room.take(share)
            self.soon.take(share)
            self._touch(share.row)
        self.later.append((end_at, shares))
        self.version += 1

    def _touch(self, row: int) -> None:
        self.row_versions[row] = self.row_versions.get(row, 0) + 1

    def _binds(self, keep: Keep, job: WaitingJob, start_at: float) -> bool:
        if start_at + job.time_limit_seconds <= keep.start_at or job.job_id == keep.job_id:
            return False
        yields = job.claim in RECLAIMABLE_CLAIMS and job.claim < keep.claim
        return not (yields and keep.start_at - start_at >= BACKFILL_SECONDS_MIN)

    def promised_away(self, release: Release, job: WaitingJob) -> bool:
        """Whether the cards are for somebody of at least this claim whose turn is still to come."""
        other = release.promised_to
        if other is None or other == job.job_id:
            return False
        return self.open_promises.get(other, Claim.IDLE) >= job.claim and other in self.open_promises


def tally_of(snapshot: Snapshot, now: datetime) -> Tally:
    """Count what is free in a snapshot. Linear in nodes and allocations."""
    layout = layout_of(snapshot.nodes, _requests(snapshot))
    room, instant, releases = layout.idle_room(), now.timestamp(), []
    for allocation in sorted(snapshot.running, key=lambda a: a.id):
        shares = layout.shares(allocation.shares)
        for share in shares:
            room.take(share)
        end, notice = allocation.expected_end_at, allocation.notice_deadline
        free_at = None if notice is None else max(notice.timestamp() + KILL_AFTER_SECONDS, instant + 1)
        ends_at = math.inf if end is None else max(end.timestamp(), instant + 1)
        releases.append(Release(allocation, shares, ends_at, free_at, allocation.reclaimed_for))
    tally = Tally(
        layout=layout,
        snapshot=snapshot,
        now=instant,
        room=room,
        releases=releases,
        pinned=np.zeros(len(layout.nodes), dtype=np.uint64),
        soon=room.copy(),
    )
    for release in releases:
        if release.free_at is not None:
            tally.count_on(release)
    return tally


def within(room: Room, bound: Bound) -> Room:
    """A room less what keeps hold of it."""
    return Room(
        bits=room.bits & ~bound.bits,
        cpus=np.minimum(room.cpus, bound.spare_cpus),
        memory_bytes=np.minimum(room.memory_bytes, bound.spare_memory_bytes),
    )


def instant_of(seconds: float) -> datetime:
    """Back to an aware UTC time, to the whole second above."""
    return datetime.fromtimestamp(math.ceil(seconds), UTC)


def _requests(snapshot: Snapshot) -> Iterator[tuple[int, int]]:
    """What runs and what waits: cards and CPUs per node."""
    running = ((len(share.card_ids), share.cpus) for a in snapshot.running for share in a.shares)
    waiting = ((job.resources.cards_per_node, job.resources.cpus_per_node) for job in snapshot.waiting)
    return chain(running, waiting)
