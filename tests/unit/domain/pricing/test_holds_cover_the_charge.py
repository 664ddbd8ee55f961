"""A hold bounds what its hour is charged; a submit asks for an hour at the current rate; runway."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from starverse.domain.money import Money
from starverse.domain.pricing.holds import hourly_hold, runway_seconds
from starverse.domain.pricing.rating import ClearedPrice, Terms
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import at, books_of, terms

AUCTION = replace(terms(Tariff.SPOT), cleared=(ClearedPrice(at("2026-03-10 00:00"), Fraction(500_000)),))

HOLDS = [
    ("by day", terms(), "2026-03-10 10:00", 13_280_000),
    ("at night", terms(), "2026-03-10 23:00", 6_640_000),
    ("half and half", terms(), "2026-03-10 22:30", 9_960_000),
    ("spot", terms(Tariff.SPOT), "2026-03-10 10:00", 3_984_000),
    ("no GPU", terms(Tariff.NO_GPU), "2026-03-10 10:00", 498_000),
    ("an auction may rise to list", AUCTION, "2026-03-10 10:00", 13_280_000),
    (
        "an auction may rise to the bid",
        replace(AUCTION, bid=Fraction(700_000)),
        "2026-03-10 10:00",
        5_600_000,
    ),
    ("a package is held whole", terms(Tariff.DAY), "2026-03-10 10:00", 239_040_000),
]


@pytest.mark.parametrize(("priced", "start", "micro"), [h[1:] for h in HOLDS], ids=[h[0] for h in HOLDS])
def test_hold_of_an_hour_of_eight_cards(priced: Terms, start: str, micro: int) -> None:
    assert hourly_hold(priced, 8, at(start), books_of()).micro == micro


def test_a_hold_rounds_up_so_that_any_growth_of_the_total_fits() -> None:
    assert (
        hourly_hold(terms(Tariff.IDLE, "rtx3090"), 7, at("2026-03-10 10:00"), books_of(), seconds=3).micro
        == 2_489
    )


def test_runway_counts_free_money_and_holds() -> None:
    assert runway_seconds(Money.parse("1"), Money.parse("0.66"), Fraction(1_660_000)) == 3_600
    assert runway_seconds(Money.parse("1"), Money(0), Fraction(0)) is None
    assert runway_seconds(Money(0), Money(0), Fraction(1)) == 0
