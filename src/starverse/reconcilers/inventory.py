"""Inventory: what engines report of nodes and cards is what is recorded.

Target set: a node or card is recorded as up and healthy if and only if its engine reports it so now.
"""

from __future__ import annotations

from starverse.app.node_reports import record_nodes
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 5.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        changes = record_nodes(platform)
        if changes:
            platform.wakeups.wake("schedule")
        return ", ".join(changes)

    return Reconciler("inventory", "record the nodes and cards that engines report", PERIOD_SECONDS, act)
