"""What engines report of nodes and cards, on record."""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.db import inventory


def record_nodes(platform: Platform) -> list[str]:
    """Ask the engine and write what it says; answers in words what changed. Raises ``EngineUnavailable``."""
    reports = platform.engine.nodes()
    with platform.database.write() as connection:
        return inventory.record_reports(connection, reports, platform.clock.now())
