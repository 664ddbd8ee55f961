"""Retention: workspaces and packed folders go when nothing needs them any more, and not before."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from starverse.app import jobs, removal
from starverse.app.folders import begin_upload, find_folder, remove_unused
from starverse.app.views import SubmitRequest
from starverse.client.packing import pack_folder
from starverse.db import checkpoints, folders, workspaces
from starverse.db.tables import tokens
from starverse.domain.errors import Conflict, Invalid, NotFound
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import SCRIPT, World


def test_workspaces_and_packed_folders_outlive_their_last_job_by_the_days_set(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "train.py").write_text("print(1)\n")
    packed = pack_folder(tmp_path / "paper")
    packed.file.seek(0)
    content = packed.file.read()
    packed.close()
    folder_id = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data", workspace_keep_days=14)
        lab = world.team("lab")
        upload = begin_upload(world.platform, lab, folder_id)
        upload.write(content)
        upload.finish()
        world.clock.advance(days=20)
        world.plan("train", run_seconds=60)
        argv = ("--gres=gpu:rtx4090:1", "--job-name=train")
        request = SubmitRequest(script=SCRIPT, argv=argv, folder_id=folder_id)
        job = jobs.submit(world.platform, lab, request).job
        assert job is not None
        workspace = world.platform.paths.workspace(job.workspace_id)
        world.run_reconciler("retention")
        assert find_folder(world.platform, lab, folder_id).existed, "a job waits for it"
        world.run(70, step=5)
        assert world.job(lab, job.number).state is JobState.SUCCEEDED

        world.clock.advance(days=13)
        world.run_reconciler("retention")
        assert (workspace / "train.py").is_file()
        world.clock.advance(days=2)
        world.run_reconciler("retention")
        world.run_reconciler("retention")
        assert not workspace.exists()
        with pytest.raises(NotFound):
            find_folder(world.platform, lab, folder_id)
        with pytest.raises(Invalid, match="uploaded before"):
            jobs.submit(world.platform, lab, request)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", workspace_keep_days=14)


def files_of(world: World, job_id: str, workspace_id: str, run_id: str) -> list[Path]:
    """Where the workspace, logs, checkpoints and the run of a job lie, each with something in it."""
    paths = world.platform.paths
    places = [
        paths.workspace(workspace_id),
        paths.logs(job_id),
        paths.checkpoints(job_id),
        paths.allocation(run_id),
    ]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "something").write_text("kept")
    return places


def test_all_that_a_job_left_goes_with_its_workspace_and_nothing_resumes_without_it(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=60, checkpoint_seconds=20, exit_code=1)
    job = world.submit(lab, name="train")
    world.run(70, step=5)
    done = world.job(lab, job.number)
    places = files_of(world, done.id, done.workspace_id, done.allocations[0].id)
    locked = places[0] / "locked"
    locked.mkdir()
    (locked / "inside").write_text("read-only")
    locked.chmod(0o500)
    world.clock.advance(days=13)
    world.run_reconciler("retention")
    assert all(place.exists() for place in places)

    world.clock.advance(days=2)
    world.run_reconciler("retention")
    assert [place for place in places if place.exists()] == []
    with world.platform.database.read() as connection:
        assert all(row.removed_at for row in checkpoints.of_job(connection, done.id))
        assert connection.execute(select(func.count()).select_from(tokens)).scalar_one() == 0
    with pytest.raises(Conflict, match="are kept 14 days"):
        jobs.resume(world.platform, lab, job.number)


def test_a_workspace_that_a_job_resumed_a_moment_ago_stays(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", exit_code=1)
    job = world.submit(lab, name="train")
    world.run(70, step=5)
    world.clock.advance(days=15)
    before = world.clock.now() - timedelta(days=14)
    with world.platform.database.read() as connection:
        assert workspaces.ended_before(connection, before, 9) == (job.workspace_id,)
    jobs.resume(world.platform, lab, job.number)
    assert not removal.remove_workspace(world.platform, job.workspace_id, before)
    assert world.platform.paths.workspace(job.workspace_id).is_dir()


def test_more_than_a_batch_goes_in_one_round(world: World) -> None:
    lab = world.team("lab")
    submitted = [world.submit(lab, "--time=1", name=f"job{index}") for index in range(60)]
    for job in submitted:
        jobs.cancel(world.platform, lab, job.number)
    world.clock.advance(days=15)
    assert world.run_reconciler("retention").count("removed workspace") == 60


def test_a_folder_that_is_uploaded_again_is_not_taken_away(world: World, tmp_path: Path) -> None:
    lab = world.team("lab")
    (tmp_path / "paper").mkdir()
    packed = pack_folder(tmp_path / "paper")
    packed.file.seek(0)
    content = packed.file.read()
    packed.close()
    folder_id = f"sha256:{hashlib.sha256(content).hexdigest()}"

    def upload() -> bool:
        coming = begin_upload(world.platform, lab, folder_id)
        coming.write(content)
        return coming.finish().existed

    assert not upload()
    world.clock.advance(days=20)
    before = world.clock.now() - timedelta(days=14)
    with world.platform.database.read() as connection:
        (seen,) = folders.unused_since(connection, before, 9)
    assert upload()
    with world.platform.database.write() as connection:
        assert not folders.forget_unused(connection, seen, before)
    assert remove_unused(world.platform, before, 9) == 0
    assert find_folder(world.platform, lab, folder_id).existed


def test_what_a_killed_server_left_aside_or_half_removed_goes_when_the_next_one_starts(world: World) -> None:
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    world.run(70, step=5)
    done = world.job(lab, job.number)
    places = files_of(world, done.id, done.workspace_id, done.allocations[0].id)
    world.clock.advance(days=15)
    now = world.clock.now()
    with world.platform.database.write() as connection:
        assert workspaces.claim_removal(connection, done.workspace_id, now, now)
    paths = world.platform.paths
    aside = [
        paths.workspace(f".new-{done.workspace_id}-aabb"),
        paths.workspace(f".old-{done.workspace_id}-aabb"),
        paths.folders / lab.team_id / ".incoming-aabb",
    ]
    long_ago = (now - timedelta(days=2)).timestamp()
    for place in aside:
        place.mkdir(parents=True)
        os.utime(place, (long_ago, long_ago))
    world.restart()
    fresh = paths.workspace(".new-of-this-server")
    fresh.mkdir()
    world.run_reconciler("retention")
    assert [place for place in (*places, *aside) if place.exists()] == []
    assert fresh.exists(), "what the running server makes is its own affair"


@pytest.mark.postgres
def test_what_another_server_is_at_work_on_stays(tmp_path: Path) -> None:
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database("postgresql", tmp_path) as database:
        world = World(database, tmp_path / "data")
        coming = world.platform.paths.folders / "team" / ".incoming-aabb"
        coming.mkdir(parents=True)
        seconds = world.clock.now().timestamp()
        os.utime(coming, (seconds, seconds))
        world.restart()
        world.run_reconciler("retention")
        assert coming.exists()
        world.clock.advance(days=2)
        world.run_reconciler("retention")
        assert not coming.exists(), "whoever began it is gone"
