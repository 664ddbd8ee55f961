"""What a job will cost, from the moment it may start at the earliest: windows, --begin, --cost-max."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starverse.domain.money import Money
from starverse.domain.pricing.job_quote import Wish, quote_job
from starverse.testing.pricing import at, books_of, edited_book, terms

DAY = Wish(terms(), 1, 8 * 3600)
"""One rtx4090, CNY 1.66 by day and 0.83 at night; for eight hours."""


@pytest.mark.parametrize(
    ("wish", "now", "starts", "hour", "whole"),
    [
        (DAY, "2026-03-10 10:00", "2026-03-10 10:00", "1.66", "13.28"),
        (DAY, "2026-03-10 22:30", "2026-03-10 22:30", "1.245", "7.055"),
        (replace(DAY, begin=at("2026-03-10 23:00")), "2026-03-10 10:00", "2026-03-10 23:00", "0.83", "6.64"),
        (replace(DAY, begin=at("2026-03-10 09:00")), "2026-03-10 10:00", "2026-03-10 10:00", "1.66", "13.28"),
        (replace(DAY, window="night"), "2026-03-10 10:00", "2026-03-10 23:00", "0.83", "6.64"),
        (replace(DAY, window="night"), "2026-03-11 07:30", "2026-03-11 07:30", "0.83", "6.64"),
        (replace(DAY, window="night"), "2026-03-11 07:59:30", "2026-03-11 23:00", "0.83", "6.64"),
        (
            replace(DAY, window="night", time_limit_seconds=30 * 3600),
            "2026-03-10 10:00",
            "2026-03-10 23:00",
            "0.83",
            "24.9",
        ),
        (replace(DAY, cost_max=Money.parse("5")), "2026-03-10 10:00", "2026-03-10 10:00", "1.66", "5"),
        (replace(DAY, cost_max=Money.parse("1")), "2026-03-10 10:00", "2026-03-10 10:00", "1", "1"),
        (replace(DAY, time_limit_seconds=600), "2026-03-10 10:00", "2026-03-10 10:00", "1.66", "0.276666"),
        (
            replace(DAY, window="night", begin=at("2026-03-12 12:00")),
            "2026-03-10 10:00",
            "2026-03-12 23:00",
            "0.83",
            "6.64",
        ),
    ],
)
def test_first_hour_and_time_limit(wish: Wish, now: str, starts: str, hour: str, whole: str) -> None:
    found = quote_job(wish, at(now), books_of())
    assert found is not None
    assert (found.starts_at, found.hour, found.whole) == (at(starts), Money.parse(hour), Money.parse(whole))


def test_a_window_that_a_later_book_moves_is_priced_where_it_will_be() -> None:
    later = edited_book(
        ("2026-03-01T00:00:00+08:00", "2026-03-10T12:00:00+08:00"), ('from: "23:00"', 'from: "20:00"')
    )
    found = quote_job(replace(DAY, window="night"), at("2026-03-10 10:00"), books_of(edited_book(), later))
    assert found is not None
    assert found.starts_at == at("2026-03-10 20:00")


def test_a_window_that_never_opens_has_no_price() -> None:
    assert quote_job(replace(DAY, window="lunch"), at("2026-03-10 10:00"), books_of()) is None
