"""Which cards of a pool are promised when: no window ever holds more than the pool has.

Bookings are counted per pool, not per node: which cards they get is decided when they open. On-demand claims
are counted beside them, because a booking made late may use only cards without one (architecture.md,
Scheduling). All spans are half-open and whole seconds. The calendar is a view that is built from what is
stored and kept up to date; it decides nothing by itself but whether a booking fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from starverse.domain.scheduling.calendar.steps import BLOCK, StepFunction
from starverse.domain.timespan import Timespan, utc

Window = Timespan
"""What a search answers: ``[start, end)`` in UTC."""
_Search = Callable[[int, int, int, int], int | None]
FOREVER = 253_402_300_799
"""The last second of the year 9999: the end of what has none."""


@dataclass(frozen=True, slots=True)
class Booked:
    """One booking in the calendar; ``order`` counts bookings as they were made."""

    booking_id: str
    pool: str
    cards: int
    start_second: int
    end_second: int
    order: int

    @property
    def window(self) -> Window:
        return Window(_instant(self.start_second), _instant(self.end_second))


class Calendar:
    """Cards booked and claimed by pool. Not safe for concurrent use: one writer holds it.

    ``per_node`` asks for whole nodes of that many cards each (``nodes together``): the answer is rounded
    down to whole nodes. It is exact where all bookings of the pool are of whole nodes.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._capacity: dict[str, int] = {}
        self._booked: dict[str, StepFunction] = {}
        self._claimed: dict[str, StepFunction] = {}
        """Bookings and on-demand claims together; only pools that ever had a claim have one."""
        self._bookings: dict[str, Booked] = {}
        self._claims: dict[str, Booked] = {}
        self._made = 0

    def set_capacity(self, pool: str, cards: int) -> None:
        """The cards that the pool has from now on; bookings stay, see :meth:`over_capacity`."""
        if cards < 0:
            raise ValueError(f"a pool cannot have {cards} cards")
        self._capacity[pool] = cards

    def capacity(self, pool: str) -> int:
        """Cards of the pool; 0 for one that is not known."""
        return self._capacity.get(pool, 0)

    def free(
        self, pool: str, start: datetime, end: datetime, *, per_node: int = 1, beside_on_demand: bool = False
    ) -> int:
        """Cards that are free during all of ``[start, end)``.

        ``beside_on_demand`` counts cards of on-demand claims as taken. Raises ``ValueError`` for an empty
        window or a fraction of a second. O(block + blocks).
        """
        peak = self._steps(pool, beside_on_demand).peak(*_seconds(start, end))
        left = max(self.capacity(pool) - peak, 0)
        return left - left % per_node

    def first_window(
        self,
        pool: str,
        cards: int,
        seconds: int,
        not_before: datetime,
        not_after: datetime,
        *,
        beside_on_demand: bool = False,
    ) -> Window | None:
        """The earliest window with ``cards`` free within the two, or ``None``."""
        steps = self._steps(pool, beside_on_demand)
        return self._window(steps.first_below, pool, cards, seconds, (not_before, not_after))

    def last_window(
        self,
        pool: str,
        cards: int,
        seconds: int,
        not_before: datetime,
        not_after: datetime,
        *,
        beside_on_demand: bool = False,
    ) -> Window | None:
        """The latest such window."""
        steps = self._steps(pool, beside_on_demand)
        return self._window(steps.last_below, pool, cards, seconds, (not_before, not_after))

    def _window(
        self, search: _Search, pool: str, cards: int, seconds: int, within: tuple[datetime, datetime]
    ) -> Window | None:
        if seconds < 1 or cards < 1 or within[1] <= within[0]:
            return None
        limit, (begin, end) = self.capacity(pool) - cards, _seconds(*within)
        if limit < 0:
            return None
        found = search(limit, seconds, begin, end)
        return None if found is None else Window(_instant(found), _instant(found + seconds))

    def book(self, booking_id: str, pool: str, cards: int, start: datetime, end: datetime) -> bool:
        """Book where the cards are free, and say whether they were.

        The same booking again is true and changes nothing; the same id for another raises ``ValueError``.
        """
        begin, stop = _seconds(start, end)
        _positive(cards)
        before = self._bookings.get(booking_id)
        if before is not None:
            if (before.pool, before.cards, before.start_second) != (pool, cards, begin):
                raise ValueError(f"{booking_id} is a booking of another window already")
            return True
        if self._steps(pool, False).peak(begin, stop) + cards > self.capacity(pool):
            return False
        self._put(booking_id, pool, cards, begin, stop)
        return True

    def restore(self, booking_id: str, pool: str, cards: int, start: datetime, end: datetime) -> None:
        """Enter a booking that was accepted before, even where the pool has shrunk since.

        Enter them in the order in which they were made: :meth:`over_capacity` goes by it.
        """
        _positive(cards)
        if booking_id not in self._bookings:
            self._put(booking_id, pool, cards, *_seconds(start, end))

    def release(self, booking_id: str, at: datetime) -> None:
        """End a booking at ``at`` (rounded up to a second), before its start: take it away whole.

        One that is over by then, or not known, stays as it is: a repeat is harmless.
        """
        booked = self._bookings.get(booking_id)
        if booked is None:
            return
        second = max(_ceil(at), booked.start_second)
        if second >= booked.end_second:
            return
        for steps in self._written(booked.pool):
            steps.add(second, booked.end_second, -booked.cards)
        if second == booked.start_second:
            del self._bookings[booking_id]
        else:
            self._bookings[booking_id] = Booked(
                booking_id, booked.pool, booked.cards, booked.start_second, second, booked.order
            )

    def claim(
        self, claim_id: str, pool: str, cards: int, start: datetime, end: datetime | None = None
    ) -> None:
        """Count an on-demand claim (``end`` ``None``: without an end) against late bookings."""
        _positive(cards)
        if claim_id in self._claims:
            return
        begin = _ceil(start)
        stop = FOREVER if end is None else max(_ceil(end), begin + 1)
        if pool not in self._claimed:
            self._claimed[pool] = self._steps(pool, False).copy()
        self._claimed[pool].add(begin, stop, cards)
        self._claims[claim_id] = Booked(claim_id, pool, cards, begin, stop, 0)

    def unclaim(self, claim_id: str) -> None:
        """Count it no more; one that is not known is harmless."""
        claim = self._claims.pop(claim_id, None)
        if claim is not None:
            self._claimed[claim.pool].add(claim.start_second, claim.end_second, -claim.cards)

    def over_capacity(self, pool: str, since: datetime) -> tuple[Booked, ...]:
        """Bookings that no longer fit from ``since`` on because the pool shrank: newest first.

        Without them all others fit; older ones keep their cards. Empty where nothing is over.
        """
        second, capacity = _ceil(since), self.capacity(pool)
        if self._steps(pool, False).peak(second, FOREVER) <= capacity:
            return ()
        kept, over = StepFunction(), []
        mine = (b for b in self._bookings.values() if b.pool == pool and b.end_second > second)
        for booked in sorted(mine, key=lambda b: b.order):
            start = max(booked.start_second, second)
            if kept.peak(start, booked.end_second) + booked.cards > capacity:
                over.append(booked)
            else:
                kept.add(start, booked.end_second, booked.cards)
        return tuple(reversed(over))

    def bookings(self) -> Iterator[Booked]:
        """All that is booked, in the order of booking."""
        return iter(self._bookings.values())

    def _put(self, booking_id: str, pool: str, cards: int, begin: int, stop: int) -> None:
        for steps in self._written(pool):
            steps.add(begin, stop, cards)
        self._made += 1
        self._bookings[booking_id] = Booked(booking_id, pool, cards, begin, stop, self._made)

    def _steps(self, pool: str, beside_on_demand: bool) -> StepFunction:
        if beside_on_demand and pool in self._claimed:
            return self._claimed[pool]
        steps = self._booked.get(pool)
        if steps is None:
            steps = self._booked[pool] = StepFunction(self._block)
        return steps

    def _written(self, pool: str) -> tuple[StepFunction, ...]:
        steps, claimed = self._steps(pool, False), self._claimed.get(pool)
        return (steps,) if claimed is None else (steps, claimed)


def _positive(cards: int) -> None:
    if cards < 1:
        raise ValueError(f"{cards} cards cannot be booked")


def _seconds(start: datetime, end: datetime) -> tuple[int, int]:
    if start.microsecond or end.microsecond:
        raise ValueError(f"{start} .. {end} are not whole seconds")
    begin, stop = int(utc(start).timestamp()), int(utc(end).timestamp())
    if stop <= begin:
        raise ValueError(f"a window must end after its start: {start} .. {end}")
    return begin, stop


def _ceil(at: datetime) -> int:
    return int(utc(at.replace(microsecond=0)).timestamp()) + (at.microsecond > 0)


def _instant(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
