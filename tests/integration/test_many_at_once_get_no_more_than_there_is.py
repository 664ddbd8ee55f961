"""Real threads on one database: cards and money are given once, however many ask (scenarios 8, 14, 17)."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from starverse.app import jobs
from starverse.app.apply_decision import Applied, apply_decision
from starverse.app.snapshot import take_snapshot
from starverse.db import allocations, ledger
from starverse.domain.errors import Conflict
from starverse.domain.ids import CardId, NodeId, TeamId
from starverse.domain.money import ZERO, Money
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.decision import Decision, Placement
from starverse.domain.scheduling.snapshot import NodeShare, Pool
from starverse.domain.workloads.reasons import WaitReason
from starverse.domain.workloads.states import JobState
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import World

T = TypeVar("T")
THREADS = 16


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(request.param, tmp_path) as database:
        yield World(database, tmp_path / "data")


def at_once(calls: Sequence[Callable[[], T]], threads: int = THREADS) -> list[T]:
    """Every call, from many threads that set off together."""
    gate = threading.Barrier(threads)

    def work(own: Sequence[Callable[[], T]]) -> list[T]:
        gate.wait()
        return [call() for call in own]

    with ThreadPoolExecutor(threads) as pool:
        shares = [pool.submit(work, calls[first::threads]) for first in range(threads)]
        return [answer for share in shares for answer in share.result()]


def test_a_thousand_parallel_starts_on_eight_cards_give_eight(world: World) -> None:
    """Each start names one of the eight cards, as deciders with an old picture would."""
    lab = world.team("lab", "100000")
    world.submit(lab, "--array=0-999", name="sweep")
    now = world.clock.now()
    waiting = take_snapshot(world.platform, now).waiting
    assert len(waiting) == 1000

    def start(position: int) -> Applied:
        job = waiting[position]
        share = NodeShare(NodeId("n1"), (CardId(f"n1:{position % 8}"),), 1, 2 * 1024**3)
        pool = Pool("bj1", "rtx4090", "eth")
        placement = Placement(job.job_id, job.number, job.team_id, job.tariff, pool, (share,))
        return apply_decision(world.platform, Decision(now, placements=(placement,)))

    applied = at_once([lambda position=position: start(position) for position in range(1000)])  # type: ignore[misc]

    placed = [key for one in applied for key in one.placed]
    refused = [reason for one in applied for _, reason, _ in one.refused]
    assert len(placed) == 8
    assert len(refused) == 992
    assert set(refused) <= {WaitReason.NO_CARDS, WaitReason.BEHIND_OTHERS}
    with world.platform.database.read() as connection:
        taken = allocations.open_cards(connection)
        held = ledger.open_holds_of_team(connection, TeamId(lab.team_id))
    assert sorted(taken) == [f"n1:{index}" for index in range(8)]
    assert sorted(taken.values()) == sorted(placed)
    assert sorted(str(hold.transfer.subject) for hold in held) == sorted(placed)
    world.assert_sound()


def test_schedulers_that_run_at_once_place_each_job_once(world: World) -> None:
    lab = world.team("lab", "100000")
    world.submit(lab, "--array=0-11", name="sweep")

    def decide_and_apply() -> int:
        now = world.clock.now()
        decision = decide(take_snapshot(world.platform, now), now)
        return len(apply_decision(world.platform, decision).placed)

    assert sum(at_once([decide_and_apply] * 12, threads=6)) == 8
    with world.platform.database.read() as connection:
        open_ones = allocations.open_ones(connection)
    assert max(Counter(allocation.job_id for allocation in open_ones).values()) == 1
    assert len({card for allocation in open_ones for card in allocation.cards}) == 8
    world.assert_sound()


def test_twenty_submits_at_once_with_money_for_three_run_three(world: World) -> None:
    """Each submit sees money for its first hour; cards and money are given together, three times."""
    lab = world.team("lab", "5")  # 3 x 1.66 = 4.98
    numbers = at_once(
        [lambda index=index: world.submit(lab, name=f"job{index}").number for index in range(20)],  # type: ignore[misc]
        threads=10,
    )
    assert len(set(numbers)) == 20

    def decide_and_apply() -> Applied:
        now = world.clock.now()
        return apply_decision(world.platform, decide(take_snapshot(world.platform, now), now))

    at_once([decide_and_apply] * 8, threads=4)
    world.run(3)
    states = Counter(world.job(lab, number).state for number in numbers)
    assert states == {JobState.RUNNING: 3, JobState.QUEUED: 17}
    reasons = {world.job(lab, n).reason for n in numbers if world.job(lab, n).state is JobState.QUEUED}
    assert reasons == {"no_money"}
    with world.platform.database.read() as connection:
        wallet = ledger.team_wallet(connection, TeamId(lab.team_id))
    assert wallet.cash.available >= ZERO
    assert wallet.held == Money(3 * 1_660_000)
    world.assert_sound()


def test_of_many_cancels_during_a_start_one_counts_and_nothing_is_charged(world: World) -> None:
    """Scenario 14: starts and cancels race in threads; nothing is left running, nothing is charged."""
    lab = world.team("lab", "1000")
    world.plan("train", start_seconds=1000)
    numbers = [world.submit(lab, name="train").number for _ in range(6)]

    def cancel(number: str) -> bool:
        try:
            jobs.cancel(world.platform, lab, number)
        except Conflict:
            return False
        return True

    names = ("schedule", "launch", "observe")
    rounds = [lambda name=name: bool(world.run_reconciler(name)) for name in names]
    cancels = [lambda number=number: cancel(number) for number in numbers * 2]
    at_once([*rounds, *cancels, *rounds], threads=6)
    world.run(20, step=2)
    assert {world.job(lab, number).state for number in numbers} == {JobState.CANCELLED}
    assert world.engine.running() == ()
    assert world.bill(lab).total == ZERO
    with world.platform.database.read() as connection:
        assert allocations.open_cards(connection) == {}
        assert ledger.open_holds_of_team(connection, TeamId(lab.team_id)) == ()
    world.assert_sound()


def test_a_gang_that_starts_in_part_costs_nothing(kind: str, tmp_path: Path) -> None:
    """Scenario 7: a start that fails on one of its nodes is a failed start of the whole."""
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data", nodes=(node_report("n1"), node_report("n2")))
        lab = world.team("lab")
        world.plan("gang", failure="no such image on n2", start_seconds=30)
        job = world.submit(lab, "--nodes=2", "--gpus-per-node=rtx4090:8", name="gang")
        world.run(34, step=2)
        waiting = world.job(lab, job.number)
        assert (waiting.state, waiting.reason) == (JobState.QUEUED, "start_failed")
        assert world.bill(lab).total == ZERO
        with world.platform.database.read() as connection:
            assert ledger.open_holds_of_team(connection, TeamId(lab.team_id)) == ()
            assert allocations.open_cards(connection) == {}
        world.assert_sound()
