"""When a waiting job, or one not yet submitted, will start: the queue played forward on expected run times.

Cards are counted by pool, nodes and links are not looked at: an estimate, told as earliest, expected and
latest. Each of the three plays the same queue with run times of another quantile, none beyond its time limit.
Small jobs slip in beside a gang that gathers its cards, as the scheduler lets them. What is submitted later
and goes first is not known; neither is a reclaim.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from starverse.domain.ids import JobId
from starverse.domain.scheduling.queue_order import CLAIMS_IN_ORDER, ClaimQueue
from starverse.domain.scheduling.run_times import RunFeatures, RunTimes
from starverse.domain.scheduling.snapshot import NodeState, Pool, RunningAllocation, Snapshot, WaitingJob
from starverse.domain.scheduling.team_usage import COMMITTED_SECONDS, with_commitments
from starverse.domain.workloads.specs import Resources

SHARES = (0.1, 0.5, 0.9)
"""Quantiles of run times behind earliest, expected and latest."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job in the queue: where it may run, on how many cards, for how many seconds."""

    pools: Sequence[Pool]
    cards: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StartBand:
    """Instants of the start; ``None`` of all three: its pools never have as many cards."""

    earliest: datetime
    expected: datetime
    latest: datetime


class CardTimes:
    """When the cards of a pool come free, in seconds from now; the soonest go first."""

    def __init__(self, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        self._times = [(0.0, free)] if free else []
        self._times += [(max(0.0, at), cards) for at, cards in releases if cards]
        self.cards = sum(cards for _, cards in self._times)
        heapq.heapify(self._times)

    @property
    def soonest(self) -> float:
        return self._times[0][0] if self._times else float("inf")

    def take(self, cards: int, seconds: float) -> float:
        """The start of a job on the ``cards`` that come free first; O(releases it gathers x log)."""
        start, gathered = 0.0, 0
        while gathered < cards:
            start, here = heapq.heappop(self._times)
            gathered += here
        if gathered > cards:
            heapq.heappush(self._times, (start, gathered - cards))
        heapq.heappush(self._times, (start + seconds, cards))
        return start


def play_forward(pools: Mapping[Pool, CardTimes], queue: Iterable[Ahead]) -> list[float | None]:
    """Seconds until each job of the queue starts, in its order; ``None``: no pool of it is large enough."""
    found: list[float | None] = []
    for job in queue:
        if not job.cards:
            found.append(0.0)
            continue
        large = [pools[pool] for pool in job.pools if pool in pools and pools[pool].cards >= job.cards]
        if not large:
            found.append(None)
            continue
        best = min(large, key=lambda times: times.soonest)
        found.append(best.take(job.cards, job.seconds))
    return found


class Outlook:
    """The queue of one snapshot in its order, made once a round; each answer is a look into it."""

    def __init__(self, snapshot: Snapshot, run_times: RunTimes, now: datetime) -> None:
        self.now, self._snapshot, self._times = now, snapshot, run_times
        self._queue = in_order(snapshot, now)
        self._places = {job.job_id: place for place, job in enumerate(self._queue)}
        self._pools: dict[object, tuple[Pool, ...]] = {}
        self._starts = tuple(self._play(self._queue, share) for share in SHARES)

    def waiting(self, job_id: JobId) -> StartBand | None:
        """Of a job that waits; ``None`` where it is not in the queue, or nothing is large enough."""
        place = self._places.get(job_id)
        return None if place is None else self._band([starts[place] for starts in self._starts])

    def not_submitted(self, job: WaitingJob) -> StartBand | None:
        """Of a job that is not in the queue yet: put where it would stand. O(jobs before it)."""
        with_it = replace(self._snapshot, waiting=(*self._snapshot.waiting, job))
        queue = in_order(with_it, self.now)
        until = next(place for place, other in enumerate(queue) if other.job_id == job.job_id) + 1
        return self._band([self._play(queue[:until], share)[-1] for share in SHARES])

    def _play(self, queue: Sequence[WaitingJob], share: float) -> list[float | None]:
        return play_forward(self._card_times(share), [self._ahead(job, share) for job in queue])

    def _ahead(self, job: WaitingJob, share: float) -> Ahead:
        asked = job.resources
        key = (asked.card_model, asked.fabric, asked.zone)
        if key not in self._pools:
            self._pools[key] = _pools_of(self._snapshot, asked)
        time = self._times.predict(RunFeatures(job.team_id, asked.cards, job.script))
        return Ahead(self._pools[key], asked.cards, min(time.quantile(share), job.time_limit_seconds))

    def _card_times(self, share: float) -> dict[Pool, CardTimes]:
        usable: dict[Pool, int] = {}
        pool_of = {}
        for node in self._snapshot.nodes:
            for card in node.cards:
                pool = pool_of[card.id] = node.pool(card.model)
                good = card.usable and node.state is NodeState.USABLE
                usable[pool] = usable.get(pool, 0) + good
        releases: dict[Pool, list[tuple[float, int]]] = {}
        for allocation in self._snapshot.running:
            left = self._left(allocation, share)
            for part in allocation.shares:
                for card_id in part.card_ids:
                    if card_id in pool_of:
                        releases.setdefault(pool_of[card_id], []).append((left, 1))
        return {
            pool: CardTimes(max(0, cards - len(releases.get(pool, ()))), releases.get(pool, ()))
            for pool, cards in usable.items()
        }

    def _left(self, allocation: RunningAllocation, share: float) -> float:
        if allocation.notice_deadline is not None:
            return (allocation.notice_deadline - self.now).total_seconds()
        ran = max(0.0, (self.now - (allocation.ready_at or allocation.placed_at)).total_seconds())
        features = RunFeatures(allocation.team_id, allocation.cards, allocation.script)
        left = self._times.predict(features).quantile(share, ran) - ran
        if allocation.expected_end_at is None:
            return left
        return min(left, (allocation.expected_end_at - self.now).total_seconds())

    def _band(self, seconds: Sequence[float | None]) -> StartBand | None:
        known = sorted(each for each in seconds if each is not None)
        if len(known) < len(SHARES):
            return None
        earliest, expected, latest = (self.now + timedelta(seconds=round(each)) for each in known)
        return StartBand(earliest, expected, latest)


def when_will_i_start(
    snapshot: Snapshot, job: WaitingJob, run_times: RunTimes, now: datetime
) -> StartBand | None:
    """Of one job, waiting in the snapshot or not; for many, keep an :class:`Outlook`."""
    outlook = Outlook(snapshot, run_times, now)
    return outlook.waiting(job.job_id) or outlook.not_submitted(job)


def _pools_of(snapshot: Snapshot, asked: Resources) -> tuple[Pool, ...]:
    found = {
        node.pool(card.model)
        for node in snapshot.nodes
        if asked.fabric in (None, node.fabric) and asked.zone in (None, node.zone)
        for card in node.cards
        if asked.card_model in (None, card.model)
    }
    return tuple(sorted(found))


def in_order(snapshot: Snapshot, now: datetime) -> list[WaitingJob]:
    """Who goes first, as if each was placed in its turn; jobs that may not start yet are left out."""
    ready = [job for job in snapshot.waiting if job.blocked is None]
    promised = {job.job_id: job.promised_at for job in ready if job.promised_at is not None}
    usage = with_commitments(snapshot.team_usage, snapshot.running, now)
    found = []
    for claim in CLAIMS_IN_ORDER:
        queue = ClaimQueue(claim, ready, usage, promised)
        for job in queue:
            found.append(job)
            queue.charge(job.team_id, job.resources.cards * COMMITTED_SECONDS)
    return found
