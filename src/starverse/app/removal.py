"""Removing what was kept long enough, and what a server that was killed left half done.

The record says first that something goes; then the files go. A crash in between leaves files that the
record does not know any more: :func:`find_leftovers` finds them when a server starts.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from starverse.app.platform import Platform
from starverse.checkpoint.removing import remove_tree
from starverse.db import checkpoints, workspaces
from starverse.domain.ids import is_uuid

LEFT_BY_OTHERS_AFTER = timedelta(days=1)
"""Nothing is received, unpacked or copied for so long."""

_ASIDE = re.compile(r"\.(new|old|incoming)-.+")


def remove_workspace(platform: Platform, workspace_id: str, before: datetime) -> bool:
    """Delete a workspace whose jobs all ended before then, with their logs, checkpoints and runs' folders.

    False when it is not due any more.
    """
    now = platform.clock.now()
    with platform.database.write() as connection:
        if not workspaces.claim_removal(connection, workspace_id, before, now):
            return False
        for job_id in workspaces.remains_of(connection, workspace_id).job_ids:
            there = [row.folder for row in checkpoints.of_job(connection, job_id) if row.removed_at is None]
            checkpoints.note_removed(connection, job_id, there, now)
    remove_workspace_files(platform, workspace_id)
    return True


def find_leftovers(platform: Platform) -> list[Path]:
    """What an earlier server left aside; to be called before this one makes or receives anything.

    Where other servers share the data folder, what is there may be theirs: only what nobody can be at work on
    any more counts.
    """
    data = platform.settings.data
    homes = data / "instances"
    roots = [data / "workspaces", data / "datasets", homes, *_children(homes)]
    roots += _children(platform.paths.folders)
    for disks in (data / "disks", data / "snapshots"):
        roots += [disks, *_children(disks)]
    found = [entry for root in roots for entry in _children(root) if _ASIDE.fullmatch(entry.name)]
    if not platform.database.shared:
        return found
    before = (platform.clock.now() - LEFT_BY_OTHERS_AFTER).timestamp()
    return [entry for entry in found if _touched_at(entry) < before]


def _touched_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return float("inf")


def finish_removals(platform: Platform) -> int:
    """Delete the files of workspaces whose removal was noted and then interrupted; how many."""
    there = [entry.name for entry in _children(platform.settings.data / "workspaces") if is_uuid(entry.name)]
    with platform.database.read() as connection:
        claimed = workspaces.removed_among(connection, there)
    for workspace_id in claimed:
        remove_workspace_files(platform, workspace_id)
    return len(claimed)


def remove_leftover(path: Path) -> None:
    """Delete what :func:`find_leftovers` found."""
    remove_tree(path)


def remove_workspace_files(platform: Platform, workspace_id: str) -> None:
    """Delete what lies on disk of a workspace whose removal is on record.

    The workspace itself goes last: while it is there, an interrupted removal is found again.
    """
    with platform.database.read() as connection:
        remains = workspaces.remains_of(connection, workspace_id)
    paths = platform.paths
    for job_id in remains.job_ids:
        remove_tree(paths.logs(job_id))
        remove_tree(paths.checkpoints(job_id))
    for allocation_id in remains.allocation_ids:
        remove_tree(paths.allocation(allocation_id))
    place = paths.workspace(workspace_id)
    aside = place.with_name(f".old-{workspace_id}-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        place.rename(aside)
        remove_tree(aside)


def _children(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from folder.iterdir()
