"""Scaling efficiency of a job, from the runs of the same work that its team has on record."""

from __future__ import annotations

from sqlalchemy import Connection

from starverse.db import allocations, jobs, workspaces
from starverse.domain.fabric.scaling import Run, Scaling, scaling_of, work_digest
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import JobState

LOOKED_AT_MAX = 1000
"""Succeeded jobs of the team, newest first, among which runs on one node are looked for."""


def scaling(connection: Connection, job: Job) -> Scaling:
    """Compare the job's wall time with that of the same work on one node."""
    nodes = job.spec.resources.nodes
    runs = allocations.of_jobs(connection, [job.id])
    own = _whole_run(job, runs[job.id])
    if nodes == 1 or own is None:
        return scaling_of(own, nodes, ())
    search = jobs.Search(team_ids=(job.team_id,), states=(JobState.SUCCEEDED,))
    digest = _digest(connection, job)
    alike = [
        other
        for other in jobs.search(connection, search, LOOKED_AT_MAX)
        if other.spec.resources.nodes == 1
        and _plain_digest(other) == _plain_digest(job)
        and _digest(connection, other) == digest
    ]
    theirs = allocations.of_jobs(connection, [other.id for other in alike])
    found = [_whole_run(other, theirs[other.id]) for other in alike]
    return scaling_of(own, nodes, [run for run in found if run is not None])


def _whole_run(job: Job, runs: list[Allocation]) -> Run | None:
    """``None``: it did not succeed at its first start, or went on from a checkpoint."""
    if job.state is not JobState.SUCCEEDED or len(runs) != 1 or runs[0].resume_from:
        return None
    (run,) = runs
    if run.ready_at is None or run.ended_at is None:
        return None
    seconds = (run.ended_at - run.ready_at).total_seconds()
    return Run(job.display_number, job.spec.resources.nodes, seconds, run.fabric)


def _plain_digest(job: Job) -> str:
    """What the specification alone says of the work."""
    spec, asked = job.spec, job.spec.resources
    further = (
        f"{asked.card_model} x {asked.cards_per_node}",
        f"{asked.tasks_per_node} x {asked.cpus_per_task}",
        f"task {job.array_index}",
        *(f"dataset {name}" for name in spec.datasets),
        *(f"{name}={value}" for name, value in spec.environment),
    )
    return work_digest(spec.script, spec.arguments, further)


def _digest(connection: Connection, job: Job) -> str:
    folder = workspaces.folder_of(connection, job.workspace_id)
    return work_digest("", (), (_plain_digest(job), folder or ""))
