"""The ten worked examples of the pricing page, exact to the micro-yuan, and its refusal for money."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from starverse.domain.money import Money
from starverse.domain.pricing.paying import Coupon, Credit, Sources
from starverse.domain.pricing.quote import QuoteRequest, quote, what_fits
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import at, books_of

BOOKED = "2026-03-13 00:00:00"
WEEK = ("2026-03-20 00:00", "2026-03-27 00:00")


@dataclass(frozen=True)
class Example:
    name: str
    card: str
    cards: int
    tariff: str
    times: tuple[str, str | None]
    total: int
    segments: tuple[int, ...] = ()
    payers: tuple[int, int, int] | None = None
    more: dict[str, str] = field(default_factory=dict)


EXAMPLES = [
    Example(
        "1 six hours by day on the sign-up credit",
        *("rtx4090", 1, "on_demand", ("2026-03-10 10:00", "2026-03-10 16:00"), 9_960_000),
        payers=(0, 9_960_000, 0),
        more={"credit": "10.00"},
    ),
    Example(
        "2 25 seconds over the edge of the night",
        *("rtx4090", 1, "on_demand", ("2026-03-10 22:59:47", "2026-03-10 23:00:12"), 8_761),
        segments=(5_994, 2_767),
        payers=(0, 0, 8_761),
    ),
    Example(
        "3 two nights and two days on 32 cards",
        *("rtx4090", 32, "on_demand", ("2026-03-10 23:00", "2026-03-12 17:00"), 2_006_400_000),
        segments=(273_600_000, 912_000_000, 273_600_000, 547_200_000),
        more={"fabric": "ib"},
    ),
    Example(
        "4 booked a week ahead, to the second",
        *("rtx4090", 8, "reserved", WEEK, 1_338_624_000),
        more={"booked_at": BOOKED},
    ),
    Example(
        "5 booked one second later",
        *("rtx4090", 8, "reserved", WEEK, 2_231_040_000),
        more={"booked_at": "2026-03-13 00:00:01"},
    ),
    Example(
        "6 spot with education and a coupon",
        *("a100-40g", 4, "spot", ("2026-03-10 21:00", "2026-03-11 09:30"), 106_650_000),
        payers=(31_995_000, 0, 74_655_000),
        more={"member": "edu", "coupon": "50.00"},
    ),
    Example(
        "7 no GPU on an instance of eight cards",
        *("rtx4090", 8, "no_gpu", ("2026-03-10 09:00", "2026-03-10 10:00"), 498_000),
    ),
    Example(
        "8 a month from the 31st with education",
        *("rtx4090", 1, "month", ("2026-03-31 12:00", None), 672_300_000),
        more={"member": "edu"},
    ),
    Example(
        "9 three idle seconds",
        *("rtx3090", 7, "idle", ("2026-03-10 09:00:00", "2026-03-10 09:00:03"), 2_488),
    ),
    Example(
        "10 a night with education and coupons",
        *("rtx4090", 32, "on_demand", ("2026-03-10 23:00", "2026-03-11 08:00"), 246_240_000),
        payers=(73_872_000, 0, 172_368_000),
        more={"fabric": "ib", "member": "edu", "coupon": "350.00"},
    ),
]


def priced(example: Example) -> tuple[QuoteRequest, Sources]:
    more = example.more
    start, end = example.times
    request = QuoteRequest(
        card=example.card,
        cards=example.cards,
        tariff=example.tariff,
        start=at(start),
        end=at(end) if end else None,
        fabric=more.get("fabric", "eth"),
        booked_at=at(more["booked_at"]) if "booked_at" in more else None,
        member=more.get("member"),
    )
    coupons = (Coupon("c", Money.parse(more["coupon"]), at("2026-03-02 00:00")),) if "coupon" in more else ()
    credits_ = (Credit("g", Money.parse(more["credit"])),) if "credit" in more else ()
    return request, Sources(coupons, credits_)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_worked_example_is_exact(example: Example) -> None:
    request, sources = priced(example)
    result = quote(request, books_of(), sources)
    assert result.total.micro == example.total
    assert sum(segment.amount.micro for segment in result.segments) == example.total
    assert (result.coupon + result.credit + result.cash).micro == example.total
    if example.segments:
        assert tuple(segment.amount.micro for segment in result.segments) == example.segments
    if example.payers is not None:
        assert (result.coupon.micro, result.credit.micro, result.cash.micro) == example.payers


def test_month_of_example_8_ends_on_the_last_day_and_its_renewal_on_the_31st_again() -> None:
    request = QuoteRequest(
        "rtx4090", 1, "month", at("2026-03-31 12:00"), at("2026-05-31 12:00"), member="edu", renew=True
    )
    first, second = quote(request, books_of()).segments
    assert (first.span.end, second.span.end) == (at("2026-04-30 12:00"), at("2026-05-31 12:00"))
    assert first.amount.micro == second.amount.micro == 672_300_000


def test_ten_yuan_do_not_pay_eight_cards_by_day_but_do_at_night_or_on_spot() -> None:
    request = QuoteRequest("rtx4090", 8, "on_demand", at("2026-03-10 10:00"), at("2026-03-10 11:00"))
    wallet = Sources(cash=Money.parse("10"))
    refused = quote(request, books_of(), wallet)
    assert (refused.total.micro, refused.missing.micro) == (13_280_000, 3_280_000)
    spot, night = what_fits(request, books_of(), wallet)
    assert (spot.tariff, spot.start, spot.total.micro) == (Tariff.SPOT, request.start, 3_984_000)
    assert (night.tariff, night.start, night.total.micro) == (
        Tariff.ON_DEMAND,
        at("2026-03-10 23:00"),
        6_640_000,
    )
