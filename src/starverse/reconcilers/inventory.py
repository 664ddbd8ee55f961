"""Inventory: what engines report of nodes and cards is what is recorded.

Target set: a node or card is recorded as up and healthy if and only if its engine reports it so now.
"""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.db import inventory
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        reports = platform.engine.nodes()
        with platform.database.write() as connection:
            changes = inventory.record_reports(connection, reports, platform.clock.now())
        if changes:
            platform.wakeups.wake("schedule")
        return ", ".join(changes)

    return Reconciler("inventory", "record the nodes and cards that engines report", PERIOD_SECONDS, act)
