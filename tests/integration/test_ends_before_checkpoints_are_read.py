"""An end is recorded at once, whatever its run published; what follows comes when that is verified."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.checkpoints import QUICK_BYTES_MAX, choose_resume, is_quick, record_found
from starverse.app.launching import RESTORE_BYTES_PER_SECOND, is_too_late, start, start_within_seconds
from starverse.checkpoint import Checkpointer
from starverse.db import allocations, checkpoints, jobs
from starverse.domain.money import ZERO
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.states import AllocationState, CheckpointState, JobState
from starverse.reconcilers.checkpoint import AT_ONCE, Background
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def run_until_lost(world: World) -> str:
    """A job whose launcher died at 100 s, 10 s after its last checkpoint; nothing looked at checkpoints."""
    lab = world.team("lab")
    world.plan("train", run_seconds=3000, dies_at_seconds=100, checkpoint_seconds=30)
    job = world.submit(lab, name="train")
    for _ in range(20):
        for name in ("schedule", "launch", "observe"):
            world.run_reconciler(name)
        world.clock.advance(seconds=10)
        world.engine.advance()
    return job.id


def test_cards_and_money_are_free_before_a_byte_was_read_and_the_credit_comes_after(world: World) -> None:
    job_id = run_until_lost(world)
    with world.database.read() as connection:
        (run,) = allocations.of_jobs(connection, [job_id])[job_id]
        assert run.cause is EndCause.NODE_LOST
        assert run.closed_at is not None
        assert run.examined_at is None
        assert allocations.open_ones(connection) == []
        assert not checkpoints.of_job(connection, job_id)
        job = jobs.get(connection, job_id)
    assert job is not None
    assert (job.state, job.reason) == (JobState.QUEUED, "checkpoint")
    assert "verified" in job.message

    world.run_reconciler("checkpoint")
    with world.database.read() as connection:
        (run,) = allocations.of_jobs(connection, [job_id])[job_id]
        assert run.examined_at == world.clock.now()
        assert checkpoints.of_job(connection, job_id)
    assert "settled" not in world.run_reconciler("checkpoint")
    for name in ("schedule", "launch"):
        world.run_reconciler(name)
    resumed = [launch.spec.resume_from for launch in world.engine.launchers.values()]
    assert resumed[0] == ""
    assert resumed[1].endswith("-a1")
    world.assert_sound()


def test_only_the_seconds_since_the_newest_checkpoint_come_back(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=3000, dies_at_seconds=100, checkpoint_seconds=30)
    world.submit(lab, "--no-requeue", name="train")
    world.run(200, step=5)
    bill = world.bill(lab)
    assert ZERO < bill.credit_back < bill.total


def test_only_what_was_recorded_as_verified_is_resumed_from(world: World) -> None:
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    library = Checkpointer(
        world.platform.paths.checkpoints(job.id), environment={}, handle_signal=False, now=world.clock.now
    )
    first = library.save_bytes(1, {"a": b"a"})
    with world.database.read() as connection:
        assert is_quick(world.platform, job.id, checkpoints.of_job(connection, job.id))
    assert choose_resume(world.platform, job.id) == ""
    record_found(world.platform, job.id, lab.team_id, [])
    assert choose_resume(world.platform, job.id) == first.name
    (first / "a").write_bytes(b"?")
    assert choose_resume(world.platform, job.id) == ""


def test_more_than_a_moment_of_reading_is_no_quick_work(world: World) -> None:
    job = world.submit(world.team("lab"), name="train")
    library = Checkpointer(
        world.platform.paths.checkpoints(job.id), environment={}, handle_signal=False, now=world.clock.now
    )
    library.save_bytes(1, {"a": bytes(QUICK_BYTES_MAX + 1)})
    assert not is_quick(world.platform, job.id, [])


def test_a_few_long_works_go_on_at_once_and_one_of_a_team() -> None:
    background, go_on, did = Background(), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        go_on.wait(20)
        did.release()

    def fail() -> None:
        did.release()
        raise ValueError("odd")

    assert background.start("team 0", work)
    assert not background.start("team 0", work)
    assert [background.start(f"team {n}", work) for n in range(1, AT_ONCE + 1)] == [True] * (AT_ONCE - 1) + [
        False
    ]
    go_on.set()
    for _ in range(AT_ONCE):
        assert did.acquire(timeout=20)
    while not background.start("team 9", fail):
        pass
    assert did.acquire(timeout=20)
    found: list[Exception] = []
    while not found:
        found = background.errors()
    assert [str(error) for error in found] == ["odd"]
    assert background.errors() == []


def test_the_time_to_start_counts_from_the_placement_and_allows_for_what_is_put_back(world: World) -> None:
    lab = world.team("lab")
    job = world.submit(lab, "--checkpoint=state", name="train")
    world.run_reconciler("schedule")
    with world.database.read() as connection:
        (placed,) = allocations.open_ones(connection)
        row = jobs.get(connection, job.id)
    assert row is not None
    world.clock.advance(seconds=100)
    assert start(world.platform, placed)
    with world.database.read() as connection:
        (starting,) = allocations.open_ones(connection)
    assert starting.state is AllocationState.STARTING
    assert not is_too_late(world.platform, starting)
    world.clock.advance(seconds=20)
    assert is_too_late(world.platform, starting)

    big = checkpoints.CheckpointRow(
        id=world.platform.ids.uuid7(),
        job_id=job.id,
        folder="step-0000000001-a1",
        attempt=1,
        step=1,
        state=CheckpointState.PUBLISHED,
        bytes=RESTORE_BYTES_PER_SECOND * 60,
        published_at=world.clock.now(),
        verified_at=world.clock.now(),
        loaded_at=None,
        message="",
    )
    with world.database.write() as connection:
        checkpoints.insert_found(connection, [big])
        assert start_within_seconds(connection, world.platform, row) == 180
    assert not is_too_late(world.platform, starting)
