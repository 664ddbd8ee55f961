"""The spot price in effect: posted by the price book, or cleared by the pool's auction (pricing.md, spot)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from starverse.domain.timespan import Timespan


class SpotPricing(StrEnum):
    """How a pool's spot price comes about; the operator's choice for each pool."""

    POSTED = "posted"
    AUCTIONED = "auctioned"


@dataclass(frozen=True, slots=True)
class PricedSpan:
    """A cleared price, in effect over a span; spans of one pool never overlap and never change."""

    span: Timespan
    price: Fraction


def posted_price(list_price: Fraction, spot_factor: Fraction, floor_share: Fraction) -> Fraction:
    """What spot costs per card-hour by the price book alone, before a member's factor."""
    return list_price * max(spot_factor, floor_share)


def cleared_price(clearing: Fraction, list_price: Fraction, floor_share: Fraction) -> Fraction:
    """The clearing price between the floor and the list price."""
    return max(list_price * floor_share, min(clearing, list_price))


def rate_in_effect(
    price: Fraction, list_price: Fraction, member: Fraction, floor_share: Fraction
) -> Fraction:
    """What a member pays at a spot price: the member's factor, and again not below the floor."""
    return max(list_price * floor_share, price * member)


def price_pieces(
    span: Timespan, cleared: Sequence[PricedSpan], posted: Fraction
) -> list[tuple[Timespan, Fraction]]:
    """Tile ``span`` by the price in effect: that of the auction where one was cleared, else the posted one.

    ``cleared`` in any order, without overlaps. Neighbouring pieces of one price are one piece.
    """
    pieces: list[tuple[Timespan, Fraction]] = []
    at = span.start

    def add(end_price: Fraction, until: Timespan) -> None:
        if pieces and pieces[-1][1] == end_price and pieces[-1][0].end == until.start:
            pieces[-1] = (Timespan(pieces[-1][0].start, until.end), end_price)
        else:
            pieces.append((until, end_price))

    for priced in sorted(cleared, key=lambda each: each.span):
        common = priced.span.intersection(span)
        if common is None:
            continue
        if common.start < at:
            raise ValueError(f"two prices for {common.start}: spans of one pool must not overlap")
        if at < common.start:
            add(posted, Timespan(at, common.start))
        add(priced.price, common)
        at = common.end
    if at < span.end:
        add(posted, Timespan(at, span.end))
    return pieces
