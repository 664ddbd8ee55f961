"""When a waiting job, or one not yet submitted, will start: the queue played forward on expected run times.

Cards are counted by pool, nodes and links are not looked at: an estimate, told as earliest, expected and
latest. Each of the three plays the same queue with run times of another quantile, none beyond its time limit.
Small jobs slip in beside a gang that gathers its cards, as the scheduler lets them. What is submitted later
and goes first is not known; neither is a reclaim.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starverse.domain.ids import JobId
from starverse.domain.scheduling.queue_order import CLAIMS_IN_ORDER, ClaimQueue
from starverse.domain.scheduling.run_times import RunFeatures, RunTimes
from starverse.domain.scheduling.snapshot import (
    Claim,
    NodeState,
    Pool,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)
from starverse.domain.scheduling.team_usage import COMMITTED_SECONDS, with_commitments
from starverse.domain.workloads.specs import Resources

SHARES = (0.1, 0.5, 0.9)
"""Quantiles of run times behind earliest, expected and latest."""
STOP_EVERY = 100
"""At most so many jobs are played again for one that is not submitted yet."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job in the queue: where it may run, on how many cards, for how many seconds."""

    pools: Sequence[Pool]
    cards: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A place in the queue; ``used`` is what its team has used when it comes, in decayed card-seconds."""

    job: WaitingJob
    used: float


@dataclass(frozen=True, slots=True)
class _Play:
    """``stops`` are the cards before every :data:`STOP_EVERY`-th job, to play on from."""

    starts: list[float | None]
    stops: list[dict[Pool, CardTimes]]


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

    def copy(self) -> CardTimes:
        """As it stands, to be played on apart."""
        other = CardTimes(0)
        other._times, other.cards = self._times.copy(), self.cards
        return other

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
        self._usage = with_commitments(snapshot.team_usage, snapshot.running, now)
        self._places = {turn.job.job_id: place for place, turn in enumerate(self._queue)}
        self._pools: dict[object, tuple[Pool, ...]] = {}
        self._known: dict[RunFeatures, tuple[float, ...]] = {}
        self._plays = tuple(self._play(index) for index in range(len(SHARES)))

    def waiting(self, job_id: JobId) -> StartBand | None:
        """Of a job that waits; ``None`` where it is not in the queue, or nothing is large enough."""
        place = self._places.get(job_id)
        return None if place is None else self._band([play.starts[place] for play in self._plays])

    def not_submitted(self, job: WaitingJob) -> StartBand | None:
        """Of a job that is not in the queue yet, at the place where it would stand; a few hundred steps."""
        place = self._place_of(job)
        seconds = []
        for index, play in enumerate(self._plays):
            pools = {pool: times.copy() for pool, times in play.stops[place // STOP_EVERY].items()}
            before = [
                self._ahead(turn.job, index) for turn in self._queue[place - place % STOP_EVERY : place]
            ]
            seconds.append(play_forward(pools, [*before, self._ahead(job, index)])[-1])
        return self._band(seconds)

    def _place_of(self, job: WaitingJob) -> int:
        """Behind all greater claims and its own team's jobs; then by what its team has used by then."""
        same = [place for place, turn in enumerate(self._queue) if turn.job.claim is job.claim]
        first = sum(turn.job.claim > job.claim for turn in self._queue)
        if job.claim is Claim.SPOT:
            return first + sum(self._queue[place].job.bid_rank >= job.bid_rank for place in same)
        own = [place for place in same if self._queue[place].job.team_id == job.team_id]
        if not own:
            used = self._usage.get(job.team_id, 0.0)
        else:
            last = self._queue[own[-1]]
            used = last.used + last.job.resources.cards * COMMITTED_SECONDS
        behind = sum(self._queue[place].used <= used for place in same)
        return max(first + behind, own[-1] + 1 if own else 0)

    def _play(self, index: int) -> _Play:
        pools = self._card_times(index)
        starts: list[float | None] = []
        stops = []
        for place in range(0, len(self._queue) + 1, STOP_EVERY):
            stops.append({pool: times.copy() for pool, times in pools.items()})
            part = self._queue[place : place + STOP_EVERY]
            starts += play_forward(pools, [self._ahead(turn.job, index) for turn in part])
        return _Play(starts, stops)

    def _ahead(self, job: WaitingJob, index: int) -> Ahead:
        asked = job.resources
        key = (asked.card_model, asked.fabric, asked.zone)
        if key not in self._pools:
            self._pools[key] = _pools_of(self._snapshot, asked)
        features = RunFeatures(job.team_id, asked.cards, job.script)
        if features not in self._known:
            time = self._times.predict(features)
            self._known[features] = tuple(time.quantile(share) for share in SHARES)
        seconds = min(self._known[features][index], job.time_limit_seconds)
        return Ahead(self._pools[key], asked.cards, seconds)

    def _card_times(self, index: int) -> dict[Pool, CardTimes]:
        usable: Counter[Pool] = Counter()
        pool_of = {}
        for node in self._snapshot.nodes:
            for card in node.cards:
                pool = pool_of[card.id] = node.pool(card.model)
                usable[pool] += card.usable and node.state is NodeState.USABLE
        releases: dict[Pool, list[tuple[float, int]]] = {}
        for allocation in self._snapshot.running:
            left = self._left(allocation, SHARES[index])
            ids = (card_id for part in allocation.shares for card_id in part.card_ids)
            for pool, cards in Counter(pool_of[each] for each in ids if each in pool_of).items():
                releases.setdefault(pool, []).append((left, cards))
        busy = {pool: sum(cards for _, cards in own) for pool, own in releases.items()}
        return {
            pool: CardTimes(max(0, cards - busy.get(pool, 0)), releases.get(pool, ()))
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


def in_order(snapshot: Snapshot, now: datetime) -> list[Turn]:
    """Who goes first, as if each was placed in its turn; jobs that may not start yet are left out."""
    ready = [job for job in snapshot.waiting if job.blocked is None]
    promised = {job.job_id: job.promised_at for job in ready if job.promised_at is not None}
    usage = with_commitments(snapshot.team_usage, snapshot.running, now)
    found = []
    for claim in CLAIMS_IN_ORDER:
        queue, used = ClaimQueue(claim, ready, usage, promised), dict(usage)
        for job in queue:
            mine = used.get(job.team_id, 0.0)
            found.append(Turn(job, mine))
            more = job.resources.cards * COMMITTED_SECONDS
            used[job.team_id] = mine + more
            queue.charge(job.team_id, more)
    return found
