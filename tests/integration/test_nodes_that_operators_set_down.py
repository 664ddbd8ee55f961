"""A node that its operators set down is a lost node: credit for lost work, and another place at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.instances import views
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.db import allocations
from starverse.domain.money import ZERO
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data", nodes=(node_report("gpu-1"), node_report("gpu-2")))


def runs(world: World, job_id: str) -> list[Allocation]:
    with world.platform.database.read() as connection:
        return sorted(allocations.of_jobs(connection, [job_id])[job_id], key=lambda run: run.attempt)


def test_what_ran_there_goes_on_elsewhere_at_once_and_lost_work_is_credited(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    world.plan("train", FOR_EVER, checkpoint_seconds=100)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", restart="elsewhere"))
    job = world.submit(lab, name="train")
    world.run(150, step=10)
    shown = views.get(world.platform, lab, "box")
    (first,) = runs(world, job.id)
    world.engine.set_down(first.nodes[0])
    assert (shown.node,) == first.nodes, "both are where the others' cards are least in the way"
    for name in ("observe", "checkpoint", "schedule", "launch"):  # the inventory's own round is not due yet
        world.run_reconciler(name)
    lost, again = runs(world, job.id)
    assert lost.cause is EndCause.NODE_LOST and "set down" in lost.message
    assert again.nodes != lost.nodes
    world.run(10)
    assert views.get(world.platform, lab, made.id).state is InstanceState.RUNNING
    bill = world.bill(lab)
    assert ZERO < bill.credit_back < bill.total
    world.assert_sound()
