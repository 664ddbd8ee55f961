"""What a run saved by the template is told of its pool: the reclaims of the runs before it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from starverse.db import allocations
from starverse.domain.recovery.checkpoint_interval import reclaim_rate
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_copies_follow_the_reclaims_of_spot_runs_and_of_no_others(world: World) -> None:
    lab = world.team("lab")
    world.plan("spot", run_seconds=3000)
    world.plan("firm", run_seconds=60)
    world.submit(lab, "--tariff=spot", "--gres=gpu:rtx4090:8", "--checkpoint=state", name="spot")
    world.run(100, step=5)
    world.submit(lab, "--gres=gpu:rtx4090:8", "--checkpoint=state", name="firm")
    world.run(600, step=5)

    specs = [launch.spec for launch in world.engine.launchers.values()]
    told = [spec.template.reclaims_per_second for spec in specs if spec.template is not None]
    week_ago = world.clock.now() - timedelta(days=7)
    with world.database.read() as connection:
        reclaims, seconds = allocations.reclaims_seen(connection, "rtx4090", "eth", week_ago)
        assert allocations.reclaims_seen(connection, "rtx4090", "ib", week_ago) == (0, 0)
        assert allocations.reclaims_seen(connection, "rtx4090", "eth", world.clock.now()) == (0, 0)
    assert reclaims == 1
    assert 90 <= seconds <= 300
    assert told == [pytest.approx(rate) for rate in (reclaim_rate(0, 0), 0.0, reclaim_rate(1, seconds))]
    world.assert_sound()
