"""Random clusters, allocations and queues: every decision passes the linter, whatever the order given."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.ids import JobId
from starverse.domain.scheduling.capacity import layout_of
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.fit import Fit, fits, free_of
from starverse.domain.scheduling.linter import lint
from starverse.domain.scheduling.rank import fitting
from starverse.domain.scheduling.snapshot import (
    RECLAIMABLE_CLAIMS,
    Node,
    NodeState,
    Pool,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)
from starverse.domain.scheduling.tally import tally_of
from starverse.domain.tariff import Tariff
from starverse.testing.snapshots import GIB, NOW, a_job, a_node, a_share, all_linked, an_allocation, at

T = TypeVar("T")

TARIFFS = (Tariff.RESERVED, Tariff.ON_DEMAND, Tariff.SPOT, Tariff.IDLE)
LINKS = ((), all_linked([(0, 1), (2, 3), (4, 5), (6, 7)]), all_linked([range(4), range(4, 8)], 50))


@st.composite
def some_nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        models = draw(st.sampled_from([("rtx4090",) * 8, ("rtx4090",) * 4 + ("a100",) * 4, ("a100",) * 2]))
        node = a_node(
            f"n{number}",
            models=models,
            links=draw(st.sampled_from(LINKS)),
            broken=draw(st.sampled_from([(), (), (0,)])),
            fabric=draw(st.sampled_from(["eth", "ib"])),
            cpus=draw(st.sampled_from([8, 16, 64])),
            driver=draw(st.sampled_from(["", "", "470.57", "550.54"])),
            state=draw(st.sampled_from([NodeState.USABLE] * 5 + [NodeState.DOWN, NodeState.DRAINED])),
        )
        nodes.append(node)
    return tuple(nodes)


@st.composite
def some_running(draw: st.DrawFn, nodes: tuple[Node, ...]) -> tuple[RunningAllocation, ...]:
    running: list[RunningAllocation] = []
    for node in nodes:
        left, cpus = list(range(len(node.cards))), node.cpus
        while left and cpus and draw(st.booleans()):
            taken, left = left[: (count := draw(st.integers(0, 4)))], left[count:]
            cpus -= 1
            running.append(
                an_allocation(
                    f"a{len(running)}",
                    a_share(node.id, *taken),
                    tariff=draw(st.sampled_from(TARIFFS)),
                    team=draw(st.sampled_from(["x", "y"])),
                    bid=draw(st.sampled_from([None, Fraction(1), Fraction(3)])),
                    expected_end_at=draw(st.sampled_from([None, at(60), at(5000), at(-5)])),
                    newest_verified_checkpoint_at=draw(st.sampled_from([None, at(-10), at(-99)])),
                    notice_deadline=draw(st.sampled_from([None, None, None, at(100), at(-1)])),
                    reclaimed_for=draw(st.sampled_from([None, JobId("j0"), JobId("gone")])),
                    array_group=draw(st.sampled_from([None, "9"])),
                )
            )
    return tuple(running)


@st.composite
def some_job(draw: st.DrawFn, number: int) -> WaitingJob:
    cards = draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8]))
    return a_job(
        f"j{number}",
        cards,
        tariff=draw(st.sampled_from(TARIFFS)),
        team=draw(st.sampled_from(["x", "y"])),
        submitted_at=at(-draw(st.integers(0, 3))),
        time_limit_seconds=draw(st.sampled_from([30, 3600, 86_400])),
        bid=draw(st.sampled_from([None, Fraction(1), Fraction(5)])),
        bid_rank=Fraction(draw(st.integers(0, 2))),
        promised_at=draw(st.sampled_from([None, None, at(-9)])),
        array_group=draw(st.sampled_from([None, "9"])),
        array_running_max=draw(st.sampled_from([None, 2])),
        card_model=draw(st.sampled_from([None, "rtx4090", "rtx4090", "a100"])) if cards else None,
        nodes=draw(st.sampled_from([1, 1, 1, 2, 3])),
        cpus_per_task=draw(st.sampled_from([1, 4, 8])),
        memory_bytes_per_node=draw(st.sampled_from([None, 200 * GIB])),
        fabric=draw(st.sampled_from([None, None, "ib"])),
        exclude=draw(st.sampled_from([(), (), ("n0",)])),
        nodelist=draw(st.sampled_from([(), (), ("n1",)])),
        driver_min=draw(st.sampled_from(["", "", "525.60"])),
    )


@st.composite
def some_snapshot(draw: st.DrawFn) -> Snapshot:
    nodes = draw(some_nodes())
    waiting = tuple(draw(some_job(number)) for number in range(draw(st.integers(0, 8))))
    pools = {node.pool(model) for node in nodes for model in ("rtx4090", "a100")}
    prices: dict[tuple[Pool, Tariff], Fraction] = {
        (pool, tariff): Fraction(draw(st.integers(1, 4))) for pool in sorted(pools) for tariff in TARIFFS
    }
    return Snapshot(nodes, draw(some_running(nodes)), waiting, {}, draw(st.sampled_from([{}, prices])))


@settings(max_examples=200, deadline=None)
@given(some_snapshot())
def test_no_decision_breaks_a_rule(snapshot: Snapshot) -> None:
    assert lint(snapshot, decide(snapshot, NOW)) == []


def shuffled(items: tuple[T, ...], dice: Random) -> tuple[T, ...]:
    mixed = list(items)
    dice.shuffle(mixed)
    return tuple(mixed)


@settings(max_examples=60, deadline=None)
@given(some_snapshot(), st.randoms(use_true_random=False))
def test_the_order_inside_the_snapshot_does_not_matter(snapshot: Snapshot, dice: Random) -> None:
    mixed = replace(
        snapshot,
        nodes=shuffled(snapshot.nodes, dice),
        running=shuffled(snapshot.running, dice),
        waiting=shuffled(snapshot.waiting, dice),
    )
    assert decide(mixed, NOW) == decide(snapshot, NOW)


@settings(max_examples=100, deadline=None)
@given(some_snapshot())
def test_arrays_and_objects_agree_on_what_fits(snapshot: Snapshot) -> None:
    layout, room = layout_of(snapshot.nodes), tally_of(snapshot, NOW).room
    held = [share for allocation in snapshot.running for share in allocation.shares]
    for job in snapshot.waiting:
        shape = layout.shape(job.resources)
        for pool in shape.pools:
            flags = fitting(layout, pool, shape, room)
            for row, flag in zip(pool.rows, flags, strict=True):
                node = layout.nodes[row]
                answer = fits(node, job.resources, free_of(node, held), pool.pool.model or None)
                assert isinstance(answer, Fit) == bool(flag), answer


@settings(max_examples=100, deadline=None)
@given(some_snapshot())
def test_cards_are_never_left_free_for_a_lone_job_that_fits(snapshot: Snapshot) -> None:
    """Liveness: one job alone, allowed to start and fitting on free cards, starts."""
    held = [share for allocation in snapshot.running for share in allocation.shares]
    for job in snapshot.waiting:
        alone = replace(snapshot, waiting=(replace(job, array_group=None, bid=None),))
        r = job.resources
        if r.nodes > 1 or r.nodelist:
            continue
        decision = decide(alone, NOW)
        if any(isinstance(fits(node, r, free_of(node, held)), Fit) for node in snapshot.nodes):
            assert [p.job_id for p in decision.placements] == [job.job_id]
        else:
            assert decision.placements == ()


@settings(max_examples=100, deadline=None)
@given(some_snapshot())
def test_nothing_is_taken_back_that_must_not_be(snapshot: Snapshot) -> None:
    by_id = {allocation.id: allocation for allocation in snapshot.running}
    for reclaim in decide(snapshot, NOW).reclaims:
        victim = by_id[reclaim.allocation_id]
        assert victim.notice_deadline is None
        if reclaim.for_job_id is not None:
            assert victim.claim in RECLAIMABLE_CLAIMS
