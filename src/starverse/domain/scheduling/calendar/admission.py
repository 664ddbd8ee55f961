"""Whether a booking is accepted, and if not, why and what would be: decided at once, never later.

What a business expects is an answer here, not an error. Rules are the operator's (bounds against hoarding);
what a team has booked and how it kept its bookings is passed in, already counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from starverse.domain.ids import TeamId
from starverse.domain.scheduling.calendar.calendar import Calendar, Window
from starverse.domain.timespan import format_instant, utc

_SECOND = timedelta(seconds=1)


class RefusalReason(StrEnum):
    """Why a booking was refused, in the order in which it is looked at."""

    BAD_CARDS = "bad_cards"
    BAD_LENGTH = "bad_length"
    IN_THE_PAST = "in_the_past"
    TOO_FAR_AHEAD = "too_far_ahead"
    POOL_TOO_SMALL = "pool_too_small"
    NO_SHOWS = "no_shows"
    OPEN_HOURS = "open_hours"
    NO_CARDS = "no_cards"


@dataclass(frozen=True, slots=True)
class BookingRequest:
    """Cards of a pool for ``[start, end)``, asked for at ``booked_at``.

    ``per_node`` is above 1 where the cards must be whole nodes (``--nodes-together``): cards of a node.
    """

    booking_id: str
    team_id: TeamId
    pool: str
    cards: int
    start: datetime
    end: datetime
    booked_at: datetime
    per_node: int = 1

    def __post_init__(self) -> None:
        for name in ("start", "end", "booked_at"):
            object.__setattr__(self, name, utc(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class TeamState:
    """What a team has open and how it kept what it had.

    ``open_card_seconds``: card-seconds of its bookings that are not over, from now on. ``ended`` counts its
    bookings of late that are over (cancelled ones aside), ``no_shows`` those of them that nobody used.
    """

    open_card_seconds: int = 0
    ended: int = 0
    no_shows: int = 0

    @property
    def no_show_share(self) -> Fraction:
        return Fraction(self.no_shows, self.ended) if self.ended else Fraction(0)


@dataclass(frozen=True, slots=True)
class BookingRules:
    """The operator's bounds. ``open_card_hours`` ``None``: no bound.

    ``on_demand_yields_seconds`` is the lead from which a booking may take cards of an on-demand claim
    (architecture.md, Scheduling). A team whose share of no-shows lies above ``no_show_share`` after
    ``no_shows_from`` bookings books nothing more until it is lower. Lengths are whole multiples of
    ``step_seconds``. Windows offered instead are looked for up to ``search_seconds`` around the one asked.
    """

    open_card_hours: int | None = 20_000
    ahead_seconds: int = 90 * 86_400
    shortest_seconds: int = 600
    longest_seconds: int = 31 * 86_400
    step_seconds: int = 60
    no_show_share: Fraction = Fraction(1, 2)
    no_shows_from: int = 4
    on_demand_yields_seconds: int = 168 * 3600
    search_seconds: int = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that fits: cards in a window."""

    cards: int
    window: Window


@dataclass(frozen=True, slots=True)
class Accepted:
    """The booking fits. ``takes_on_demand``: cards of on-demand claims that yield to it, at most."""

    cards: int
    window: Window
    lead_seconds: int
    takes_on_demand: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The booking does not: ``nearest`` are windows that would, the nearest first; empty where none help."""

    reason: RefusalReason
    message: str
    nearest: tuple[Offer, ...] = ()


def admit(
    request: BookingRequest, calendar: Calendar, team: TeamState, rules: BookingRules
) -> Accepted | Refused:
    """Accept or refuse; books nothing. What is accepted is booked in the same transaction by the caller.

    Times are instants, so a window across a change of clocks is as long as it lasts, not as it reads.
    O(block + blocks) where it is accepted; a refusal searches ``rules.search_seconds`` of the calendar too.
    """
    refused = _faulty(request, rules) or _out_of_bounds(request, calendar, team, rules)
    if refused is not None:
        return refused
    lead = _lead(request)
    late = lead < rules.on_demand_yields_seconds
    free = calendar.free(
        request.pool, request.start, request.end, per_node=request.per_node, beside_on_demand=late
    )
    if free >= request.cards:
        beside = free
        if not late:
            beside = calendar.free(request.pool, request.start, request.end, beside_on_demand=True)
        window = Window(request.start, request.end)
        return Accepted(request.cards, window, lead, max(request.cards - beside, 0))
    kind = "cards without an on-demand claim" if late else "cards"
    nodes = f" on whole nodes of {request.per_node}" if request.per_node > 1 else ""
    return Refused(
        RefusalReason.NO_CARDS,
        f"{free} of {request.cards} {kind} are free{nodes} in {request.pool} during all of "
        f"{_span(request.start, request.end)}",
        tuple(_nearest(request, calendar, rules, free)),
    )


def _faulty(request: BookingRequest, rules: BookingRules) -> Refused | None:
    """Requests that no calendar could meet."""
    if request.cards < 1 or request.cards % request.per_node:
        whole = f"whole nodes, a multiple of {request.per_node}" if request.per_node > 1 else "1 or more"
        return Refused(RefusalReason.BAD_CARDS, f"{request.cards} cards cannot be booked: {whole}")
    start, end, now = request.start, request.end, request.booked_at
    if end <= start:
        return Refused(
            RefusalReason.BAD_LENGTH, f"the window ends at {format_instant(end)}, not after its start"
        )
    seconds, odd = divmod(end - start, _SECOND)
    if odd or start.microsecond or seconds % rules.step_seconds:
        return Refused(
            RefusalReason.BAD_LENGTH,
            f"the window is {(end - start).total_seconds():g} s long; book whole seconds and "
            f"multiples of {rules.step_seconds} s",
        )
    if not rules.shortest_seconds <= seconds <= rules.longest_seconds:
        return Refused(
            RefusalReason.BAD_LENGTH,
            f"the window is {_hours(seconds)} long; "
            f"between {_hours(rules.shortest_seconds)} and {_hours(rules.longest_seconds)} can be booked",
        )
    if start < now:
        return Refused(
            RefusalReason.IN_THE_PAST, f"{format_instant(start)} is over; it is {format_instant(now)}"
        )
    if start > now + timedelta(seconds=rules.ahead_seconds):
        last = now + timedelta(seconds=rules.ahead_seconds)
        return Refused(
            RefusalReason.TOO_FAR_AHEAD,
            f"{format_instant(start)} is too far ahead; windows may start until {format_instant(last)}",
        )
    return None


def _out_of_bounds(
    request: BookingRequest, calendar: Calendar, team: TeamState, rules: BookingRules
) -> Refused | None:
    """What this pool or this team may not have, whatever is free."""
    capacity = calendar.capacity(request.pool)
    capacity -= capacity % request.per_node
    if request.cards > capacity:
        return Refused(
            RefusalReason.POOL_TOO_SMALL, f"{request.pool} has {capacity} such cards, never {request.cards}"
        )
    if team.ended >= rules.no_shows_from and team.no_show_share > rules.no_show_share:
        return Refused(
            RefusalReason.NO_SHOWS,
            f"{team.no_shows} of the team's last {team.ended} bookings were not used; "
            f"more than {float(rules.no_show_share):.0%} closes booking for it",
        )
    if rules.open_card_hours is not None:
        asked = request.cards * ((request.end - request.start) // _SECOND)
        left = rules.open_card_hours * 3600 - team.open_card_seconds
        if asked > left:
            return Refused(
                RefusalReason.OPEN_HOURS,
                f"{asked / 3600:g} card-hours are asked for and {max(left, 0) / 3600:g} of the team's "
                f"{rules.open_card_hours} are left; cancel or release a booking, or wait until one is over",
            )
    return None


def _nearest(request: BookingRequest, calendar: Calendar, rules: BookingRules, free: int) -> Iterator[Offer]:
    """The next window and the one before it of the same size, the nearer first; then fewer cards."""
    found = [w for w in (_after(request, calendar, rules), _before(request, calendar, rules)) if w]
    for window in sorted(found, key=lambda window: abs(window.start - request.start)):
        yield Offer(request.cards, window)
    if free:
        yield Offer(free, Window(request.start, request.end))


def _after(request: BookingRequest, calendar: Calendar, rules: BookingRules) -> Window | None:
    seconds = (request.end - request.start) // _SECOND
    last_start = min(
        request.start + timedelta(seconds=rules.search_seconds),
        _floor(request.booked_at) + timedelta(seconds=rules.ahead_seconds),
    )
    early = max(_ceil(request.booked_at) + timedelta(seconds=rules.on_demand_yields_seconds), request.start)
    length = timedelta(seconds=seconds)
    if request.start < early:
        until = min(last_start, early - _SECOND) + length
        window = calendar.first_window(
            request.pool, request.cards, seconds, request.start, until, beside_on_demand=True
        )
        if window is not None:
            return window
    if early > last_start:
        return None
    return calendar.first_window(request.pool, request.cards, seconds, early, last_start + length)


def _before(request: BookingRequest, calendar: Calendar, rules: BookingRules) -> Window | None:
    seconds = (request.end - request.start) // _SECOND
    first = max(_ceil(request.booked_at), request.start - timedelta(seconds=rules.search_seconds))
    early = _ceil(request.booked_at) + timedelta(seconds=rules.on_demand_yields_seconds)
    length = timedelta(seconds=seconds)
    if early < request.start:
        window = calendar.last_window(
            request.pool,
            request.cards,
            seconds,
            max(first, early),
            request.start - _SECOND + length,
        )
        if window is not None:
            return window
    return calendar.last_window(
        request.pool,
        request.cards,
        seconds,
        first,
        min(request.start, early) - _SECOND + length,
        beside_on_demand=True,
    )


def _lead(request: BookingRequest) -> int:
    """Whole seconds from the booking to its start (pricing.md, reserved: to the second)."""
    return (request.start - request.booked_at) // _SECOND


def _ceil(at: datetime) -> datetime:
    return _floor(at) + (_SECOND if at.microsecond else timedelta(0))


def _floor(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _span(start: datetime, end: datetime) -> str:
    return f"{format_instant(start)} .. {format_instant(end)}"


def _hours(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds / 3600:g} h"
