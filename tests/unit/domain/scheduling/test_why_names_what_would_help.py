"""``job why``: the reason, the figures, and advice that was tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starverse.domain.errors import NotFound
from starverse.domain.ids import JobId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.snapshot import Blocked, Never, Snapshot, WaitingJob
from starverse.domain.scheduling.why import Why, explain
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import JobEndReason, WaitReason
from starverse.testing.snapshots import NOW, a_job, a_node, a_share, an_allocation, at


def why(snapshot: Snapshot, job: str) -> Why:
    return explain(snapshot, decide(snapshot, NOW), JobId(job))


FIRM = an_allocation("firm", a_share("n1", 0, 1, 2, 3), tariff=Tariff.ON_DEMAND, expected_end_at=at(7200))
NODES = (a_node("n1"), a_node("n2", cards=4, model="a100-40g"))


def test_smaller_requests_and_other_models_that_would_start_now_are_named() -> None:
    answer = why(Snapshot((*NODES, a_node("n3", fabric="ib")), (FIRM,), (a_job("a", 8, fabric="eth"),)), "a")
    assert answer.reason is WaitReason.SHADOW_START
    assert answer.start_estimate == at(7200)
    assert answer.what_helps == ("without the fabric eth", "--gres=gpu:rtx4090:4")
    assert "bj1/rtx4090/eth: 4 cards free, at most 4 on one node" in answer.facts


def test_advice_that_would_not_help_is_not_given() -> None:
    full = replace(FIRM, shares=(a_share("n1", *range(8)), a_share("n2", *range(4))))
    assert why(Snapshot(NODES, (full,), (a_job("a", 4),)), "a").what_helps == ()


def test_a_shorter_time_limit_is_named_in_minutes() -> None:
    jobs = (a_job("gang", 8, submitted_at=at(-90)), a_job("long", 1, time_limit_seconds=86_400))
    answer = why(Snapshot((a_node("n1"),), (FIRM,), jobs), "long")
    assert answer.reason is WaitReason.BEHIND_OTHERS
    assert answer.what_helps == ("--time=120",)
    assert any("1 other on_demand jobs wait for cards" in fact for fact in answer.facts)


def test_the_earliest_start_is_told_to_those_who_hold_none() -> None:
    full = replace(FIRM, shares=(a_share("n1", *range(8)),))
    answer = why(Snapshot((a_node("n1"),), (full,), (a_job("a", 8), a_job("b", 8, submitted_at=at(-1)))), "b")
    assert (answer.start_estimate, answer.start_earliest) == (None, at(7200))


def test_a_spot_job_learns_that_on_demand_would_start() -> None:
    jobs = (
        a_job("s", 8, tariff=Tariff.SPOT, submitted_at=at(-90)),
        a_job("t", 4, tariff=Tariff.SPOT, exclude=("n9",)),
    )
    ending = replace(FIRM, expected_end_at=at(600))
    answer = why(Snapshot((a_node("n1"),), (ending,), jobs), "t")
    assert answer.what_helps == ("--time=10", "--tariff on_demand")


@pytest.mark.parametrize(
    ("job", "reason", "helps"),
    [
        (a_job("a", 2), WaitReason.STARTING, ()),
        (a_job("a", 9), JobEndReason.IMPOSSIBLE, ()),
        (a_job("a", blocked=Never(JobEndReason.DEPENDENCY_NEVER, "x")), JobEndReason.DEPENDENCY_NEVER, ()),
        (
            a_job("a", blocked=Blocked(WaitReason.NO_MONEY, "x")),
            WaitReason.NO_MONEY,
            ("top up: starverse topup",),
        ),
        (a_job("a", blocked=Blocked(WaitReason.DEPENDENCY, "x", at(9))), WaitReason.DEPENDENCY, ()),
    ],
)
def test_each_kind_of_answer_is_explained(job: WaitingJob, reason: object, helps: tuple[str, ...]) -> None:
    answer = why(Snapshot((a_node("n1"),), waiting=(job,)), "a")
    assert (answer.reason, answer.what_helps) == (reason, helps)


def test_a_job_that_is_not_waiting_is_not_explained() -> None:
    with pytest.raises(NotFound):
        why(Snapshot(()), "a")


def test_a_job_that_the_decision_did_not_see_is_new() -> None:
    seen = Snapshot(NODES)
    later = replace(seen, waiting=(a_job("a"),))
    assert explain(later, decide(seen, NOW), JobId("a")).reason is WaitReason.NEW
