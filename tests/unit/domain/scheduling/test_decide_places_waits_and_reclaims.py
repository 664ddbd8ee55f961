"""decide() case by case; every decision made here also passes the linter."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from starverse.domain.ids import JobId, TeamId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.decision import Decision, Wait
from starverse.domain.scheduling.linter import lint
from starverse.domain.scheduling.snapshot import Blocked, Never, NodeState, Pool, Snapshot
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.instances import InstanceReason, reason_of_refusal
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.testing.snapshots import NOW, a_job, a_node, a_share, all_linked, an_allocation, at

EIGHT = (a_node(),)
POOL = Pool("bj1", "rtx4090", "eth")
IB_POOL = Pool("bj1", "rtx4090", "ib")


def decided(snapshot: Snapshot) -> Decision:
    decision = decide(snapshot, NOW)
    assert lint(snapshot, decision) == []
    return decision


def cards(decision: Decision) -> dict[str, tuple[str, ...]]:
    return {p.job_id: tuple(c for s in p.shares for c in s.card_ids) for p in decision.placements}


def nodes(decision: Decision) -> dict[str, tuple[str, ...]]:
    return {p.job_id: tuple(s.node_id for s in p.shares) for p in decision.placements}


def wait(decision: Decision, job: str) -> Wait:
    return next(w for w in decision.waits if w.job_id == job)


def test_free_cards_are_given_with_the_generation_that_was_seen() -> None:
    decision = decided(Snapshot(EIGHT, waiting=(a_job("a", 2),)))
    share = decision.placements[0].shares[0]
    assert (share.card_ids, share.generation, decision.placements[0].pool) == (("n1.0", "n1.1"), 7, POOL)


def test_the_tightest_node_is_filled_first() -> None:
    held = an_allocation("x", a_share("n2", 0, 1, 2, 3, 4), tariff=Tariff.ON_DEMAND)
    decision = decided(
        Snapshot((a_node("n1"), a_node("n2"), a_node("n3", cards=4)), (held,), (a_job("a", 2),))
    )
    assert nodes(decision) == {"a": ("n2",)}


def test_linked_cards_win_over_the_tightest_fit() -> None:
    tight = an_allocation("x", a_share("n1", 0, 2, 4, 5, 6, 7), tariff=Tariff.ON_DEMAND)
    linked = a_node("n2", links=all_linked([(0, 1)]))
    decision = decided(Snapshot((a_node("n1"), linked), (tight,), (a_job("a", 2),)))
    assert cards(decision) == {"a": ("n2.0", "n2.1")}
    assert decision.placements[0].link_quality_min == 100


def test_a_gang_starts_whole_in_one_pool_or_not_at_all() -> None:
    three = (a_node("n1"), a_node("n2", fabric="ib"), a_node("n3", fabric="ib"))
    decision = decided(Snapshot(three, waiting=(a_job("a", 8, nodes=2),)))
    assert nodes(decision) == {"a": ("n2", "n3")}
    busy = an_allocation("x", a_share("n3", 0), tariff=Tariff.ON_DEMAND)
    decision = decided(Snapshot(three, (busy,), (a_job("a", 8, nodes=2),)))
    assert decision.placements == ()
    assert wait(decision, "a").reason is WaitReason.SHADOW_START


def test_the_cheaper_pool_is_taken_where_the_job_leaves_it_open() -> None:
    both = (a_node("n1", fabric="ib"), a_node("n2"))
    prices = {(POOL, Tariff.ON_DEMAND): Fraction(1_660_000), (IB_POOL, Tariff.ON_DEMAND): Fraction(1_900_000)}
    decision = decided(Snapshot(both, waiting=(a_job("a", 1), a_job("b", 1, fabric="ib")), prices=prices))
    assert nodes(decision) == {"a": ("n2",), "b": ("n1",)}


def test_exclude_and_nodelist_are_kept() -> None:
    three = tuple(a_node(name) for name in ("n1", "n2", "n3"))
    jobs = (a_job("a", 1, exclude=("n1", "n2")), a_job("b", 1, nodes=2, nodelist=("n2",)))
    placed = nodes(decided(Snapshot(three, waiting=jobs)))
    assert placed["a"] == ("n3",)
    assert "n2" in placed["b"]


def test_a_job_without_cards_takes_cpus_only_and_not_from_a_full_node() -> None:
    full = an_allocation("x", a_share("n1", cpus=62), tariff=Tariff.NO_GPU)
    job = a_job("a", 0, cpus_per_task=4, tariff=Tariff.NO_GPU)
    assert nodes(decided(Snapshot((a_node("n1"), a_node("n2")), (full,), (job,)))) == {"a": ("n2",)}


@pytest.mark.parametrize("state", [NodeState.DOWN, NodeState.DRAINED])
def test_nothing_new_goes_to_a_node_that_is_not_usable(state: NodeState) -> None:
    decision = decided(Snapshot((a_node(state=state),), waiting=(a_job("a"),)))
    assert decision.placements == ()
    assert wait(decision, "a") == Wait(
        JobId("a"), WaitReason.NO_CARDS, "every node that could take it is down or drained"
    )


def test_claims_go_first_in_their_order() -> None:
    jobs = [
        a_job(tariff.value, 8, tariff=tariff, submitted_at=at(-seconds))
        for seconds, tariff in [
            (40, Tariff.IDLE),
            (30, Tariff.SPOT),
            (20, Tariff.ON_DEMAND),
            (10, Tariff.MONTH),
        ]
    ]
    order = []
    while jobs:
        decision = decided(Snapshot(EIGHT, waiting=tuple(jobs)))
        order.append(decision.placements[0].job_id)
        jobs = [job for job in jobs if job.job_id != order[-1]]
    assert order == ["month", "on_demand", "spot", "idle"]


def test_spot_goes_by_bid_then_time() -> None:
    jobs = (
        a_job("late", 8, tariff=Tariff.SPOT, bid_rank=Fraction(2), submitted_at=at(-5)),
        a_job("early", 8, tariff=Tariff.SPOT, bid_rank=Fraction(2), submitted_at=at(-9)),
        a_job("low", 8, tariff=Tariff.SPOT, bid_rank=Fraction(1), submitted_at=at(-99)),
    )
    assert list(nodes(decided(Snapshot(EIGHT, waiting=jobs)))) == ["early"]


def test_the_team_that_used_less_goes_first_then_time_then_id() -> None:
    usage = {TeamId("rich"): 100.0, TeamId("poor"): 1.0}
    jobs = (a_job("a", 8, team="rich", submitted_at=at(-99)), a_job("b", 8, team="poor"))
    assert list(nodes(decided(Snapshot(EIGHT, waiting=jobs, team_usage=usage)))) == ["b"]
    assert list(nodes(decided(Snapshot(EIGHT, waiting=jobs)))) == ["a"]
    twins = (a_job("d", 8), a_job("c", 8))
    assert list(nodes(decided(Snapshot(EIGHT, waiting=twins)))) == ["c"]


def test_two_teams_share_what_one_decision_hands_out() -> None:
    first = [a_job(f"a{i}", 1, team="first", submitted_at=at(-90 + i)) for i in range(8)]
    second = [a_job(f"b{i}", 1, team="second", submitted_at=at(-20 + i)) for i in range(8)]
    placed = nodes(decided(Snapshot(EIGHT, waiting=(*first, *second))))
    assert sorted(placed) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]


def test_what_can_never_run_is_refused_with_the_figure() -> None:
    refusal = decided(Snapshot(EIGHT, waiting=(a_job("a", 9),))).refusals[0]
    assert (refusal.reason, refusal.message) == (JobEndReason.IMPOSSIBLE, "9 rtx4090 on one node; n1 has 8")


def test_what_is_blocked_waits_and_what_never_comes_is_refused() -> None:
    blocked = Blocked(WaitReason.BEGIN_TIME, "begins later", at(60))
    never = Never(JobEndReason.DEPENDENCY_NEVER, "it needs job 1 to succeed")
    decision = decided(Snapshot(EIGHT, waiting=(a_job("a", blocked=blocked), a_job("b", blocked=never))))
    assert wait(decision, "a") == Wait(JobId("a"), WaitReason.BEGIN_TIME, "begins later", at(60))
    assert decision.refusals[0].reason is JobEndReason.DEPENDENCY_NEVER


def test_an_array_starts_no_more_tasks_than_its_limit() -> None:
    running = an_allocation("x", a_share("n1", 0), tariff=Tariff.ON_DEMAND, array_group="5")
    tasks = tuple(a_job(f"5_{i}", 1, array_group="5", array_running_max=3) for i in range(4))
    decision = decided(Snapshot(EIGHT, (running,), tasks))
    assert sorted(nodes(decision)) == ["5_0", "5_1"]
    assert wait(decision, "5_2").reason is WaitReason.ARRAY_LIMIT


def test_a_price_above_the_bid_keeps_a_job_waiting_and_gives_running_spot_its_notice() -> None:
    prices = {(POOL, Tariff.SPOT): Fraction(500_000)}
    dear = an_allocation("dear", a_share("n1", 0), bid=Fraction(499_999))
    member = an_allocation("edu", a_share("n1", 1), bid=Fraction(450_000), member_factor=Fraction(9, 10))
    job = a_job("a", tariff=Tariff.SPOT, bid=Fraction(400_000))
    decision = decided(Snapshot(EIGHT, (dear, member), (job,), prices=prices))
    assert [(r.allocation_id, r.for_job_id) for r in decision.reclaims] == [("dear", None)]
    assert "CNY 0.5 per card-hour, the bid CNY 0.499999" in decision.reclaims[0].message
    assert wait(decision, "a").reason is WaitReason.PRICE_ABOVE_MAX
    assert wait(decision, "a").message == "the price is CNY 0.5 per card-hour now, its limit CNY 0.4"


def test_eight_cards_in_pieces_are_fragmented_and_said_so() -> None:
    halves = (
        an_allocation("x", a_share("n1", 0, 1, 2, 3), tariff=Tariff.ON_DEMAND, expected_end_at=None),
        an_allocation("y", a_share("n2", 0, 1, 2, 3), tariff=Tariff.ON_DEMAND, expected_end_at=None),
    )
    decision = decided(Snapshot((a_node("n1"), a_node("n2")), halves, (a_job("a", 8),)))
    assert wait(decision, "a").reason is WaitReason.FRAGMENTED
    assert wait(decision, "a").message == (
        "needs 8 rtx4090; 8 free in bj1/rtx4090/eth, at most 4 on one node"
    )


def test_unlinked_cards_are_not_given_in_silence() -> None:
    quads = a_node(links=all_linked([range(4), range(4, 8)]))
    held = an_allocation("x", a_share("n1", 0, 1, 4, 5), tariff=Tariff.ON_DEMAND, expected_end_at=None)
    decision = decided(Snapshot((quads,), (held,), (a_job("a", 4), a_job("b", 2))))
    assert cards(decision) == {"b": ("n1.2", "n1.3")}
    assert wait(decision, "a").reason in (WaitReason.FRAGMENTED, WaitReason.NO_CARDS)


def test_a_shadow_start_lets_short_jobs_by_and_holds_long_ones_back() -> None:
    six = an_allocation(
        "x", a_share("n1", 0, 1, 2, 3, 4, 5), tariff=Tariff.ON_DEMAND, expected_end_at=at(1800)
    )
    jobs = (
        a_job("gang", 8, submitted_at=at(-90)),
        a_job("long", 1, time_limit_seconds=1801),
        a_job("short", 1, time_limit_seconds=1800),
    )
    decision = decided(Snapshot(EIGHT, (six,), jobs))
    assert list(nodes(decision)) == ["short"]
    assert wait(decision, "gang").start_estimate == at(1800)
    assert wait(decision, "long").reason is WaitReason.BEHIND_OTHERS
    assert decision.holds[0].shadow


def test_a_long_job_may_use_what_the_shadow_start_does_not_need() -> None:
    two = (a_node("n1"), a_node("n2", cards=2))
    seven = an_allocation("x", a_share("n1", *range(7)), tariff=Tariff.ON_DEMAND)
    jobs = (a_job("gang", 8, submitted_at=at(-90)), a_job("long", 1, time_limit_seconds=10**6))
    assert nodes(decided(Snapshot(two, (seven,), jobs))) == {"long": ("n2",)}


def test_spot_may_fill_cards_that_wait_for_a_greater_claim_for_long() -> None:
    six = an_allocation("x", a_share("n1", 0, 1, 2, 3, 4, 5), tariff=Tariff.ON_DEMAND)
    jobs = (a_job("gang", 8), a_job("spot", 2, tariff=Tariff.SPOT, time_limit_seconds=10**6))
    assert list(nodes(decided(Snapshot(EIGHT, (six,), jobs)))) == ["spot"]
    soon = replace(six, expected_end_at=at(600))
    assert nodes(decided(Snapshot(EIGHT, (soon,), jobs))) == {}


def test_nobody_is_reclaimed_for_what_fits_without() -> None:
    spot = an_allocation("s", a_share("n1", 0, 1, 2, 3))
    assert decided(Snapshot(EIGHT, (spot,), (a_job("a", 4),))).reclaims == ()


def test_nobody_is_reclaimed_when_the_claimant_would_not_fit_afterwards() -> None:
    spot = an_allocation("s", a_share("n1", 0, 1, 2, 3))
    firm = an_allocation("f", a_share("n1", 4), tariff=Tariff.ON_DEMAND)
    decision = decided(Snapshot(EIGHT, (spot, firm), (a_job("a", 8),)))
    assert decision.reclaims == ()
    assert wait(decision, "a").reason is WaitReason.SHADOW_START


def test_the_fewest_cards_then_the_least_lost_work_then_the_lowest_bid() -> None:
    big = an_allocation("big", a_share("n1", 0, 1, 2, 3), newest_verified_checkpoint_at=at(-1))
    old = an_allocation("old", a_share("n1", 4, 5), newest_verified_checkpoint_at=at(-900))
    new = an_allocation("new", a_share("n1", 6, 7), newest_verified_checkpoint_at=at(-30))
    decision = decided(Snapshot(EIGHT, (big, old, new), (a_job("a", 2),)))
    assert [(r.allocation_id, r.lost_work_seconds, r.cards) for r in decision.reclaims] == [("new", 30, 2)]
    same = replace(old, newest_verified_checkpoint_at=at(-30), bid=Fraction(999_999))
    decision = decided(Snapshot(EIGHT, (big, same, new), (a_job("a", 2),)))
    assert [r.allocation_id for r in decision.reclaims] == ["old"]


@pytest.mark.parametrize(
    ("claimant", "holder", "reclaimed"),
    [
        (Tariff.ON_DEMAND, Tariff.SPOT, True),
        (Tariff.ON_DEMAND, Tariff.IDLE, True),
        (Tariff.RESERVED, Tariff.SPOT, True),
        (Tariff.SPOT, Tariff.IDLE, True),
        (Tariff.SPOT, Tariff.SPOT, False),
        (Tariff.IDLE, Tariff.SPOT, False),
        (Tariff.ON_DEMAND, Tariff.ON_DEMAND, False),
        (Tariff.RESERVED, Tariff.ON_DEMAND, False),
    ],
)
def test_only_spot_and_idle_yield_and_only_to_a_greater_claim(
    claimant: Tariff, holder: Tariff, reclaimed: bool
) -> None:
    held = an_allocation("h", a_share("n1", *range(8)), tariff=holder)
    decision = decided(Snapshot(EIGHT, (held,), (a_job("a", 1, tariff=claimant),)))
    assert bool(decision.reclaims) is reclaimed


def test_a_reclaim_in_progress_is_waited_for_and_nobody_else_gets_the_cards() -> None:
    going = an_allocation("s", a_share("n1", *range(6)), notice_deadline=at(100), reclaimed_for=JobId("a"))
    other = an_allocation("t", a_share("n2", *range(8)))
    jobs = (
        a_job("a", 8, submitted_at=at(-5), promised_at=at(-20)),
        a_job("b", 1, submitted_at=at(-90), time_limit_seconds=10),
    )
    decision = decided(Snapshot((a_node("n1"), a_node("n2")), (going, other), jobs))
    assert wait(decision, "a").start_estimate == at(110)
    assert (
        wait(decision, "a").message
        == "its cards are coming free from job s, by 2026-03-10T02:01:50Z at the latest"
    )
    assert [(r.allocation_id, r.for_job_id) for r in decision.reclaims] == [("t", "b")]


def test_a_claimant_keeps_what_was_freed_for_it_against_its_neighbours_in_the_queue() -> None:
    jobs = (a_job("a", 8, team="greedy", promised_at=at(-130)), a_job("b", 1, submitted_at=at(-900)))
    usage = {TeamId("greedy"): 1e9}
    assert list(nodes(decided(Snapshot(EIGHT, waiting=jobs, team_usage=usage)))) == ["a"]


def test_a_gang_reclaims_on_each_of_its_nodes_and_gives_back_what_it_does_not_need() -> None:
    both = an_allocation("both", a_share("n1", 0, 1), a_share("n2", 0, 1))
    one = an_allocation("one", a_share("n1", *range(2, 8)))
    two = an_allocation("two", a_share("n2", *range(2, 8)))
    decision = decided(Snapshot((a_node("n1"), a_node("n2")), (both, one, two), (a_job("a", 2, nodes=2),)))
    assert [r.allocation_id for r in decision.reclaims] == ["both"]


def test_instances_without_an_end_promise_no_shadow_start() -> None:
    held = an_allocation("h", a_share("n1", *range(8)), tariff=Tariff.ON_DEMAND, expected_end_at=None)
    decision = decided(Snapshot(EIGHT, (held,), (a_job("a", 1),)))
    assert wait(decision, "a").reason is WaitReason.NO_CARDS
    assert decision.holds == ()


def test_no_node_known_yet_keeps_everyone_waiting() -> None:
    assert wait(decided(Snapshot((), waiting=(a_job("a"),))), "a").message == "no node is known yet"


def test_what_is_promised_to_one_gang_is_not_counted_on_by_the_next() -> None:
    going = an_allocation("s", a_share("n1", *range(8)), notice_deadline=at(100))
    jobs = (a_job("a", 8), a_job("b", 8, submitted_at=at(-1), time_limit_seconds=60))
    decision = decided(Snapshot(EIGHT, (going,), jobs))
    assert wait(decision, "a").start_estimate == at(110)
    assert wait(decision, "b").start_estimate == at(110 + 3600)


def test_a_second_shadow_start_comes_after_the_first() -> None:
    firm = an_allocation("f", a_share("n1", *range(8)), tariff=Tariff.ON_DEMAND, expected_end_at=at(600))
    jobs = (a_job("a", 8), a_job("b", 8, tariff=Tariff.SPOT))
    decision = decided(Snapshot(EIGHT, (firm,), jobs))
    assert [wait(decision, job).start_estimate for job in "ab"] == [at(600), at(4200)]


def test_a_shadow_start_counts_on_what_its_claim_may_reclaim() -> None:
    firm = an_allocation("f", a_share("n1", 0, 1, 2, 3), tariff=Tariff.ON_DEMAND, expected_end_at=at(600))
    spot = an_allocation("s", a_share("n1", 4, 5, 6, 7), expected_end_at=at(80_000))
    for tariff, start in ((Tariff.ON_DEMAND, 600), (Tariff.SPOT, 80_000)):
        decision = decided(Snapshot(EIGHT, (firm, spot), (a_job("a", 8, tariff=tariff),)))
        assert wait(decision, "a").start_estimate == at(start)


def test_two_claimants_wait_each_for_the_cards_reclaimed_for_it() -> None:
    gone = (
        an_allocation("s", a_share("n1", *range(8)), notice_deadline=at(100), reclaimed_for=JobId("b")),
        an_allocation("t", a_share("n2", *range(8)), notice_deadline=at(50), reclaimed_for=JobId("a")),
    )
    jobs = (a_job("b", 8, promised_at=at(-20)), a_job("a", 8, promised_at=at(-70)))
    decision = decided(Snapshot((a_node("n1"), a_node("n2")), gone, jobs))
    assert [wait(decision, job).start_estimate for job in "ab"] == [at(60), at(110)]


def test_the_claimant_that_was_promised_first_goes_first() -> None:
    jobs = (
        a_job("new", 8, promised_at=at(-10), submitted_at=at(-900)),
        a_job("old", 8, promised_at=at(-60), submitted_at=at(-100)),
    )
    assert list(nodes(decided(Snapshot(EIGHT, waiting=jobs)))) == ["old"]


def test_a_node_list_longer_than_the_gang_is_refused() -> None:
    decision = decided(
        Snapshot((a_node("n1"), a_node("n2")), waiting=(a_job("a", 1, nodelist=("n1", "n2")),))
    )
    assert decision.refusals[0].message == "the node list names 2 nodes, the job asks for 1"


def test_what_starts_at_once_or_not_at_all_is_refused_by_the_first_decision_that_has_nothing_for_it() -> None:
    busy = an_allocation("x", a_share("n1", 0, 1, 2, 3, 4, 5, 6), tariff=Tariff.ON_DEMAND)
    jobs = (replace(a_job("a", 2), at_once=True), replace(a_job("b", 1), at_once=True), a_job("c", 2))
    decision = decided(Snapshot(EIGHT, (busy,), jobs))
    assert set(cards(decision)) == {"b"}
    assert [(r.job_id, r.reason) for r in decision.refusals] == [("a", JobEndReason.NO_CARDS)]
    assert "2 rtx4090" in decision.refusals[0].message
    assert wait(decision, "c").reason is not None


def test_it_waits_for_cards_that_lower_claims_give_back_for_it() -> None:
    spot = an_allocation("x", a_share("n1", *range(8)), tariff=Tariff.SPOT)
    decision = decided(Snapshot(EIGHT, (spot,), (replace(a_job("a", 2), at_once=True),)))
    assert decision.refusals == () and [r.for_job_id for r in decision.reclaims] == ["a"]
    assert wait(decision, "a").reason is WaitReason.NO_CARDS


def test_a_disk_down_to_its_reserve_is_a_reason_of_its_own() -> None:
    full = Blocked(WaitReason.DISK_RESERVE, "down to its reserve")
    decision = decided(Snapshot(EIGHT, (), (replace(a_job("a", 1), at_once=True, blocked=full),)))
    assert [refusal.reason for refusal in decision.refusals] == [JobEndReason.DISK_RESERVE]
    assert reason_of_refusal(JobEndReason.DISK_RESERVE.value) is InstanceReason.DISK_RESERVE


def test_a_pause_after_a_lost_race_ends_nothing_that_starts_at_once() -> None:
    pause = Blocked(WaitReason.PLATFORM, "tried again in a moment", at(15))
    poor = Blocked(WaitReason.NO_MONEY, "the first hour costs more than there is")
    jobs = tuple(
        replace(a_job(name, 1), at_once=True, blocked=why) for name, why in (("a", pause), ("b", poor))
    )
    decision = decided(Snapshot(EIGHT, waiting=jobs))
    assert wait(decision, "a").reason is WaitReason.PLATFORM
    assert [(r.job_id, r.reason) for r in decision.refusals] == [("b", JobEndReason.NO_MONEY)]
