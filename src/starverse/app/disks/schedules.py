"""Cron lines of snapshots, read in the installation's time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from starverse.domain.catalog import syncs
from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.timespan import utc


def first_due(line: str, zone: str, after: datetime) -> datetime:
    """The first instant of a new schedule; raises :class:`Invalid` for a line that is none, or that is due
    too often."""
    try:
        return utc(syncs.check_schedule(line, after, ZoneInfo(zone)))
    except ValueError as error:
        raise _fault(line, error) from error


def next_due(line: str, zone: str, after: datetime) -> datetime:
    """The first instant after ``after`` that a cron line names; raises :class:`Invalid` for no such line."""
    try:
        return utc(syncs.next_due(line, after, ZoneInfo(zone)))
    except ValueError as error:
        raise _fault(line, error) from error


def _fault(line: str, error: ValueError) -> Invalid:
    return Invalid(faults=[FieldFault("snapshot_schedule", line[:80], str(error))])
