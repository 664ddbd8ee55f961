"""Finding, verifying and choosing checkpoints: the platform trusts bytes it has read, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from starverse.app.platform import Platform
from starverse.checkpoint.loads import Loaded, candidates, given_up, last_loaded, settle_loads
from starverse.checkpoint.manifest import Published, published, verify
from starverse.checkpoint.retention import prune
from starverse.db import checkpoints, events
from starverse.db.checkpoints import CheckpointRow
from starverse.db.events import Event
from starverse.domain.timespan import parse_instant
from starverse.domain.workloads.states import CheckpointState

BYTES_MAX = 1024**4
"""A larger checkpoint is not read: folders are written by users, and files can be sparse."""


def scan(platform: Platform, job_id: str, team_id: str) -> int:
    """Verify and record what a job published since the last look; how many were new.

    Reads files first and writes afterwards: no transaction is open while bytes are hashed.
    """
    with platform.database.read() as connection:
        rows = checkpoints.of_job(connection, job_id)
    return record_found(platform, job_id, team_id, rows)


def record_found(platform: Platform, job_id: str, team_id: str, rows: Iterable[CheckpointRow]) -> int:
    """:func:`scan` for a caller who has read the rows of the job."""
    root = platform.paths.checkpoints(job_id)
    known = {row.folder: row for row in rows}
    on_disk = published(root)
    new = [_examine(platform, job_id, item) for item in on_disk if item.path.name not in known]
    there = {item.path.name for item in on_disk}
    gone = [row.folder for row in known.values() if row.removed_at is None and row.folder not in there]
    loaded = last_loaded(root)
    unseen_load = loaded is not None and (
        loaded.checkpoint not in known or known[loaded.checkpoint].loaded_at is None
    )
    if not new and not gone and not unseen_load:
        return 0
    with platform.database.write() as connection:
        now = platform.clock.now()
        checkpoints.insert_found(connection, new)
        if gone:
            checkpoints.note_removed(connection, job_id, gone, now)
        if loaded is not None and unseen_load:
            checkpoints.note_loaded(connection, job_id, loaded.checkpoint, _loaded_at(loaded, now))
        events.record(connection, *(_event(row, team_id, now) for row in new))
    return len(new)


def choose_resume(platform: Platform, job_id: str) -> str:
    """The folder name of the newest checkpoint that verifies and was not given up; ``""`` for none.

    Verified again right before it is used: it may have rotted since it was recorded.
    """
    root = platform.paths.checkpoints(job_id)
    settle_loads(root)
    for item in candidates(root):
        if verify(item.path, bytes_max=BYTES_MAX).verified:
            return item.path.name
    return ""


def keep_newest(platform: Platform, job_id: str) -> int:
    """Remove what is older than the newest few; how many went. At least one verified one always stays."""
    root = platform.paths.checkpoints(job_id)
    with platform.database.read() as connection:
        rows = checkpoints.of_job(connection, job_id)
    trusted = {row.folder for row in rows if row.verified_at is not None and row.removed_at is None}
    removed = prune(root, platform.settings.checkpoints_kept, trusted - given_up(root))
    if removed:
        with platform.database.write() as connection:
            checkpoints.note_removed(
                connection, job_id, [path.name for path in removed], platform.clock.now()
            )
    return len(removed)


def _examine(platform: Platform, job_id: str, item: Published) -> CheckpointRow:
    verdict = verify(item.path, bytes_max=BYTES_MAX)
    now = platform.clock.now()
    size = sum(entry.size for entry in verdict.manifest.files) if verdict.manifest and verdict.verified else 0
    reason = verdict.reason.encode(errors="replace").decode()  # names of files come from users
    return CheckpointRow(
        id=platform.ids.uuid7(),
        job_id=job_id,
        folder=item.path.name,
        attempt=item.attempt,
        step=item.step,
        state=CheckpointState.PUBLISHED,
        bytes=size,
        published_at=min(now, _changed_at(item.path, now)),
        verified_at=now if verdict.verified else None,
        loaded_at=None,
        message="" if verdict.verified else reason,
    )


def _loaded_at(loaded: Loaded, now: datetime) -> datetime:
    """When a run says it loaded; ``now`` for a time that is none: the file is written by users."""
    try:
        return min(now, parse_instant(loaded.loaded_at))
    except (ValueError, OverflowError):
        return now


def _changed_at(folder: Path, otherwise: datetime) -> datetime:
    try:
        return datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    except OSError:
        return otherwise


def _event(row: CheckpointRow, team_id: str, now: datetime) -> Event:
    reason = "verified" if row.verified_at else "unverified"
    text = f"checkpoint {row.folder}" + (f": {row.message}" if row.message else "")
    return Event(now, "job", row.job_id, "checkpoint", reason, text, team_id)
