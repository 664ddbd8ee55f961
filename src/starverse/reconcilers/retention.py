"""Retention: what was kept long enough goes.

Target set: a workspace is on disk if and only if a job of it has not ended, or ended less than the operator's
days ago (14 by default); a packed folder is kept if and only if a workspace came from it or it is younger
than that; a request key is remembered for two days.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from starverse.app import folders
from starverse.app.idempotency import forget_old
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.db import workspaces
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 300.0
BATCH = 50


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        now = platform.clock.now()
        before = now - timedelta(days=platform.settings.workspace_keep_days)
        with platform.database.read() as connection:
            due = workspaces.ended_before(connection, before, BATCH)

        def remove(workspace_id: str) -> str:
            folders.remove_workspace(platform, workspace_id)
            with platform.database.write() as connection:
                workspaces.note_removed(connection, workspace_id, now)
            return f"removed workspace {workspace_id}"

        def remove_packed(limit: int) -> str:
            packed = folders.remove_unused(platform, before, limit)
            return f"removed {packed} packed folders" if packed else ""

        def forget_keys(until: datetime) -> str:
            with platform.database.write() as connection:
                forget_old(connection, until)
            return ""

        round_ = Round()
        round_.act_on([now], forget_keys)
        round_.act_on(due, remove)
        round_.act_on([BATCH], remove_packed)
        return ", ".join(round_.end())

    return Reconciler("retention", "remove workspaces kept long enough", PERIOD_SECONDS, act)
