"""The scheduler in a loop on a virtual clock: gangs start, teams alternate, reclaims settle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.ids import AllocationId, JobId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.decision import Decision
from starverse.domain.scheduling.linter import lint
from starverse.domain.scheduling.snapshot import Node, RunningAllocation, Snapshot, WaitingJob
from starverse.domain.scheduling.team_usage import UsageSpan, decayed_usage
from starverse.domain.tariff import Tariff
from starverse.testing.snapshots import NOW, a_job, a_node, at


@dataclass
class Loop:
    """A tiny platform: it applies decisions, ends what is over, and counts usage."""

    nodes: tuple[Node, ...]
    lasts: Callable[[WaitingJob], int]
    now: datetime = NOW
    waiting: dict[str, WaitingJob] = field(default_factory=dict)
    running: dict[str, tuple[RunningAllocation, WaitingJob, datetime]] = field(default_factory=dict)
    spans: list[tuple[str, UsageSpan]] = field(default_factory=list)
    started: dict[str, datetime] = field(default_factory=dict)
    reclaims: Counter[str] = field(default_factory=Counter)

    def submit(self, jobs: Iterable[WaitingJob]) -> None:
        self.waiting |= {job.job_id: job for job in jobs}

    def tick(self, seconds: int) -> Decision:
        self.now += timedelta(seconds=seconds)
        for name, (allocation, job, over) in list(self.running.items()):
            notice = allocation.notice_deadline
            if over <= self.now or (notice is not None and notice <= self.now):
                del self.running[name]
                span = UsageSpan(allocation.cards, allocation.placed_at, self.now)
                self.spans.append((allocation.team_id, span))
                if over > self.now:
                    self.waiting[job.job_id] = job
        usage = {
            team: decayed_usage([span for who, span in self._usage() if who == team], self.now)
            for team, _ in self._usage()
        }
        snapshot = Snapshot(
            self.nodes,
            tuple(allocation for allocation, _, _ in self.running.values()),
            tuple(self.waiting.values()),
            usage,  # type: ignore[arg-type]
        )
        decision = decide(snapshot, self.now)
        assert lint(snapshot, decision) == []
        self._apply(decision)
        return decision

    def _usage(self) -> list[tuple[str, UsageSpan]]:
        open_spans = [
            (a.team_id, UsageSpan(a.cards, a.placed_at, self.now)) for a, _, _ in self.running.values()
        ]
        return [*self.spans, *open_spans]

    def _apply(self, decision: Decision) -> None:
        for placement in decision.placements:
            job = self.waiting.pop(placement.job_id)
            self.started.setdefault(job.job_id, self.now)
            limit = timedelta(seconds=job.time_limit_seconds)
            allocation = RunningAllocation(
                AllocationId(f"of-{job.job_id}-{self.reclaims[job.job_id]}"),
                job.job_id,
                job.number,
                job.team_id,
                job.tariff,
                placement.shares,
                self.now,
                self.now + limit,
                ready_at=self.now,
            )
            over = self.now + min(limit, timedelta(seconds=self.lasts(job)))
            self.running[allocation.id] = (allocation, job, over)
        deadline = self.now + timedelta(seconds=120)
        for reclaim in decision.reclaims:
            allocation, job, over = self.running[reclaim.allocation_id]
            noticed = replace(allocation, notice_deadline=deadline, reclaimed_for=reclaim.for_job_id)
            self.running[reclaim.allocation_id] = (noticed, job, over)
            self.reclaims[job.job_id] += 1
            if reclaim.for_job_id is not None:
                claimant = self.waiting[reclaim.for_job_id]
                self.waiting[reclaim.for_job_id] = replace(claimant, promised_at=self.now)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_an_eight_card_gang_starts_in_a_stream_of_single_cards(seed: int) -> None:
    dice = random.Random(seed)
    limits = {f"s{i}": dice.randint(60, 900) for i in range(2000)}
    loop = Loop((a_node(),), lambda job: limits.get(job.job_id, 600))
    gang = a_job("gang", 8, team="big", submitted_at=at(300), time_limit_seconds=600)
    made = 0
    for step in range(200):
        while sum(job.job_id != "gang" for job in loop.waiting.values()) < 6:
            name = f"s{made}"
            made += 1
            loop.submit([a_job(name, 1, submitted_at=loop.now, time_limit_seconds=limits[name])])
        if step == 30:
            loop.submit([gang])
        loop.tick(10)
        if "gang" in loop.started:
            break
    # It is first at the latest when its team, that never ran, is behind nobody: one longest limit later.
    assert loop.started["gang"] <= at(310 + 900 + 20)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(60, 3600))
def test_two_teams_get_equal_shares_whoever_came_first(cards: int, lasts: int) -> None:
    loop = Loop((a_node(cards=cards),), lambda _job: lasts)
    loop.submit(a_job(f"a{i:03}", 1, team="early", submitted_at=at(-900)) for i in range(60))
    loop.submit(a_job(f"b{i:03}", 1, team="late", submitted_at=at(-1)) for i in range(60))
    for _ in range(24):
        loop.tick(lasts)
    begun = Counter(name[0] for name in loop.started)
    assert abs(begun["a"] - begun["b"]) <= cards


def test_a_reclaim_settles_with_each_victim_stopped_once_and_started_again() -> None:
    loop = Loop((a_node("n1"), a_node("n2")), lambda _job: 3000)
    loop.submit(
        a_job(f"s{i}", 2, tariff=Tariff.SPOT, submitted_at=at(-90), time_limit_seconds=9000) for i in range(8)
    )
    loop.tick(1)
    loop.submit([a_job("firm", 8, submitted_at=at(2)), a_job("small", 1, submitted_at=at(3))])
    for _ in range(60):
        loop.tick(5)
    assert loop.started["firm"] <= at(140)
    assert loop.started["small"] <= at(140)
    assert set(loop.reclaims.values()) == {1}
    assert sum(loop.reclaims.values()) == 5
    for _ in range(40):
        loop.tick(300)
    assert not loop.waiting


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 8))
def test_the_higher_bid_starts_first(bids: list[int], free: int) -> None:
    jobs = [
        a_job(f"j{i:02}", 1, tariff=Tariff.SPOT, bid_rank=Fraction(bid), submitted_at=at(-i))
        for i, bid in enumerate(bids)
    ]
    decision = decide(Snapshot((a_node(cards=free),), waiting=tuple(jobs)), NOW)
    placed = {placement.job_id for placement in decision.placements}
    best = sorted(jobs, key=lambda job: (-job.bid_rank, job.submitted_at))[:free]
    assert placed == {JobId(job.job_id) for job in best}
