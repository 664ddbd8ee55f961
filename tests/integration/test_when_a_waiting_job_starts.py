"""``job why`` says when a job will start, by how long jobs of its kind ran before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.app.run_history import RunHistory
from starverse.app.views import SubmitRequest
from starverse.cli.remote.jobs import why_text
from starverse.domain.scheduling.run_times import PRIOR_SECONDS, RunFeatures
from starverse.domain.timespan import format_instant
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_the_past_tells_when_it_starts(world: World) -> None:
    lab = world.team("lab")
    for name in ("train", "again"):
        world.plan(name, FakeRun(run_seconds=200))
        world.submit(lab, name=name)
    world.run(400, step=20)
    with world.platform.database.read() as connection:
        now = world.clock.now()
        kept = world.platform.runs.times(connection, now)
        again = world.platform.runs.times(connection, now)
        fresh = RunHistory().times(connection, now)
    asked = RunFeatures(lab.team_id, 1, "train")
    assert kept.predict(asked) == again.predict(asked) == fresh.predict(asked)
    assert 100 < kept.predict(asked).median_seconds < PRIOR_SECONDS
    numbers = [world.submit(lab, name="train").number for _ in range(40)]
    world.run(5)
    told = jobs.why(world.platform, lab, numbers[-1])
    first, expected, last = (
        told["start_estimate"][f"{name}_at"] for name in ("earliest", "expected", "latest")
    )
    assert now.isoformat() < first <= expected <= last
    assert f"will start about {expected[:4]}" in why_text(told)  # type: ignore[arg-type]
    request = SubmitRequest(
        "#!/bin/bash\ntrue\n", argv=("--gres=gpu:rtx4090:1", "--job-name=train"), lint=True
    )
    assert jobs.submit(world.platform, lab, request).start_estimate is None
    new = jobs.submit(world.platform, lab, replace(request, when=True)).start_estimate
    assert new is not None
    assert format_instant(new.expected_at) >= expected
    assert jobs.why(world.platform, lab, numbers[0])["start_estimate"] is None
