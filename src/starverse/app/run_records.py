"""The run record: what reproduces a run (glossary), built from what is recorded about it."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import Connection

from starverse import __version__
from starverse.app.scaling import scaling
from starverse.app.views import AllocationView, JobView
from starverse.db import checkpoints, datasets, images, workspaces
from starverse.domain.fabric.scaling import Scaling
from starverse.domain.sbatch.rendering import render
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.records import Job

RECORD_VERSION = 1


def build(connection: Connection, job: Job, view: JobView) -> dict[str, Any]:
    """Script and folder digests, datasets, cards, environment, runs, checkpoints, cost: ready for JSON."""
    spec = job.spec
    return {
        "version": RECORD_VERSION,
        "starverse": __version__,
        "job": {"id": job.id, "number": job.display_number, "name": spec.name, "team": view.team},
        "submitted_by": view.account,
        "submitted_at": format_instant(job.submitted_at),
        "script": {
            "sha256": hashlib.sha256(spec.script.encode()).hexdigest(),
            "text": spec.script,
            "arguments": list(spec.arguments),
            "effective": render(spec).splitlines()[1:],
        },
        "folder": workspaces.folder_of(connection, job.workspace_id),
        "image": _image(connection, spec.image),
        "datasets": [_dataset(connection, name) for name in spec.datasets],
        "environment": dict(spec.environment),
        "tariff": spec.tariff.value,
        "state": job.state.value,
        "exit_code": job.exit_code,
        "exit_signal": job.exit_signal,
        "runs": [_run(run) for run in view.allocations],
        "checkpoints": [
            {
                "folder": row.folder,
                "step": row.step,
                "attempt": row.attempt,
                "bytes": row.bytes,
                "published_at": format_instant(row.published_at),
                "verified": row.verified_at is not None,
                "loaded_at": format_instant(row.loaded_at) if row.loaded_at else None,
            }
            for row in checkpoints.of_job(connection, job.checkpoints_id)
        ],
        "cost_micro": view.cost_so_far.micro,
        "cost": view.cost_so_far.decimal(),
        "lost_work_seconds": view.lost_work_seconds,
        "scaling": _scaling(scaling(connection, job)),
    }


def _scaling(found: Scaling) -> dict[str, Any]:
    """``efficiency`` null: nothing to compare with, ``what`` says why."""
    return {
        "nodes": found.nodes,
        "wall_seconds": found.wall_seconds,
        "one_node_seconds": found.baseline_seconds,
        "compared_with": list(found.compared_with),
        "efficiency": None if found.efficiency is None else round(found.efficiency, 4),
        "what": found.what,
    }


def _image(connection: Connection, image_id: str | None) -> dict[str, Any]:
    found = None if image_id is None else images.get(connection, image_id)
    if found is None:
        return {"kind": "host", "digest": None}
    return {"kind": found.kind.value, "name": found.name, "digest": found.digest, "id": found.id}


def _dataset(connection: Connection, name: str) -> dict[str, Any]:
    found = datasets.find_verified(connection, name)
    if found is None:
        return {"name": name, "version": None, "manifest": None}
    return {"name": name, "version": found.version, "manifest": found.manifest_digest}


def _run(run: AllocationView) -> dict[str, Any]:
    return {
        "attempt": run.attempt,
        "allocation": run.id,
        "nodes": list(run.nodes),
        "cards": [
            {"id": c.id, "model": c.model, "uuid": c.uuid, "index": c.index, "declared": c.declared}
            for c in run.cards
        ],
        "resume_from": run.resume_from or None,
        "ready_at": format_instant(run.ready_at) if run.ready_at else None,
        "ended_at": format_instant(run.ended_at) if run.ended_at else None,
        "cause": run.cause.value if run.cause else None,
        "exit_code": run.exit_code,
        "charged_micro": run.charged.micro,
        "lost_work_seconds": run.lost_work_seconds,
    }
