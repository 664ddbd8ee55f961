"""A node whose driver is too old for a job's image is never chosen, and the answer says what it has."""

from __future__ import annotations

import pytest

from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.fit import (
    Fit,
    Misfit,
    MisfitReason,
    fits,
    free_of,
    impossible,
    kinds_of,
    share_fits,
)
from starverse.domain.scheduling.snapshot import NodeShare, Snapshot
from starverse.domain.scheduling.why import explain
from starverse.domain.workloads.reasons import JobEndReason
from starverse.domain.workloads.specs import Resources
from starverse.testing.snapshots import NOW, a_job, a_node

WANTED = Resources(card_model="rtx4090", cards_per_node=1, driver_min="525.60.13")


@pytest.mark.parametrize(("driver", "fit"), [("470.57.02", False), ("525.60.13", True), ("", True)])
def test_one_rule_for_deciding_and_for_the_check_before_writing(driver: str, fit: bool) -> None:
    node = a_node("n1", driver=driver)
    free = free_of(node, ())
    answer = fits(node, WANTED, free)
    assert isinstance(answer, Fit) is fit
    share = NodeShare(node.id, (node.cards[0].id,), WANTED.cpus_per_node, WANTED.memory_bytes)
    again = share_fits(node, WANTED, share, free)
    assert (again is None) is fit
    if isinstance(answer, Misfit):
        assert (answer.reason, answer.permanent) == (MisfitReason.DRIVER_TOO_OLD, True)
        assert answer.message == "its image needs NVIDIA driver 525.60.13 or newer; n1 has 470.57.02"


def test_the_job_goes_to_the_node_that_can() -> None:
    old, new = a_node("n1", driver="470.57.02"), a_node("n2", driver="550.54.14")
    assert len(kinds_of((old, new))) == 2, "nodes alike but for their drivers are of two kinds"
    snapshot = Snapshot(nodes=(old, new), waiting=(a_job("1", driver_min="525.60.13"),))
    (placement,) = decide(snapshot, NOW).placements
    assert [share.node_id for share in placement.shares] == ["n2"]


def test_where_no_node_can_the_job_ends_with_the_reason() -> None:
    nodes = tuple(a_node(name, driver="470.57.02") for name in ("n1", "n2"))
    misfit = impossible(nodes, WANTED)
    assert misfit is not None
    assert misfit.reason is MisfitReason.DRIVER_TOO_OLD
    job = a_job("1", driver_min="525.60.13")
    snapshot = Snapshot(nodes=nodes, waiting=(job,))
    decision = decide(snapshot, NOW)
    assert decision.placements == ()
    why = explain(snapshot, decision, job.job_id)
    assert why.reason is JobEndReason.IMPOSSIBLE
    assert "driver 525.60.13 or newer" in why.message
    assert "470.57.02" in why.message
