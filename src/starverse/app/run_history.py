"""How long jobs ran lately, remembered so that the month before is read only once."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.db import ended_runs
from starverse.domain.scheduling.run_times import RunFeatures, RunTimes

REACH = timedelta(days=30)
OVERLAP = timedelta(minutes=10)
"""So much is read again in each look: a transaction that began earlier may have ended later."""


class RunHistory:
    """Run times of one database, kept up to its newest recorded end. For several threads."""

    def __init__(self) -> None:
        self._times = RunTimes()
        self._as_of: datetime | None = None
        self._counted: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def times(self, connection: Connection, now: datetime) -> RunTimes:
        """What has ended by ``now``. The first look reads a month, every other what came since."""
        with self._lock:
            since = now - REACH if self._as_of is None else self._as_of - OVERLAP
            for row in ended_runs.closed_since(connection, since):
                if row.id not in self._counted:
                    self._counted[row.id] = row.closed_at
                    seconds = (row.ended_at - row.ready_at).total_seconds()
                    self._times.observe(RunFeatures(row.team_id, row.card_count, row.name), seconds)
            self._as_of = now if self._as_of is None else max(now, self._as_of)
            keep = self._as_of - 2 * OVERLAP
            self._counted = {name: at for name, at in self._counted.items() if at >= keep}
            return self._times
