"""Checkpoint: what runs published is verified and recorded; only the newest few are kept.

Target set: a checkpoint is recorded as verified if and only if every byte of it was read and matched.
"""

from __future__ import annotations

from starverse.app import checkpoints
from starverse.app.platform import Platform
from starverse.db import allocations, jobs
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 2.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        with platform.database.read() as connection:
            running = [a for a in allocations.open_ones(connection) if a.ready_at is not None]
            owners = jobs.get_many(connection, {a.job_id for a in running})
        found = removed = 0
        for job in owners.values():
            new = checkpoints.scan(platform, job.checkpoints_id, job.team_id)
            found += new
            if new:
                removed += checkpoints.keep_newest(platform, job.checkpoints_id)
        return f"recorded {found}, removed {removed}" if found or removed else ""

    return Reconciler("checkpoint", "verify and record what runs published", PERIOD_SECONDS, act)
