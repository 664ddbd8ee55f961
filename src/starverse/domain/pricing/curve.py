"""The fast path of rating: the integral of a rate over time, in integers, for meters and whole bills.

A :class:`RateCurve` holds the steps that ``rating.rate_steps`` gives (one source of truth) on a common
denominator; the exact cost of a card over any span is the difference of two look-ups. It is exact, not an
approximation: ``RunningTotal`` and the curve agree to the last micro-yuan for every split.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PACKAGES, PriceBooks
from starverse.domain.pricing.rating import HOUR_SECONDS, RateStep, Terms, charged_cards, rate_steps
from starverse.domain.pricing.windows import epoch_second, instant_of
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan

_INT64_MAX = 2**63 - 1


class RateCurve:
    """What one card costs since the horizon's start, as a function of time.

    ``numerator(start, end) / denominator`` is the exact cost in micro-yuan of one card over ``[start, end)``
    (epoch seconds inside the horizon); of ``no_gpu``, which counts one card whatever the instance has, it is
    the cost of the instance, and ``per_card`` is false. Building is linear in the days of the horizon, a
    look-up logarithmic in its steps; one curve serves every subject on the same terms.
    """

    def __init__(self, terms: Terms, horizon: Timespan, books: PriceBooks) -> None:
        """Raises ``Invalid`` for packages, which are priced whole, and for what ``rate_steps`` refuses."""
        if terms.tariff in PACKAGES:
            fault = FieldFault(
                "tariff", terms.tariff, "a tariff charged by the second; packages are priced whole"
            )
            raise Invalid(faults=[fault])
        steps = rate_steps(terms, horizon, books)
        rates = [_slope(step, terms, books) for step in steps]
        common = lcm(*{rate.denominator for rate in rates})
        self.per_card = terms.tariff is not Tariff.NO_GPU
        self.denominator: int = common * HOUR_SECONDS
        self._edges = [epoch_second(step.span.start) for step in steps]
        self._end = epoch_second(steps[-1].span.end)
        self._slopes = [rate.numerator * (common // rate.denominator) for rate in rates]
        lengths = [after - before for before, after in pairwise([*self._edges, self._end])]
        areas = [length * slope for length, slope in zip(lengths, self._slopes, strict=True)]
        self._sums = list(accumulate(areas, initial=0))

    def numerator(self, start: int, end: int) -> int:
        """The exact cost of one card over ``[start, end)`` times ``denominator``."""
        return self._until(end) - self._until(start)

    def numerators(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """``numerator`` of many spans at once; arrays of equal shape ``(n,)``, integers throughout.

        Raises ``OverflowError`` where 64 bits would not hold the horizon's integral; use ``numerator`` then.
        """
        if self._sums[-1] > _INT64_MAX:
            raise OverflowError("the integral of this horizon does not fit 64 bits; use numerator()")
        if starts.size and not (self._edges[0] <= starts.min() and ends.max() <= self._end):
            raise ValueError("a span lies outside the horizon of this curve")
        edges, slopes = np.array(self._edges, np.int64), np.array(self._slopes, np.int64)
        sums = np.array(self._sums[:-1], np.int64)

        def until(at: NDArray[np.int64]) -> NDArray[np.int64]:
            index = np.searchsorted(edges, at, side="right") - 1
            return sums[index] + (at - edges[index]) * slopes[index]

        return until(ends) - until(starts)

    def amount(self, start: int, end: int, cards: int) -> Money:
        """What a subject with only this usage is charged: the exact cost rounded down."""
        counted = cards if self.per_card else 1
        return Money(self.numerator(start, end) * counted // self.denominator)

    def _until(self, at: int) -> int:
        index = bisect_right(self._edges, at) - 1
        if index < 0 or at > self._end:
            raise ValueError(f"{instant_of(at).isoformat()} lies outside the horizon of this curve")
        return self._sums[index] + (at - self._edges[index]) * self._slopes[index]


def _slope(step: RateStep, terms: Terms, books: PriceBooks) -> Fraction:
    return step.rate * charged_cards(terms, 1, books.at(step.span.start))


@dataclass(slots=True)
class Coverage:
    """The seconds of one subject that were metered already, so that late and repeated events add nothing.

    Mutable: the meter's own working state. ``bounds`` is a sorted flat list ``start, end, start, end ...`` of
    epoch seconds, as plain integers to store.
    """

    bounds: list[int]

    @classmethod
    def empty(cls) -> Coverage:
        return cls([])

    @property
    def seconds(self) -> int:
        """How many seconds are covered."""
        return sum(self.bounds[1::2]) - sum(self.bounds[::2])

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Cover ``[start, end)``; returns the parts that were not covered before, in order."""
        bounds = self.bounds
        if end <= start:
            return []
        if bounds and start == bounds[-1]:  # the usual case: the meter goes on where it stopped
            bounds[-1] = end
            return [(start, end)]
        low = bisect_left(bounds, start)
        if low % 2 == 0 and (low == len(bounds) or end < bounds[low]):  # alone in a gap: nothing to merge
            bounds[low:low] = (start, end)
            return [(start, end)]
        high = bisect_right(bounds, end, low)
        first = [] if low % 2 else [start]  # odd: `start` lies in, or at the end of, a covered part
        last = [] if high % 2 else [end]  # odd: `end` lies in, or at the start of, a covered part
        holes = [*first, *bounds[low:high], *last]
        bounds[low:high] = [*first, *last]
        return [(a, b) for a, b in zip(holes[::2], holes[1::2], strict=True) if a < b]
