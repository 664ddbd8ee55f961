"""Cron lines of snapshots, read in the installation's time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.timespan import utc


def next_due(line: str, zone: str, after: datetime) -> datetime:
    """The first instant after ``after`` that a cron line names; raises :class:`Invalid` for no such line."""
    try:
        return utc(next(CronSim(line, after.astimezone(ZoneInfo(zone)))))
    except (CronSimError, StopIteration) as error:
        expected = "a cron line of five fields that comes to pass, such as '0 3 * * *'"
        raise Invalid(faults=[FieldFault("snapshot_schedule", line[:80], expected)]) from error
