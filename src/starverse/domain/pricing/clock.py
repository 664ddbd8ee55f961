"""Which seconds are charged: from what launchers and bookings report to a span of whole seconds.

Normative: pricing.md, Charge of a usage (Clock) and Rate of an instant (reserved). An allocation is charged
from *ready* to *ended*; the start rounds up, the end rounds down, one second at least. ``None`` everywhere
means "nothing is charged".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from starverse.domain.timespan import Timespan, ceil_to_second, floor_to_second, utc

NO_SHOW_AFTER = timedelta(minutes=30)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a launcher said about one allocation.

    ``ready_at``: first exec of the script, or SSH accepting; ``None``: it never was (the start failed).
    ``elapsed``: from ready to the exit of the last user process, by a clock that does not jump; ``None``: no
    end was reported. ``reclaim_deadline``: of a spot allocation under notice. ``proof_of_life_at``: the
    newest heartbeat of an allocation whose node was lost. ``closes_at``: the end of the window that it may
    run in, at or before its start where the window did not hold there.
    """

    ready_at: datetime | None
    elapsed: timedelta | None = None
    reclaim_deadline: datetime | None = None
    lost: bool = False
    proof_of_life_at: datetime | None = None
    closes_at: datetime | None = None


def charged_span(report: RunReport, now: datetime) -> Timespan | None:
    """The whole seconds to charge of an allocation, so far (``now``) or to its end.

    A lost node's time ends at its last proof of life, being ready at the latest; spot ends at the reclaim
    deadline at most, and everything at the end of its window. A running allocation has no charged second
    before its first is over.
    """
    if report.ready_at is None:
        return None
    ready = utc(report.ready_at)
    start = ceil_to_second(ready)
    running = report.elapsed is None and not report.lost
    end = now if report.elapsed is None else ready + max(report.elapsed, timedelta(0))
    if report.lost:
        end = min(end, max(report.proof_of_life_at or ready, ready))
    if report.reclaim_deadline is not None:
        end = min(utc(end), utc(report.reclaim_deadline))
    if report.closes_at is not None:
        if utc(report.closes_at) <= start:
            return None
        end = min(utc(end), utc(report.closes_at))
    end = floor_to_second(end)
    if running and end <= start:
        return None
    return Timespan(start, max(end, start + _SECOND))


def credited_span(charged: Timespan, checkpoint_at: datetime | None) -> Timespan | None:
    """The charged seconds that come back as credit after a node loss or a card fault.

    From the newest verified checkpoint (its second rounds down, in the user's favour) to the charged end;
    everything where there is none. What they are worth is the growth of the running total over them.
    """
    since = charged.start if checkpoint_at is None else max(charged.start, floor_to_second(checkpoint_at))
    return Timespan(since, charged.end) if since < charged.end else None


@dataclass(frozen=True, slots=True)
class BookingReport:
    """What became of a reservation.

    ``first_claimed_at``: when its first workload was placed. ``released_at``: given back early.
    ``cancelled_at``: before the start this is free; from the start on it is an early release.
    """

    window: Timespan
    first_claimed_at: datetime | None = None
    released_at: datetime | None = None
    cancelled_at: datetime | None = None


def charged_booking_span(report: BookingReport) -> Timespan | None:
    """The seconds a reservation is charged for, used or not: its start to its end or early release.

    A no-show is released after 30 minutes and pays those. Start and end as in ``charged_span``.
    """
    window = report.window
    releases = [at for at in (report.released_at, report.cancelled_at) if at is not None]
    if any(utc(at) < window.start for at in releases):
        return None
    end = min([window.end, *(utc(at) for at in releases)])
    no_show_at = window.start + NO_SHOW_AFTER
    if report.first_claimed_at is None or utc(report.first_claimed_at) >= no_show_at:
        end = min(end, no_show_at)
    start = ceil_to_second(window.start)
    return Timespan(start, max(floor_to_second(end), start + _SECOND))
