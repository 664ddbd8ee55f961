"""Retention: what was kept long enough goes.

Target set: a workspace, with the logs, checkpoints and runs of its jobs, is on disk if and only if a job of
it has not ended, or ended less than the operator's days ago (14 by default); a packed folder is kept if and
only if a workspace came from it or it was uploaded later than that; tokens that nobody can use any more are
remembered as long; a request key for two days. What a killed server left aside is nothing of this, and goes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from starverse.app import folders, removal
from starverse.app.idempotency import forget_old
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import accounts, workspaces
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 300.0
BATCH = 50
BATCHES_MAX = 100
"""In one round; the rest waits for the next one."""


def make(platform: Platform) -> Reconciler:
    leftovers = removal.find_leftovers(platform)

    def act() -> str:
        now = platform.clock.now()
        before = now - timedelta(days=platform.settings.workspace_keep_days)
        round_ = Round()
        if platform.database.shared:  # what another server left, too
            leftovers.extend(removal.find_leftovers(platform))
        round_.act_on([leftovers.pop() for _ in range(len(leftovers))], _remove_leftover)
        round_.act_on([platform], _finish_removals)
        round_.act_on([now], lambda until: _forget(platform, until, before))
        _in_batches(lambda: _remove_workspaces(platform, before, round_))
        _in_batches(lambda: _remove_packed(platform, before, round_))
        return ", ".join(round_.end())

    return Reconciler("retention", "remove what was kept long enough", PERIOD_SECONDS, act)


def _in_batches(remove_some: Callable[[], bool]) -> None:
    """Go on while a batch was full and every item of it went."""
    for _ in range(BATCHES_MAX):
        if not remove_some():
            return


def _remove_workspaces(platform: Platform, before: datetime, round_: Round) -> bool:
    with platform.database.read() as connection:
        due = workspaces.ended_before(connection, before, BATCH)

    def remove(workspace_id: str) -> str:
        removed = removal.remove_workspace(platform, workspace_id, before)
        return f"removed workspace {workspace_id}" if removed else ""

    round_.act_on(due, remove)
    return len(due) == BATCH and round_.fault is None


def _remove_packed(platform: Platform, before: datetime, round_: Round) -> bool:
    removed: list[int] = []

    def remove(limit: int) -> str:
        removed.append(folders.remove_unused(platform, before, limit))
        return f"removed {removed[-1]} packed folders" if removed[-1] else ""

    round_.act_on([BATCH], remove)
    return removed == [BATCH]


def _forget(platform: Platform, now: datetime, before: datetime) -> str:
    with platform.database.write() as connection:
        forget_old(connection, now)
        accounts.forget_tokens(connection, before)
    return ""


def _finish_removals(platform: Platform) -> str:
    finished = removal.finish_removals(platform)
    return f"finished removing {finished} workspaces" if finished else ""


def _remove_leftover(path: Path) -> str:
    removal.remove_leftover(path)
    return f"removed {path.name}"
