"""What teams used lately, remembered from round to round, so that the week before is read only once.

A sum that decays needs no list of what is in it: it is multiplied on, and what was recorded as ended since
the last look is added.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.db import allocations
from starverse.domain.ids import TeamId
from starverse.domain.scheduling.team_usage import UsageSpan, decayed, decayed_usage

REACH = timedelta(days=7)
"""Usage older than seven half-lives counts less than one per cent."""

OVERLAP = timedelta(minutes=10)
"""So much is read again in each look: a transaction that began earlier may have ended later."""


class UsageMemory:
    """Card-seconds of ended allocations by team. One of its own per database; not for several threads."""

    def __init__(self) -> None:
        self._sums: dict[TeamId, float] = {}
        self._as_of: datetime | None = None
        self._counted: dict[str, datetime] = {}
        """Ids counted already that may be read again, and when each was recorded as ended."""

    def ended(self, connection: Connection, now: datetime) -> dict[TeamId, float]:
        """Decayed to ``now``. The first look reads a week; every other what was recorded since the last."""
        before = self._as_of
        if before is None:
            rows = allocations.ended_since(connection, now - REACH)
        else:
            rows = allocations.closed_since(connection, before - OVERLAP)
            passed = max(0.0, (now - before).total_seconds())
            self._sums = {team: decayed(sum_, passed) for team, sum_ in self._sums.items()}
        spans: dict[TeamId, list[UsageSpan]] = defaultdict(list)
        for row in rows:
            if row.id not in self._counted:
                self._counted[row.id] = row.closed_at
                spans[row.team_id].append(UsageSpan(row.card_count, row.ready_at, min(row.ended_at, now)))
        for team, own in spans.items():
            self._sums[team] = self._sums.get(team, 0.0) + decayed_usage(own, now)
        self._as_of = now if before is None else max(now, before)
        keep = self._as_of - 2 * OVERLAP
        self._counted = {name: at for name, at in self._counted.items() if at >= keep}
        return dict(self._sums)
