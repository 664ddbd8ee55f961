"""``job why`` answers for every job: one that waits, one that runs, one that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.cli.remote.jobs import why_text
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def told(world: World, who: object, number: str) -> str:
    return why_text(jobs.why(world.platform, who, number))  # type: ignore[arg-type]


def test_each_state_has_an_answer(world: World) -> None:
    lab = world.team("lab")
    world.plan("fails", FakeRun(run_seconds=20, exit_code=3))
    number = world.submit(lab, name="runs").number
    fails = world.submit(lab, name="fails").number
    later = world.submit(lab, "--begin=now+1hour", name="later").number
    world.run(5)
    assert told(world, lab, number).startswith("it runs since 20")
    jobs.cancel(world.platform, lab, number)
    assert "cancelled by lab@example.org" in told(world, lab, number)
    world.run(100, step=5)
    assert told(world, lab, number).splitlines()[0].startswith("cancelled: it was cancelled at 20")
    assert "it failed at 20" in told(world, lab, fails)
    assert "with exit code 3" in told(world, lab, fails)
    assert told(world, lab, later).startswith("begin_time: ")
