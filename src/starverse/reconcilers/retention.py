"""Retention: what was kept long enough goes.

Target set: a workspace is on disk if and only if a job of it has not ended, or ended less than the operator's
days ago (14 by default); a packed folder is kept if and only if a workspace came from it or it is younger
than that; a request key is remembered for two days.
"""

from __future__ import annotations

from datetime import timedelta

from starverse.app import folders
from starverse.app.idempotency import forget_old
from starverse.app.platform import Platform
from starverse.db import workspaces
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 300.0
BATCH = 50


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        now = platform.clock.now()
        with platform.database.write() as connection:
            forget_old(connection, now)
        before = now - timedelta(days=platform.settings.workspace_keep_days)
        with platform.database.read() as connection:
            due = workspaces.ended_before(connection, before, BATCH)
        for workspace_id in due:
            folders.remove_workspace(platform, workspace_id)
            with platform.database.write() as connection:
                workspaces.note_removed(connection, workspace_id, now)
        packed = folders.remove_unused(platform, before, BATCH)
        did = [f"removed {len(due)} workspaces"] if due else []
        did += [f"removed {packed} packed folders"] if packed else []
        return ", ".join(did)

    return Reconciler("retention", "remove workspaces kept long enough", PERIOD_SECONDS, act)
