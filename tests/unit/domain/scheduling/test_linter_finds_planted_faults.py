"""A sound decision with one fault planted: the linter names the rule that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from starverse.domain.ids import AllocationId, CardId, JobId, NodeId
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.decision import Decision, Placement
from starverse.domain.scheduling.linter import RULES, lint
from starverse.domain.scheduling.snapshot import Blocked, Pool, Snapshot
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import WaitReason
from starverse.testing.snapshots import NOW, a_job, a_node, a_share, an_allocation, at

POOL = Pool("bj1", "rtx4090", "eth")
SNAPSHOT = Snapshot(
    nodes=(a_node("n1"), a_node("n2"), a_node("n3", fabric="ib"), a_node("n4", cards=2), a_node("n5")),
    running=(
        an_allocation("firm", a_share("n1", 0), tariff=Tariff.ON_DEMAND, bid=None),
        an_allocation("spot", a_share("n2", *range(8))),
        an_allocation("lone", a_share("n3", *range(8))),
        an_allocation("going", a_share("n1", 1), notice_deadline=at(60)),
    ),
    waiting=(
        a_job("pair", 2, bid=Fraction(2_000_000), array_group="9", array_running_max=1),
        a_job("big", 8, fabric="eth", submitted_at=at(-5)),
        a_job("gang", 1, nodes=2, exclude=("n4",), submitted_at=at(-90)),
    ),
    prices={(POOL, Tariff.ON_DEMAND): Fraction(1_660_000)},
)
SOUND = decide(SNAPSHOT, NOW)


def placed(decision: Decision, job: str) -> Placement:
    return next(p for p in decision.placements if p.job_id == job)


def with_placement(decision: Decision, changed: Placement) -> Decision:
    others = tuple(p for p in decision.placements if p.job_id != changed.job_id)
    return replace(decision, placements=(*others, changed))


def with_share(decision: Decision, job: str, **changes: object) -> Decision:
    placement = placed(decision, job)
    first = replace(placement.shares[0], **changes)  # type: ignore[arg-type]
    return with_placement(decision, replace(placement, shares=(first, *placement.shares[1:])))


def without_placement(decision: Decision, job: str) -> Decision:
    return replace(decision, placements=tuple(p for p in decision.placements if p.job_id != job))


def cards(*names: str) -> tuple[CardId, ...]:
    return tuple(CardId(name) for name in names)


def test_the_decision_is_sound_as_made_and_has_something_of_everything() -> None:
    assert lint(SNAPSHOT, SOUND) == []
    assert {p.job_id for p in SOUND.placements} == {"pair", "gang"}
    assert [r.allocation_id for r in SOUND.reclaims] == ["spot"]


FAULTS: dict[str, tuple[str, Callable[[Decision], Decision]]] = {
    "a job without an answer": ("answered_once", lambda d: without_placement(d, "pair")),
    "a job with two answers": (
        "answered_once",
        lambda d: replace(d, placements=(*d.placements, placed(d, "pair"))),
    ),
    "an answer about nobody": (
        "answered_once",
        lambda d: replace(d, waits=(*d.waits, replace(d.waits[0], job_id=JobId("ghost")))),
    ),
    "a node that does not exist": ("known_nodes", lambda d: with_share(d, "pair", node_id=NodeId("n9"))),
    "an old generation": ("known_nodes", lambda d: with_share(d, "pair", generation=6)),
    "a card that is held": ("card_once", lambda d: with_share(d, "gang", card_ids=cards("n1.0"))),
    "a card given twice": (
        "card_once",
        lambda d: with_placement(d, replace(placed(d, "gang"), shares=placed(d, "gang").shares[:1] * 2)),
    ),
    "too many CPUs": ("shares_fit", lambda d: with_share(d, "pair", cpus=65)),
    "an excluded node": (
        "shares_fit",
        lambda d: with_share(without_placement(d, "pair"), "gang", node_id="n4", card_ids=cards("n4.0")),
    ),
    "half a gang": (
        "gang_whole",
        lambda d: with_placement(d, replace(placed(d, "gang"), shares=placed(d, "gang").shares[:1])),
    ),
    "a gang over two pools": (
        "one_pool",
        lambda d: with_placement(d, replace(placed(d, "gang"), pool=Pool("bj1", "rtx4090", "ib"))),
    ),
    "another tariff": (
        "may_start",
        lambda d: with_placement(d, replace(placed(d, "pair"), tariff=Tariff.SPOT)),
    ),
    "the same reclaimed twice": ("reclaims_allowed", lambda d: replace(d, reclaims=d.reclaims * 2)),
    "a reclaim of what has its notice": (
        "reclaims_allowed",
        lambda d: replace(d, reclaims=(replace(d.reclaims[0], allocation_id=AllocationId("going")),)),
    ),
    "a reclaim of an equal claim": (
        "reclaims_allowed",
        lambda d: replace(d, reclaims=(replace(d.reclaims[0], allocation_id=AllocationId("firm")),)),
    ),
    "a reclaim of nobody": (
        "reclaims_allowed",
        lambda d: replace(d, reclaims=(replace(d.reclaims[0], allocation_id=AllocationId("ghost")),)),
    ),
    "a reclaim after which the claimant does not fit": (
        "claimant_fits",
        lambda d: replace(d, reclaims=(replace(d.reclaims[0], allocation_id=AllocationId("lone")),)),
    ),
    "a reclaim for which nothing is held": ("claimant_fits", lambda d: replace(d, holds=())),
    "cards promised twice": (
        "holds_do_not_overlap",
        lambda d: replace(d, holds=d.holds + tuple(h for h in d.holds if not h.shadow)),
    ),
    "a reclaim that helps nobody": (
        "nothing_superfluous",
        lambda d: replace(
            d, reclaims=(*d.reclaims, replace(d.reclaims[0], allocation_id=AllocationId("lone")))
        ),
    ),
}


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.replace(" ", "_"))
def test_a_planted_fault_is_found(case: str) -> None:
    rule, plant = FAULTS[case]
    assert rule in {fault.partition(":")[0] for fault in lint(SNAPSHOT, plant(SOUND))}


def test_a_job_that_may_not_start_or_is_too_dear_must_not_be_placed() -> None:
    blocked = Blocked(WaitReason.BEGIN_TIME, "later")
    for changed in ({"blocked": blocked}, {"bid": Fraction(1)}):
        jobs = tuple(replace(j, **changed) if j.job_id == "pair" else j for j in SNAPSHOT.waiting)
        assert any(f.startswith("may_start") for f in lint(replace(SNAPSHOT, waiting=jobs), SOUND))


def test_an_array_over_its_limit_is_found() -> None:
    running = replace(SNAPSHOT.running[0], array_group="9")
    full = replace(SNAPSHOT, running=(running, *SNAPSHOT.running[1:]))
    assert any(fault.startswith("array_limit") for fault in lint(full, SOUND))


def test_every_rule_has_a_planted_fault() -> None:
    planted = {rule for rule, _ in FAULTS.values()} | {"array_limit"}
    assert planted == set(RULES)
