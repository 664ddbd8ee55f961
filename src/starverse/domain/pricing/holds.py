"""How much to hold before a span runs, so that what it is charged always fits.

Normative: pricing.md, Paying a charge (Holds). Hold k covers hour k and is posted once, for the real amount.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache

from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PACKAGES, PriceBooks
from starverse.domain.pricing.rating import (
    HOUR_SECONDS,
    STEPS_KEPT,
    ClearedPrice,
    Terms,
    charged_cards,
    exact_of,
    rate_steps,
)
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, utc

_HIGHEST = Fraction(10**18)


@lru_cache(maxsize=STEPS_KEPT)
def hourly_hold(
    terms: Terms, cards: int, start: datetime, books: PriceBooks, seconds: int = HOUR_SECONDS
) -> Money:
    """An upper bound of what ``cards`` cards are charged over ``[start, start + seconds)``.

    Windows, published versions and known membership changes count as they will hold; a spot price that an
    auction clears counts at the bid, or at list without one. Rounded up, so that the growth of the running
    total fits whatever it was before. Of a package: its whole price. A membership that ends inside the span
    without notice is the one thing it cannot know.
    """
    span = Timespan(start, utc(start) + timedelta(seconds=seconds))
    return _round_up(_exact(_worst(terms), cards, span, books))


def runway_seconds(free: Money, open_holds: Money, burn_micro_per_hour: Fraction) -> int | None:
    """Whole seconds until a team's money ends at its present burn; ``None`` when nothing burns."""
    if burn_micro_per_hour <= 0:
        return None
    exact = (free + open_holds).micro * HOUR_SECONDS / burn_micro_per_hour
    return max(0, exact.numerator // exact.denominator)


def _exact(terms: Terms, cards: int, span: Timespan, books: PriceBooks) -> Fraction:
    if terms.tariff in PACKAGES:
        return exact_of(rate_steps(terms, span, books)[0], cards)
    steps = rate_steps(terms, span, books)
    return sum(
        (exact_of(step, charged_cards(terms, cards, books.at(step.span.start))) for step in steps),
        Fraction(0),
    )


def _worst(terms: Terms) -> Terms:
    """The same terms, from the first clearing on at the highest price: rating caps it by bid and list."""
    if terms.tariff not in (Tariff.SPOT, Tariff.IDLE) or not terms.cleared:
        return terms
    first = min(price.since for price in terms.cleared)
    return replace(terms, cleared=(ClearedPrice(first, _HIGHEST),))


def _round_up(exact: Fraction) -> Money:
    return Money(-(-exact.numerator // exact.denominator))
