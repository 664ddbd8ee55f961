"""Removing what was kept long enough, and what a server that was killed left half done.

The record says first that something goes; then the files go. A crash in between leaves files that the
record does not know any more: :func:`find_leftovers` finds them when a server starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from starverse.app.platform import Platform
from starverse.db import checkpoints, workspaces
from starverse.domain.ids import is_uuid

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
    _remove_files(platform, workspace_id)
    return True


def find_leftovers(platform: Platform) -> list[Path]:
    """What an earlier server left aside; to be called before this one makes or receives anything."""
    data = platform.settings.data
    roots = [data / "workspaces", data / "datasets", *_children(platform.paths.folders)]
    return [entry for root in roots for entry in _children(root) if _ASIDE.fullmatch(entry.name)]


def finish_removals(platform: Platform) -> int:
    """Delete the files of workspaces whose removal was noted and then interrupted; how many."""
    there = [entry.name for entry in _children(platform.settings.data / "workspaces") if is_uuid(entry.name)]
    with platform.database.read() as connection:
        claimed = workspaces.removed_among(connection, there)
    for workspace_id in claimed:
        _remove_files(platform, workspace_id)
    return len(claimed)


def remove_tree(path: Path) -> None:
    """Delete a file or folder, read-only folders within it too; a link is deleted, not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for folder, _, _ in os.walk(path):  # from above: each is opened up before it is listed
            with contextlib.suppress(OSError):
                Path(folder).chmod(0o700)
        shutil.rmtree(path)


def _remove_files(platform: Platform, workspace_id: str) -> None:
    """The workspace itself goes last: while it is there, an interrupted removal is found again."""
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
