"""A full cluster with thousands of waiting jobs: the time of a decision and of "when will I start?"."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import numpy as np

from starverse.domain.ids import AllocationId, CardId, JobId, NodeId, TeamId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.run_times import RunFeatures, RunTimes
from starverse.domain.scheduling.snapshot import (
    Card,
    Node,
    NodeShare,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)
from starverse.domain.scheduling.when_will_i_start import Outlook
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import Resources

T = TypeVar("T")

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
GIB = 1024**3
CARDS_PER_NODE = 8
TEAMS = 20
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Answers:
    """Seconds: the slowest of a few answers, one outlook, one decision."""

    waiting: float
    not_submitted: float
    outlook: float
    decision: float


def timed_answers(*, waiting: int, nodes: int, seed: int = 8) -> Answers:
    """All of it on one snapshot."""
    snapshot, times = a_full_cluster(waiting, nodes, seed)
    outlook, made = _timed(lambda: Outlook(snapshot, times, NOW))
    picked = snapshot.waiting[:: max(1, waiting // ROUNDS)]
    known = [_timed(partial(outlook.waiting, job.job_id))[1] for job in picked]
    new = [replace(job, job_id=JobId(f"new-{job.job_id}"), submitted_at=NOW) for job in picked]
    fresh = [_timed(partial(outlook.not_submitted, job))[1] for job in new]
    decided = [_timed(lambda: decide(snapshot, NOW))[1] for _ in range(3)]
    return Answers(max(known), max(fresh), made, statistics.median(decided))


def a_full_cluster(waiting: int, nodes: int, seed: int) -> tuple[Snapshot, RunTimes]:
    """Every node is taken whole; jobs of 1 to 32 cards of many teams wait."""
    numbers = np.random.default_rng(seed)
    hosts, running = [], []
    for index in range(nodes):
        name = NodeId(f"n{index}")
        ids = tuple(CardId(f"{name}.{card}") for card in range(CARDS_PER_NODE))
        cards = tuple(Card(card_id, place, "rtx4090") for place, card_id in enumerate(ids))
        hosts.append(Node(name, 1, "bj1", "ib", 64, 512 * GIB, cards))
        begun = NOW - timedelta(seconds=float(numbers.integers(60, 80_000)))
        running.append(
            RunningAllocation(
                id=AllocationId(f"a{index}"),
                job_id=JobId(f"r{index}"),
                number=f"{index}",
                team_id=TeamId(f"t{index % TEAMS}"),
                tariff=Tariff.ON_DEMAND,
                shares=(NodeShare(name, ids, 8, 64 * GIB),),
                placed_at=begun,
                ready_at=begun,
                expected_end_at=begun + timedelta(days=1),
                script=f"s{index % 50}",
            )
        )
    jobs = tuple(_a_job(index, numbers) for index in range(waiting))
    times = RunTimes()
    for index in range(5000):
        team, size = f"t{index % TEAMS}", int(numbers.choice([1, 2, 4, 8]))
        times.observe(RunFeatures(team, size, f"s{index % 50}"), float(numbers.lognormal(8, 1.5)))
    return Snapshot(tuple(hosts), tuple(running), jobs), times


def _a_job(index: int, numbers: np.random.Generator) -> WaitingJob:
    nodes, each = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8))[int(numbers.integers(0, 6))]
    return WaitingJob(
        job_id=JobId(f"j{index:06}"),
        number=f"{index}",
        team_id=TeamId(f"t{int(numbers.integers(0, TEAMS))}"),
        tariff=(Tariff.ON_DEMAND, Tariff.SPOT)[int(numbers.integers(0, 2))],
        resources=Resources(nodes=nodes, cards_per_node=each, card_model="rtx4090"),
        submitted_at=NOW - timedelta(seconds=float(numbers.integers(1, 80_000))),
        time_limit_seconds=86_400,
        script=f"s{index % 50}",
    )


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    begun = time.perf_counter()
    return act(), time.perf_counter() - begun
