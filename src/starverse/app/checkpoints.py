"""Finding, verifying and choosing checkpoints: the platform trusts bytes it has read, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from starverse.app.platform import Platform
from starverse.checkpoint.loads import candidates, given_up, last_loaded, settle_loads
from starverse.checkpoint.manifest import Published, bytes_to_read, published, verify
from starverse.checkpoint.retention import prune
from starverse.db import checkpoints, events
from starverse.db.checkpoints import CheckpointRow
from starverse.db.events import Event
from starverse.domain.workloads.states import CheckpointState

BYTES_MAX = 1024**4
"""A larger checkpoint is not read: folders are written by users, and files can be sparse."""

NEW_MAX = 64
"""So many new folders are looked at in one go, newest first; the next look takes the next ones."""


QUICK_BYTES_MAX = 64 * 1024**2
"""Read at once wherever it is due; more than that is read in the background."""


def is_quick(platform: Platform, job_id: str, rows: Iterable[CheckpointRow]) -> bool:
    """Whether what a job published since the last look is read in no time."""
    known = {row.folder for row in rows}
    try:
        on_disk = published(platform.paths.checkpoints(job_id))
    except OSError:
        return True  # made unreadable by its owner: there is nothing to read
    unknown = [item for item in on_disk if item.path.name not in known]
    total = 0
    for item in unknown[-NEW_MAX:]:
        total += bytes_to_read(item.path, BYTES_MAX)
        if total > QUICK_BYTES_MAX:
            return False
    return True


def record_found(platform: Platform, job_id: str, team_id: str, rows: Iterable[CheckpointRow]) -> int:
    """Verify and record what a job published since the last look; how many were new. ``rows``: what is known.

    Reads files first and writes afterwards: no transaction is open while bytes are hashed. Whatever a user
    made of the folder, nothing but the database can make this fail.
    """
    root = platform.paths.checkpoints(job_id)
    known = {row.folder: row for row in rows}
    try:
        on_disk = published(root)
    except OSError:
        return 0  # made unreadable by its owner
    unknown = [item for item in reversed(on_disk) if item.path.name not in known]
    new = [_examine(platform, job_id, item) for item in reversed(unknown[:NEW_MAX])]
    there = {item.path.name for item in on_disk}
    gone = [row.folder for row in known.values() if row.removed_at is None and row.folder not in there]
    loaded = last_loaded(root)
    not_loaded_yet = {row.folder: row for row in (*known.values(), *new) if row.loaded_at is None}
    now_loaded = None if loaded is None else not_loaded_yet.get(loaded.checkpoint)
    if not new and not gone and now_loaded is None:
        return 0
    with platform.database.write() as connection:
        now = platform.clock.now()
        checkpoints.insert_found(connection, new)
        if gone:
            checkpoints.note_removed(connection, job_id, gone, now)
        if loaded is not None and now_loaded is not None:
            at = max(now_loaded.published_at, min(now, loaded.loaded_at))
            checkpoints.note_loaded(connection, job_id, loaded.checkpoint, at)
        events.record(connection, *(_event(row, team_id, now) for row in new))
    return len(new)


def choose_resume(platform: Platform, job_id: str) -> str:
    """The folder name of the newest verified checkpoint that is there and not given up; ``""`` for none.

    A small one is verified again right before it is used: it may have rotted since it was recorded. A large
    one is trusted as recorded; whoever loads it reads every byte anyway. A folder that cannot be read, or is
    held by its owner, keeps no run from starting.
    """
    root = platform.paths.checkpoints(job_id)
    with contextlib.suppress(OSError):
        settle_loads(root, wait=False)
    try:
        found = candidates(root)
    except OSError:
        return ""
    with platform.database.read() as connection:
        rows = checkpoints.of_job(connection, job_id)
    verified = {row.folder: row for row in rows if row.verified_at is not None and row.removed_at is None}
    for item in found:
        row = verified.get(item.path.name)
        if row is not None and _is_still_whole(item, row):
            return item.path.name
    return ""


def _is_still_whole(item: Published, row: CheckpointRow) -> bool:
    if row.bytes > QUICK_BYTES_MAX:
        return True
    return verify(item.path, bytes_max=QUICK_BYTES_MAX).verified


def keep_newest(platform: Platform, job_id: str) -> int:
    """Remove what is older than the newest few; how many went. At least one verified one always stays.

    Passed over where a run holds the folder's lock, or has made of it what cannot be removed.
    """
    root = platform.paths.checkpoints(job_id)
    with platform.database.read() as connection:
        rows = checkpoints.of_job(connection, job_id)
    trusted = {row.folder for row in rows if row.verified_at is not None and row.removed_at is None}
    kept = platform.settings.checkpoints_kept
    try:
        removed = prune(root, kept, trusted - given_up(root), wait=False, bytes_max=QUICK_BYTES_MAX)
    except (OSError, RecursionError):
        return 0
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
    return CheckpointRow(
        id=platform.ids.uuid7(),
        job_id=job_id,
        folder=item.path.name,
        attempt=item.attempt,
        step=item.step,
        state=CheckpointState.PUBLISHED,
        bytes=size,
        published_at=_published_at(item.path, now),
        verified_at=now if verdict.verified else None,
        loaded_at=None,
        message="" if verdict.verified else verdict.reason,
    )


def _published_at(folder: Path, now: datetime) -> datetime:
    """When the folder got its name: the last change of its status, which, unlike its modification time, no
    user can set back. Setting it forward ends at the first sight of it, ``now``."""
    try:
        return min(now, datetime.fromtimestamp(folder.lstat().st_ctime, UTC))
    except (OSError, OverflowError, ValueError):
        return now


def _event(row: CheckpointRow, team_id: str, now: datetime) -> Event:
    reason = "verified" if row.verified_at else "unverified"
    text = f"checkpoint {row.folder}" + (f": {row.message}" if row.message else "")
    return Event(now, "job", row.job_id, "checkpoint", reason, text, team_id)
