"""A book without a warning sells no package dearer than on demand over the same instants."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.pricing.packages import package_period
from starverse.domain.pricing.price_book import PACKAGES, PriceBook, PriceBooks
from starverse.domain.pricing.rating import Usage, charge_usages
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan
from starverse.testing.pricing import SUBJECT, at, edited_book, terms

ZONES = ["Asia/Shanghai", "Europe/Berlin", "America/St_Johns"]


@cache
def book_in(zone: str, day_factor: str = "0.75", month_factor: str = "0.625") -> PriceBook:
    return edited_book(
        ("Asia/Shanghai", zone), ('"0.75"', f'"{day_factor}"'), ('"0.625"', f'"{month_factor}"')
    )


def totals(book: PriceBook, tariff: Tariff, start: datetime) -> tuple[int, int]:
    """What the package costs, and on demand over the same instants."""
    span = package_period(tariff, start, 0, book.timezone)
    books = PriceBooks([book])
    package, on_demand = (
        charge_usages([Usage(SUBJECT, span, 4, terms(priced))], books).total.micro
        for priced in (tariff, Tariff.ON_DEMAND)
    )
    return package, on_demand


@pytest.mark.parametrize("zone", ZONES)
def test_the_shipped_book_has_no_warning_in_any_zone(zone: str) -> None:
    assert book_in(zone).warnings == ()


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(PACKAGES),
    st.integers(0, 700 * 86_400),
    st.sampled_from(["0.75", "0.77", "0.79"]),
    st.sampled_from(["0.625", "0.74", "0.75"]),
)
def test_a_package_of_an_unwarned_book_never_costs_more(
    zone: str, tariff: Tariff, second: int, day_factor: str, month_factor: str
) -> None:
    book = book_in(zone, day_factor, month_factor)
    package, on_demand = totals(book, tariff, at("2026-03-01 00:00") + timedelta(seconds=second))
    warned = {warning.partition(":")[0] for warning in book.warnings}
    assert package <= on_demand or f"tariffs.{tariff}" in warned


def test_the_start_that_a_warning_names_is_really_dearer() -> None:
    book = book_in("Europe/Berlin", "0.80")
    (warning,) = book.warnings
    start = datetime.fromisoformat(warning.partition("from ")[2].partition(" it costs")[0])
    package, on_demand = totals(book, Tariff.DAY, start)
    assert package > on_demand


def test_no_window_of_time_is_cheaper_by_the_second_than_the_whole_month_says() -> None:
    zone = ZoneInfo("Asia/Shanghai")
    month = Timespan(datetime(2027, 2, 1, tzinfo=zone), datetime(2027, 3, 1, tzinfo=zone))
    book = book_in("Asia/Shanghai")
    package, on_demand = totals(book, Tariff.MONTH, month.start)
    assert (package, on_demand) == (2_988_000_000, 4 * 1_660_000 * 546)
