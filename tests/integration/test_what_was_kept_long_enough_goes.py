"""Retention: workspaces and packed folders go when nothing needs them any more, and not before."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.app.folders import begin_upload, find_folder
from starverse.app.views import SubmitRequest
from starverse.client.packing import pack_folder
from starverse.domain.errors import Invalid, NotFound
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import SCRIPT, World


def test_workspaces_and_packed_folders_outlive_their_last_job_by_the_days_set(tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "train.py").write_text("print(1)\n")
    packed = pack_folder(tmp_path / "paper")
    packed.file.seek(0)
    content = packed.file.read()
    packed.close()
    folder_id = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with fresh_database("sqlite", tmp_path) as database:
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
