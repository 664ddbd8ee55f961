"""A quote's shape, what it says costs less, and every field it refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from starverse.domain.errors import Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.paying import Coupon, Credit, Sources
from starverse.domain.pricing.quote import QuoteRequest, quote, what_fits
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import at, books_of, edited_book

HOUR = QuoteRequest("rtx4090", 8, "on_demand", at("2026-03-10 10:00"), at("2026-03-10 11:00"))


def test_json_has_exactly_the_documented_keys() -> None:
    shown = quote(replace(HOUR, member="edu"), books_of(), Sources(cash=Money.parse("100"))).to_json()
    assert shown == {
        "currency": "CNY",
        "total_micro": 11_952_000,
        "coupon_micro": 0,
        "credit_micro": 0,
        "cash_micro": 11_952_000,
        "segments": [
            {
                "start": "2026-03-10T02:00:00Z",
                "end": "2026-03-10T03:00:00Z",
                "cards": 8,
                "rate_micro_per_card_hour": "1494000",
                "factors": {"list_price": "1.66", "tariff": "1", "window": "1", "member": "0.9"},
                "amount_micro": 11_952_000,
            }
        ],
        "cheaper": [
            {
                "tariff": "idle",
                "start": "2026-03-10T02:00:00Z",
                "end": "2026-03-10T03:00:00Z",
                "cards": 8,
                "total_micro": 3_227_040,
            },
            {
                "tariff": "spot",
                "start": "2026-03-10T02:00:00Z",
                "end": "2026-03-10T03:00:00Z",
                "cards": 8,
                "total_micro": 3_585_600,
            },
            {
                "tariff": "on_demand",
                "start": "2026-03-10T15:00:00Z",
                "end": "2026-03-10T16:00:00Z",
                "cards": 8,
                "total_micro": 5_976_000,
            },
        ],
    }


def test_factors_name_the_floor_and_the_hours_of_a_package() -> None:
    floored = quote(replace(HOUR, tariff="spot"), books_of(edited_book(('share: "0.20"', 'share: "0.5"'))))
    assert floored.to_json()["segments"][0]["factors"] == {  # type: ignore[index]
        "list_price": "1.66",
        "tariff": "0.3",
        "window": "1",
        "member": "1",
        "floor": "0.5",
    }
    month = quote(replace(HOUR, tariff="month", end=None), books_of()).to_json()
    assert month["segments"][0]["factors"]["hours"] == "720"  # type: ignore[index]


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("unknown card", {"card": "rtx5090"}, "card"),
    ("no cards", {"cards": 0}, "cards"),
    ("too many cards", {"cards": 10**9}, "cards"),
    ("unknown tariff", {"tariff": "free"}, "tariff"),
    ("unknown fabric", {"fabric": "copper"}, "fabric"),
    ("unknown membership", {"member": "vip"}, "member"),
    ("no end", {"end": None}, "end"),
    ("an end before the start", {"end": at("2026-03-10 09:00")}, "end"),
    ("an empty span", {"end": at("2026-03-10 10:00")}, "end"),
    ("eleven years", {"end": at("2037-03-10 09:00")}, "end"),
    ("a fraction of a second", {"start": at("2026-03-10 10:00:00.5")}, "start"),
    ("before the first price book", {"start": at("2026-02-10 10:00")}, "start"),
    ("a year far away", {"start": at("9999-01-01 00:00"), "end": at("9999-12-31 00:00")}, "start"),
    ("booked after its start", {"tariff": "reserved", "booked_at": at("2026-03-10 10:00:01")}, "booked_at"),
]


@pytest.mark.parametrize(("change", "field"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_each_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        quote(replace(HOUR, **change), books_of())
    assert field in {fault.field for fault in refused.value.faults}


def test_all_wrong_fields_are_named_at_once() -> None:
    wrong = replace(HOUR, card="x", cards=-1, tariff="y", fabric="z", member="m", end=at("2026-03-10 09:00"))
    with pytest.raises(Invalid) as refused:
        quote(wrong, books_of())
    assert {f.field for f in refused.value.faults} == {"cards", "tariff", "fabric", "member", "end"}


def test_everything_that_costs_less_really_costs_what_it_says() -> None:
    request = QuoteRequest("a100-80g", 3, "on_demand", at("2026-03-10 14:15"), at("2026-03-11 03:45"))
    result = quote(request, books_of())
    assert [other.tariff for other in result.cheaper] == [Tariff.IDLE, Tariff.SPOT, Tariff.ON_DEMAND]
    for other in result.cheaper:
        again = replace(request, tariff=str(other.tariff), start=other.start, end=other.end)
        assert quote(again, books_of()).total == other.total < result.total


@pytest.mark.parametrize("hours", [1, 5, 9, 12, 20])
def test_the_cheapest_start_beats_every_start_of_the_next_day(hours: int) -> None:
    start = at("2026-03-10 10:20")

    def total_from(moved: datetime) -> Money:
        request = QuoteRequest("rtx4090", 1, "on_demand", moved, moved + timedelta(hours=hours))
        return quote(request, books_of()).total

    request = QuoteRequest("rtx4090", 1, "on_demand", start, start + timedelta(hours=hours))
    offered = [other.total for other in quote(request, books_of()).cheaper if other.tariff == "on_demand"]
    best = min([total_from(start), *offered])
    assert best == min(total_from(start + timedelta(minutes=20 * step)) for step in range(72))


def test_a_booking_one_second_late_is_told_the_start_that_is_early_enough() -> None:
    late = QuoteRequest(
        "rtx4090",
        8,
        "reserved",
        at("2026-03-20 00:00"),
        at("2026-03-27 00:00"),
        booked_at=at("2026-03-13 00:00:01"),
    )
    starts = [other for other in quote(late, books_of()).cheaper if other.tariff is Tariff.RESERVED]
    assert [(other.start, other.total.micro) for other in starts] == [
        (at("2026-03-20 00:00:01"), 1_338_624_000)
    ]


def test_a_reservation_is_offered_only_where_the_time_of_booking_is_known() -> None:
    ahead = replace(HOUR, start=at("2026-03-20 10:00"), end=at("2026-03-20 11:00"))
    assert Tariff.RESERVED not in {other.tariff for other in quote(ahead, books_of()).cheaper}
    known = replace(ahead, booked_at=at("2026-03-10 10:00"))
    assert Tariff.RESERVED in {other.tariff for other in quote(known, books_of()).cheaper}


def test_where_no_tariff_or_start_fits_fewer_cards_do() -> None:
    (fewer,) = what_fits(HOUR, books_of(), Sources(cash=Money.parse("3.40")))
    assert (fewer.tariff, fewer.cards, fewer.total.micro) == (Tariff.ON_DEMAND, 2, 3_320_000)
    assert what_fits(HOUR, books_of(), Sources(cash=Money.parse("0.10"))) == ()


def test_what_fits_counts_coupons_and_credit_too() -> None:
    coupon = Coupon("c", Money.parse("50"), at("2026-03-02 00:00"))
    wallet = Sources((coupon,), (Credit("g", Money.parse("2.50")),), Money.parse("2.20"))
    assert [other.total.micro for other in what_fits(HOUR, books_of(), wallet)] == [3_984_000, 6_640_000]


def test_a_package_is_paid_at_its_purchase_by_what_holds_then() -> None:
    month = replace(HOUR, tariff="month", end=None, booked_at=at("2026-03-05 00:00"))
    kept = Coupon("c", Money.parse("50"), at("2026-03-02 00:00"), at("2026-03-06 00:00"))
    assert quote(month, books_of(), Sources((kept,))).coupon == Money.parse("50")
    gone = replace(kept, expires_at=at("2026-03-05 00:00"))
    assert quote(month, books_of(), Sources((gone,))).coupon == Money(0)


def test_coupons_redeemed_on_the_way_pay_for_what_comes_after_each() -> None:
    first = Coupon("a", Money.parse("1"), at("2026-03-10 10:15"))
    second = Coupon("b", Money.parse("50"), at("2026-03-10 10:30"))
    result = quote(replace(HOUR, end=at("2026-03-10 12:00")), books_of(), Sources((first, second)))
    assert result.coupon == Money.parse("6.972")
    assert result.coupon <= Money(result.total.micro * 3 // 10)
