"""The calendar of packages (day, month, year) and the check that they never cost more than ``on_demand``.

Normative: pricing.md, Rate of an instant (day, month, year); scenarios 1 and 3. A period's boundaries are
computed from the first start, never from the boundary before: the anchor day and wall-clock time are kept
(31 Jan, 28 Feb, 31 Mar) and nothing drifts over a change of clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import accumulate
from math import lcm
from zoneinfo import ZoneInfo

from starverse.domain.errors import InvariantBroken
from starverse.domain.money import decimal_string
from starverse.domain.pricing.price_book import PACKAGES, PriceBook
from starverse.domain.pricing.windows import (
    epoch_second,
    instant_of,
    month_after,
    wall_to_second,
    window_pieces,
)
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, utc

_CHECK_YEARS = 2
"""Starts of two years are checked: they hold a February without a leap day and every change of clocks."""


def package_period(tariff: Tariff, first_start: datetime, index: int, zone: str) -> Timespan:
    """The ``index``-th period (0 is the first) of a package first started at ``first_start`` and renewed.

    A month ends on the same day of the next month (the 31st: on its last day) at the same wall-clock time in
    ``zone``, a year on the same date of the next; a day is 24 elapsed hours. Periods tile time.
    """
    start = _boundary(tariff, first_start, index, zone)
    end = _boundary(tariff, first_start, index + 1, zone)
    if end <= start:
        raise InvariantBroken(context={"first_start": first_start.isoformat(), "index": index, "zone": zone})
    return Timespan(start, end)


def dearer_packages(book: PriceBook) -> tuple[str, ...]:
    """A warning for each package that costs more than ``on_demand`` over the same instants from some start.

    Both scale alike with list price, cards and membership (the floor only raises ``on_demand``), so factors
    are compared. ``on_demand`` over a package is piecewise linear in its start, so the starts that matter are
    those where an end of the span meets an edge of the rate.
    """
    if not any(tariff in book.packages for tariff in PACKAGES):
        return ()
    begin = epoch_second(book.effective_from)
    costs = _OnDemandHours(book, begin, begin + (2 * _CHECK_YEARS + 1) * 366 * 86_400)
    warnings = []
    for tariff, package in book.packages.items():
        worst_start, worst = begin, None
        for start in costs.starts(tariff, begin, begin + _CHECK_YEARS * 366 * 86_400):
            cost = costs.over(start, epoch_second(_end(tariff, start, book.timezone)))
            if worst is None or cost < worst:
                worst_start, worst = start, cost
        price = package.hours * package.factor * 3600
        if worst is not None and price > worst:
            local = instant_of(worst_start).astimezone(ZoneInfo(book.timezone)).isoformat()
            warnings.append(
                f"tariffs.{tariff}: from {local} it costs {decimal_string(price / worst, 3)} times on_demand "
                "over the same instants; lower its factor or hours"
            )
    return tuple(warnings)


class _OnDemandHours:
    """The integral of the ``on_demand`` factor over time, in factor-seconds of list price."""

    def __init__(self, book: PriceBook, begin: int, end: int) -> None:
        self._zone = book.timezone
        factor = book.factor_of(Tariff.ON_DEMAND)
        pieces = window_pieces(book.windows_of(Tariff.ON_DEMAND), begin, end, book.timezone)
        self._edges = [start for start, _, _ in pieces]
        rates = [max(factor * (window.factor if window else 1), book.floor_share) for *_, window in pieces]
        self._common = lcm(*{rate.denominator for rate in rates})
        self._rates = [rate.numerator * (self._common // rate.denominator) for rate in rates]
        areas = [(b - a) * rate for (a, b, _), rate in zip(pieces, self._rates, strict=True)]
        self._sums = list(accumulate(areas, initial=0))

    def over(self, start: int, end: int) -> Fraction:
        return Fraction(self._until(end) - self._until(start), self._common)

    def _until(self, at: int) -> int:
        index = bisect_right(self._edges, at) - 1
        return self._sums[index] + (at - self._edges[index]) * self._rates[index]

    def starts(self, tariff: Tariff, begin: int, end: int) -> list[int]:
        """Starts at which the span's start or its end meets an edge (to within a change of clocks)."""
        found = {begin}
        for edge in self._edges:
            if edge < end:
                found.add(edge)
            before = _start_ending_at(tariff, edge, self._zone)
            found.update(start for start in (before, before + 1) if begin <= start < end)
        return sorted(found)


def _start_ending_at(tariff: Tariff, end: int, zone: str) -> int:
    """A start whose period ends about ``end``: the same wall-clock time, one period before."""
    if tariff is Tariff.DAY:
        return end - 86_400
    local = instant_of(end).astimezone(ZoneInfo(zone))
    return wall_to_second(zone, month_after(local, -12 if tariff is Tariff.YEAR else -1), local.time())


def _end(tariff: Tariff, start: int, zone: str) -> datetime:
    return _boundary(tariff, instant_of(start), 1, zone)


def _boundary(tariff: Tariff, first_start: datetime, index: int, zone: str) -> datetime:
    """Where period ``index`` begins; the first begins exactly at ``first_start``."""
    if index == 0:
        return utc(first_start)
    if tariff is Tariff.DAY:
        return utc(first_start) + timedelta(days=index)
    local = utc(first_start).astimezone(ZoneInfo(zone))
    months = index * (12 if tariff is Tariff.YEAR else 1)
    return instant_of(wall_to_second(zone, month_after(local, months), local.time()))
