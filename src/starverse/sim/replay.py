"""The replay: a virtual clock, the product's ``decide`` at every tick on which something changed.

What the trace says a job ran is only used to end it; the scheduler sees the time limit alone. A reclaimed job
works on until it is stopped, keeps what its newest checkpoint holds, and queues again for the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from starverse.domain.ids import AllocationId, JobId, TeamId
from starverse.domain.money import ZERO, Money
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import Subject, SubjectKind, Terms, Usage, charge_usages, rate_at
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.decision import Decision, Placement
from starverse.domain.scheduling.snapshot import (
    GRACE_SECONDS_DEFAULT,
    Node,
    Pool,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)
from starverse.domain.scheduling.team_usage import decayed
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan
from starverse.domain.workloads.specs import Resources
from starverse.sim.trace import TraceJob

LIMITS_HOURS = (1, 4, 24, 168, 8760)
"""The time limit people would have asked for: the least of these above what the job ran."""

Choice = Callable[[TraceJob], Tariff]


@dataclass(frozen=True, slots=True)
class Rules:
    """One way to run the cluster. ``tariff_of`` is the policy: what each job is run on."""

    name: str
    books: PriceBooks
    tariff_of: Choice
    tick_seconds: int = 60
    checkpoint_seconds: int = 1800
    grace_seconds: int = GRACE_SECONDS_DEFAULT


@dataclass(slots=True)
class Fate:
    """What became of one job; seconds, cards, money."""

    job: TraceJob
    tariff: Tariff
    wait_seconds: int = 0
    reclaims: int = 0
    lost_card_seconds: int = 0
    cost: Money = ZERO
    ended_at: datetime | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster after one tick."""

    at: datetime
    busy_cards: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay to its end."""

    rules: Rules
    cards: int
    fates: tuple[Fate, ...]
    samples: tuple[Sample, ...]
    decide_seconds: tuple[float, ...] = ()


@dataclass(slots=True)
class _Queued:
    fate: Fate
    left_seconds: int
    since: datetime
    waiting: WaitingJob


@dataclass(slots=True)
class _Running:
    queued: _Queued
    allocation: RunningAllocation
    pool: Pool
    ends_at: datetime
    stopped_at: datetime | None = None


@dataclass(slots=True)
class _Cluster:
    queue: dict[JobId, _Queued] = field(default_factory=dict)
    running: dict[AllocationId, _Running] = field(default_factory=dict)
    ends: list[tuple[datetime, AllocationId]] = field(default_factory=list)
    usage: dict[TeamId, float] = field(default_factory=dict)


class Replay:
    """``run()`` once; ``timer`` measures decisions and may be left out."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: tuple[Node, ...],
        rules: Rules,
        timer: Callable[[], float] | None = None,
    ) -> None:
        self.jobs, self.nodes, self.rules = jobs, nodes, rules
        self.timer = timer or (lambda: 0.0)
        self.state = _Cluster()
        self.largest = max(nodes, key=lambda node: (len(node.cards), node.cpus))
        self.fates: list[Fate] = []
        self.samples: list[Sample] = []
        self.decide_seconds: list[float] = []
        self._placed = 0
        self._pools = sorted({node.pool(card.model) for node in nodes for card in node.cards})

    def run(self) -> Outcome:
        tick = timedelta(seconds=self.rules.tick_seconds)
        coming, position = self.jobs, 0
        now = coming[0].at
        while position < len(coming) or self.state.ends:
            next_at = min(
                coming[position].at if position < len(coming) else datetime.max.replace(tzinfo=UTC),
                self.state.ends[0][0] if self.state.ends else datetime.max.replace(tzinfo=UTC),
            )
            steps = max(1, -((now - next_at) // tick)) if next_at > now else 1
            self._pass_time(now, now + steps * tick)
            now += steps * tick
            self._end_what_ends(now)
            while position < len(coming) and coming[position].at <= now:
                self._arrive(coming[position])
                position += 1
            self._decide(now)
            busy = sum(running.allocation.cards for running in self.state.running.values())
            self.samples.append(Sample(now, busy))
        for queued in self.state.queue.values():
            queued.fate.refused = queued.fate.refused or "never placed"
        cards = sum(len(node.cards) for node in self.nodes)
        return Outcome(self.rules, cards, tuple(self.fates), tuple(self.samples), tuple(self.decide_seconds))

    def _arrive(self, job: TraceJob) -> None:
        fate = Fate(job, self.rules.tariff_of(job))
        self.fates.append(fate)
        self._enqueue(fate, job.run_seconds, job.at)

    def _enqueue(self, fate: Fate, left_seconds: int, since: datetime) -> None:
        job = fate.job
        hours = next((hours for hours in LIMITS_HOURS if hours * 3600 > left_seconds), LIMITS_HOURS[-1])
        waiting = WaitingJob(
            job_id=JobId(job.id),
            number=job.id,
            team_id=TeamId(job.team),
            tariff=fate.tariff,
            resources=self._resources(job),
            submitted_at=job.at,
            time_limit_seconds=max(hours * 3600, left_seconds),
        )
        self.state.queue[waiting.job_id] = _Queued(fate, left_seconds, since, waiting)

    def _resources(self, job: TraceJob) -> Resources:
        """Spread over as few equal nodes as the largest allows; CPUs as the trace says or by share."""
        most = max(1, len(self.largest.cards))
        nodes = max(1, -(-job.cards // most))
        cards = -(-job.cards // nodes)
        share, memory = self._share(cards)
        cpus = max(1, min(job.cpus or share, self.largest.cpus) if nodes == 1 else share)
        known = {pool.model for pool in self._pools}
        model = next((model for model in job.models if model in known), None)
        if cards and model is None:
            model = self.largest.cards[0].model if self.largest.cards else None
        return Resources(
            card_model=model if cards else None,
            cards_per_node=cards,
            nodes=nodes,
            tasks=nodes,
            cpus_per_task=cpus,
            memory_bytes_per_node=memory,
        )

    def _share(self, cards: int) -> tuple[int, int]:
        """CPUs and bytes that belong to so many cards on each node that has them."""
        if not cards:
            return 1, 1 << 30
        hosts = [node for node in self.nodes if len(node.cards) >= cards]
        cpus = min(node.cpus * cards // len(node.cards) for node in hosts)
        return max(1, cpus), max(1, min(node.memory_bytes * cards // len(node.cards) for node in hosts))

    def _decide(self, now: datetime) -> None:
        state = self.state
        if not state.queue:
            return
        snapshot = Snapshot(
            nodes=self.nodes,
            running=tuple(running.allocation for running in state.running.values()),
            waiting=tuple(queued.waiting for queued in state.queue.values()),
            team_usage=dict(state.usage),
            prices=self._prices(now),
            grace_seconds=self.rules.grace_seconds,
        )
        begun = self.timer()
        decision = decide(snapshot, now)
        self.decide_seconds.append(self.timer() - begun)
        self._apply(decision, now)

    def _prices(self, now: datetime) -> dict[tuple[Pool, Tariff], Fraction]:
        tariffs = {queued.waiting.tariff for queued in self.state.queue.values()}
        return {
            (pool, tariff): rate_at(Terms(tariff, pool.model, pool.fabric), now, self.rules.books)[0]
            for pool in self._pools
            for tariff in tariffs
        }

    def _apply(self, decision: Decision, now: datetime) -> None:
        for placement in decision.placements:
            self._start(placement, now)
        for reclaim in decision.reclaims:
            running = self.state.running[reclaim.allocation_id]
            deadline = now + timedelta(seconds=self.rules.grace_seconds)
            allocation = running.allocation
            running.allocation = _noticed(allocation, deadline, reclaim.for_job_id)
            if running.ends_at > deadline:
                running.stopped_at = deadline
                heapq.heappush(self.state.ends, (deadline, allocation.id))
        for refusal in decision.refusals:
            queued = self.state.queue.pop(refusal.job_id)
            queued.fate.refused = refusal.message

    def _start(self, placement: Placement, now: datetime) -> None:
        queued = self.state.queue.pop(placement.job_id)
        self._placed += 1
        waiting = queued.waiting
        queued.fate.wait_seconds += max(0, int((now - queued.since).total_seconds()))
        allocation = RunningAllocation(
            id=AllocationId(f"{placement.number}/{self._placed}"),
            job_id=placement.job_id,
            number=placement.number,
            team_id=placement.team_id,
            tariff=placement.tariff,
            shares=placement.shares,
            placed_at=now,
            expected_end_at=now + timedelta(seconds=waiting.time_limit_seconds),
            ready_at=now,
        )
        ends_at = now + timedelta(seconds=queued.left_seconds)
        self.state.running[allocation.id] = _Running(queued, allocation, placement.pool, ends_at)
        heapq.heappush(self.state.ends, (ends_at, allocation.id))

    def _end_what_ends(self, now: datetime) -> None:
        ends = self.state.ends
        while ends and ends[0][0] <= now:
            at, allocation_id = heapq.heappop(ends)
            running = self.state.running.pop(allocation_id, None)
            if running is None:  # reclaimed before its end, or ended before its reclaim
                continue
            fate, worked = running.queued.fate, int((at - running.allocation.placed_at).total_seconds())
            fate.cost = fate.cost + self._charge(running, worked)
            if running.stopped_at != at:
                fate.ended_at = at
                continue
            saved = worked - worked % self.rules.checkpoint_seconds
            fate.reclaims += 1
            fate.lost_card_seconds += (worked - saved) * running.allocation.cards
            self._enqueue(fate, running.queued.left_seconds - saved, at)

    def _charge(self, running: _Running, worked: int) -> Money:
        cards, pool = running.allocation.cards, running.pool
        if worked <= 0 or not cards:
            return ZERO
        begun = running.allocation.placed_at
        usage = Usage(
            Subject(SubjectKind.ALLOCATION, running.allocation.id),
            Timespan(begun, begun + timedelta(seconds=worked)),
            cards,
            Terms(running.allocation.tariff, pool.model, pool.fabric),
        )
        charges = charge_usages([usage], self.rules.books)
        return sum((segment.amount for segment in charges.segments), ZERO)

    def _pass_time(self, since: datetime, until: datetime) -> None:
        """Team usage fades, and grows by what ran between the ticks."""
        seconds = (until - since).total_seconds()
        usage = {team: decayed(value, seconds) for team, value in self.state.usage.items()}
        for running in self.state.running.values():
            team = running.allocation.team_id
            usage[team] = usage.get(team, 0.0) + decayed(running.allocation.cards * seconds, seconds / 2)
        self.state.usage = usage


def _noticed(allocation: RunningAllocation, deadline: datetime, claimant: JobId | None) -> RunningAllocation:
    return replace(allocation, notice_deadline=deadline, reclaimed_for=claimant)
