"""The reclaim chosen costs no more than any other set that lets the claimant in: brute force on one node
and on two."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.fit import Fit, fits, free_of
from starverse.domain.scheduling.reclaim import Cost, cost_of
from starverse.domain.scheduling.snapshot import RECLAIMABLE_CLAIMS, Link, Node, RunningAllocation, Snapshot
from starverse.domain.tariff import Tariff
from starverse.testing.snapshots import NOW, a_job, a_node, a_share, all_linked, an_allocation, at

LAYOUTS: tuple[tuple[Link, ...], ...] = ((), all_linked([range(4), range(4, 8)]))


@st.composite
def full_of_others(
    draw: st.DrawFn, *, spanning: bool = False
) -> tuple[tuple[Node, ...], tuple[RunningAllocation, ...]]:
    """Two nodes, mostly full; with ``spanning`` some allocations hold cards of both."""
    nodes = tuple(a_node(f"n{i}", links=draw(st.sampled_from(LAYOUTS)), cpus=12) for i in range(2))
    left = [list(draw(st.permutations(range(8))))[: draw(st.sampled_from([8, 8, 8, 5]))] for _ in nodes]
    running: list[RunningAllocation] = []
    while any(left):
        both = spanning and all(left) and draw(st.booleans())
        on = (0, 1) if both else (0,) if left[0] else (1,)
        count = draw(st.integers(1, 4))
        shares = []
        for node in on:
            taken, left[node] = left[node][:count], left[node][count:]
            shares.append(a_share(f"n{node}", *taken, cpus=draw(st.integers(1, 2))))
        running.append(
            an_allocation(
                f"a{len(running)}",
                *shares,
                tariff=draw(st.sampled_from([Tariff.SPOT, Tariff.SPOT, Tariff.IDLE, Tariff.ON_DEMAND])),
                bid=Fraction(draw(st.integers(1, 3))),
                newest_verified_checkpoint_at=at(-draw(st.integers(1, 4))),
                expected_end_at=None,
            )
        )
    return nodes, tuple(running)


def total(victims: tuple[RunningAllocation, ...]) -> Cost:
    costs = [cost_of(victim, NOW) for victim in victims]
    return (sum(c[0] for c in costs), sum(c[1] for c in costs), sum(c[2] for c in costs))


@settings(max_examples=200, deadline=None)
@given(
    st.booleans().flatmap(lambda spanning: full_of_others(spanning=spanning)),
    st.sampled_from([1, 1, 2, 3, 4, 8]),
    st.integers(1, 6),
    st.sampled_from([Tariff.ON_DEMAND, Tariff.SPOT]),
)
def test_no_cheaper_set_lets_the_claimant_in(
    cluster: tuple[tuple[Node, ...], tuple[RunningAllocation, ...]], cards: int, cpus: int, tariff: Tariff
) -> None:
    nodes, running = cluster
    job = a_job("a", cards, cpus_per_task=cpus, tariff=tariff)

    def lets_in(gone: tuple[RunningAllocation, ...]) -> bool:
        held = [share for a in running if a not in gone for share in a.shares]
        return any(isinstance(fits(node, job.resources, free_of(node, held)), Fit) for node in nodes)

    assume(not lets_in(()))
    yielding = [a for a in running if a.claim in RECLAIMABLE_CLAIMS and a.claim < job.claim]
    assume(len(yielding) <= 9)
    sets = chain.from_iterable(combinations(yielding, n) for n in range(len(yielding) + 1))
    possible = [total(gone) for gone in sets if lets_in(gone)]
    decision = decide(Snapshot(nodes, running, (job,)), NOW)
    chosen = tuple(a for a in running if a.id in {r.allocation_id for r in decision.reclaims})
    if not possible:
        assert chosen == ()
    else:
        assert lets_in(chosen)
        assert total(chosen) == min(possible)


@settings(max_examples=100, deadline=None)
@given(full_of_others(spanning=True), st.sampled_from([1, 2, 4, 8]))
def test_a_gang_takes_back_nothing_that_it_could_do_without(
    cluster: tuple[tuple[Node, ...], tuple[RunningAllocation, ...]], cards: int
) -> None:
    nodes, running = cluster
    job = a_job("a", cards, nodes=2)

    def lets_in(gone: set[str]) -> bool:
        held = [share for a in running if a.id not in gone for share in a.shares]
        return all(isinstance(fits(node, job.resources, free_of(node, held)), Fit) for node in nodes)

    chosen: set[str] = {r.allocation_id for r in decide(Snapshot(nodes, running, (job,)), NOW).reclaims}
    yielding: set[str] = {a.id for a in running if a.claim in RECLAIMABLE_CLAIMS}
    assert bool(chosen) == (not lets_in(set()) and lets_in(yielding))
    if chosen:
        assert lets_in(chosen)
        assert not any(lets_in(chosen - {one}) for one in chosen)
