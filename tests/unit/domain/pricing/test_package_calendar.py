"""Days, months and years of packages: the anchor is kept, periods tile time, nothing drifts."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from starverse.domain.money import Money
from starverse.domain.pricing.packages import package_period
from starverse.domain.pricing.quote import QuoteRequest, quote
from starverse.domain.pricing.rating import charge_usages
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import at, books_of, terms, usage

SHANGHAI = "Asia/Shanghai"


def starts(tariff: Tariff, first: datetime, zone: str, count: int) -> list[datetime]:
    return [package_period(tariff, first, i, zone).start.astimezone(ZoneInfo(zone)) for i in range(count)]


@pytest.mark.parametrize("day", [28, 29, 30, 31])
def test_36_months_from_a_late_day_give_36_periods_that_keep_their_anchor(day: int) -> None:
    first = at(f"2026-01-{day} 12:34:56")
    periods = [package_period(Tariff.MONTH, first, index, SHANGHAI) for index in range(36)]
    assert all(a.end == b.start for a, b in pairwise(periods))
    local = [period.start.astimezone(ZoneInfo(SHANGHAI)) for period in periods]
    assert len({(moment.year, moment.month) for moment in local}) == 36
    for moment in local:
        month_length = ((moment.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)).day
        assert moment.day == min(day, month_length)
        assert (moment.hour, moment.minute, moment.second) == (12, 34, 56)


def test_the_31st_of_january_goes_over_february_to_the_31st_of_march() -> None:
    moments = starts(Tariff.MONTH, at("2027-01-31 09:00"), SHANGHAI, 4)
    assert [(m.month, m.day) for m in moments] == [(1, 31), (2, 28), (3, 31), (4, 30)]


def test_a_leap_day_keeps_its_anchor_over_common_years() -> None:
    moments = starts(Tariff.YEAR, at("2028-02-29 09:00"), SHANGHAI, 5)
    assert [(m.year, m.month, m.day) for m in moments] == [
        (2028, 2, 29),
        (2029, 2, 28),
        (2030, 2, 28),
        (2031, 2, 28),
        (2032, 2, 29),
    ]


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana"]
)
@pytest.mark.parametrize("clock", ["00:00", "02:30", "12:00"])
def test_a_wall_clock_time_that_a_change_skips_or_repeats_never_moves_the_anchor(
    zone: str, clock: str
) -> None:
    first = datetime.fromisoformat(f"2026-01-08 {clock}").replace(tzinfo=ZoneInfo(zone))
    periods = [package_period(Tariff.MONTH, first, index, zone) for index in range(36)]
    assert all(a.end == b.start for a, b in pairwise(periods))
    regular = [p.start.astimezone(ZoneInfo(zone)).strftime("%H:%M") for p in periods]
    assert regular.count(clock) >= 34
    assert regular[-1] == clock


def test_a_day_is_24_elapsed_hours() -> None:
    first = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    period = package_period(Tariff.DAY, first, 3, "Europe/Berlin")
    assert period.seconds == 86_400
    assert period.start == first.astimezone(ZoneInfo("UTC")) + timedelta(days=3)


@pytest.mark.parametrize("month", range(1, 13))
def test_the_price_of_a_month_comes_from_the_whole_period_whatever_its_length(month: int) -> None:
    period = package_period(Tariff.MONTH, at(f"2027-{month:02d}-01 00:00"), 0, SHANGHAI)
    bought = usage("2027-01-01 00:00", "2027-01-02 00:00", 3, terms(Tariff.MONTH))
    charges = charge_usages([type(bought)(bought.subject, period, 3, bought.terms)], books_of())
    assert charges.total == Money.parse("2241")


def test_switching_packages_on_the_way_never_costs_more_than_both() -> None:
    month = quote(QuoteRequest("rtx4090", 2, "month", at("2026-05-01 00:00"), None), books_of())
    day = quote(QuoteRequest("rtx4090", 2, "day", at("2026-05-15 00:00"), None), books_of())
    both = quote(
        QuoteRequest("rtx4090", 2, "day", at("2026-05-01 00:00"), at("2026-05-03 00:00"), renew=True),
        books_of(),
    )
    assert both.total.micro == 2 * day.total.micro
    assert month.total.micro + day.total.micro == 1_494_000_000 + 59_760_000


def test_without_renewal_the_instance_goes_on_on_demand_from_the_package_s_end() -> None:
    request = QuoteRequest("rtx4090", 1, "day", at("2026-03-10 12:00"), at("2026-03-11 13:00"))
    package, rest = quote(request, books_of()).segments
    assert (package.tariff, package.amount.micro) == (Tariff.DAY, 29_880_000)
    assert (rest.tariff, rest.span.start, rest.amount.micro) == (
        Tariff.ON_DEMAND,
        package.span.end,
        1_660_000,
    )
