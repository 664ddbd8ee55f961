"""Checkpoint: what runs published is verified and recorded; only the newest few are kept.

Target set: a checkpoint is recorded as verified if and only if every byte of it was read and matched.
"""

from __future__ import annotations

from starverse.app import checkpoints
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.db import allocations, jobs
from starverse.db import checkpoints as rows_of
from starverse.domain.workloads.records import Job
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 2.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        with platform.database.read() as connection:
            running = [a for a in allocations.open_ones(connection) if a.ready_at is not None]
            owners = jobs.get_many(connection, {a.job_id for a in running})
            known = rows_of.of_jobs(connection, {job.checkpoints_id for job in owners.values()})

        def look(job: Job) -> str:
            new = checkpoints.record_found(
                platform, job.checkpoints_id, job.team_id, known[job.checkpoints_id]
            )
            if not new:
                return ""
            removed = checkpoints.keep_newest(platform, job.checkpoints_id)
            return f"job {job.display_number}: recorded {new}, removed {removed}"

        return ", ".join(each(owners.values(), look))

    return Reconciler("checkpoint", "verify and record what runs published", PERIOD_SECONDS, act)
