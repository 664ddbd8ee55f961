"""The rate of an instant: floor, auction, tiers, no-GPU, membership, versions, what is included."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from starverse.domain.errors import Invalid, InvariantBroken
from starverse.domain.money import Money
from starverse.domain.pricing.rating import (
    ClearedPrice,
    MemberChange,
    RunningTotal,
    Subject,
    SubjectKind,
    Terms,
    charge_usages,
    rate_at,
)
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import at, books_of, edited_book, split, terms, usage

DAY, NIGHT = "2026-03-10 12:00", "2026-03-10 23:30"
EDU = replace(terms(), member="edu")
LOW_FLOOR = edited_book(('floor_share: "0.20"', 'floor_share: "0.50"'))

RATES = [
    ("by day", terms(), DAY, "1.66"),
    ("at night", terms(), NIGHT, "0.83"),
    ("in the last second before the night", terms(), "2026-03-10 22:59:59", "1.66"),
    ("in the first second of the night", terms(), "2026-03-10 23:00:00", "0.83"),
    ("in the first second after the night", terms(), "2026-03-11 08:00:00", "1.66"),
    ("education at night", EDU, NIGHT, "0.747"),
    ("spot has no night", terms(Tariff.SPOT), NIGHT, "0.498"),
    ("idle is of spot", terms(Tariff.IDLE), DAY, "0.4482"),
    ("a fabric with its own price", terms(fabric="ib"), DAY, "1.90"),
    ("a fabric without one", terms(fabric="roce"), DAY, "1.66"),
]


@pytest.mark.parametrize(("priced", "when", "yuan"), [r[1:] for r in RATES], ids=[r[0] for r in RATES])
def test_rate_of_one_card(priced: Terms, when: str, yuan: str) -> None:
    rate, _ = rate_at(priced, at(when), books_of())
    assert rate == Money.parse(yuan).micro


def test_no_rate_is_below_the_floor_but_no_gpu_may_be() -> None:
    books = books_of(LOW_FLOOR)
    rate, factors = rate_at(replace(terms(Tariff.SPOT), member="edu"), at(DAY), books)
    assert rate == 830_000
    assert factors.floor_share == Fraction(1, 2)
    assert rate_at(terms(Tariff.NO_GPU), at(DAY), books)[0] == 498_000
    rate, factors = rate_at(EDU, at(DAY), books)
    assert rate == 1_494_000
    assert factors.floor_share is None


def cleared(yuan: str, **more: object) -> Terms:
    price = ClearedPrice(at("2026-03-10 00:00"), Fraction(Money.parse(yuan).micro))
    return replace(terms(Tariff.SPOT), cleared=(price,), **more)  # type: ignore[arg-type]


CLEARED = [
    ("the clearing price", cleared("0.90"), "0.90"),
    ("capped at list", cleared("9.00"), "1.66"),
    ("never above the bid", cleared("0.90", bid=Fraction(700_000)), "0.70"),
    ("never below the floor", cleared("0.01"), "0.332"),
    ("with education", cleared("0.90", member="edu"), "0.81"),
]


@pytest.mark.parametrize(("priced", "yuan"), [c[1:] for c in CLEARED], ids=[c[0] for c in CLEARED])
def test_spot_in_a_pool_with_an_auction(priced: Terms, yuan: str) -> None:
    assert rate_at(priced, at(DAY), books_of())[0] == Money.parse(yuan).micro


def test_the_posted_price_holds_until_the_first_clearing_and_each_clearing_is_an_edge() -> None:
    steps = (
        ClearedPrice(at("2026-03-10 13:00"), Fraction(500_000)),
        ClearedPrice(at("2026-03-10 14:00"), Fraction(600_000)),
    )
    priced = replace(terms(Tariff.SPOT), cleared=steps)
    charges = charge_usages([usage("2026-03-10 12:00", "2026-03-10 15:00", priced=priced)], books_of())
    assert [segment.amount.micro for segment in charges.segments] == [498_000, 500_000, 600_000]


def test_the_lead_of_a_booking_counts_to_its_start_in_every_part_of_its_usage() -> None:
    booked = replace(terms(Tariff.RESERVED), booked_at=at("2026-03-13 00:00:00"))
    whole = usage("2026-03-20 00:00", "2026-03-27 00:00", 8, booked)
    parts = split(whole, [at("2026-03-21 05:00"), at("2026-03-26 23:59:59")])
    assert charge_usages(parts, books_of()).total.micro == 1_338_624_000
    with pytest.raises(Invalid, match="booked_start"):
        Terms(Tariff.RESERVED, "rtx4090")
    late = replace(booked, booked_at=at("2026-03-20 00:00:01"))
    with pytest.raises(Invalid, match="booked_at"):
        rate_at(late, at("2026-03-20 00:00"), books_of())


def test_bookings_and_packages_keep_the_version_of_their_purchase_and_the_rest_follows() -> None:
    dearer = edited_book(("2026-03-01", "2026-03-21"), ('rtx4090: "1.66"', 'rtx4090: "3.32"'))
    books = books_of(edited_book(), dearer)
    booked = replace(terms(Tariff.RESERVED), booked_at=at("2026-03-13 00:00"))
    reserved = charge_usages([usage("2026-03-20 00:00", "2026-03-22 00:00", 1, booked)], books)
    assert [segment.rate for segment in reserved.segments] == [996_000]
    package = replace(terms(Tariff.MONTH), booked_at=at("2026-03-20 00:00"))
    bought = charge_usages([usage("2026-03-22 00:00", "2026-04-22 00:00", 1, package)], books)
    assert bought.total.micro == 747_000_000
    followed = charge_usages([usage("2026-03-20 23:00", "2026-03-21 01:00")], books)
    assert [segment.amount.micro for segment in followed.segments] == [830_000, 1_660_000]


def test_a_membership_counts_from_its_instant_and_the_sign_up_date_never_does() -> None:
    gained = replace(terms(), members=(MemberChange(at("2026-03-10 12:30"), "edu"),))
    charges = charge_usages([usage("2026-03-10 12:00", "2026-03-10 13:00", priced=gained)], books_of())
    assert [segment.amount.micro for segment in charges.segments] == [830_000, 747_000]
    totals = set()
    for since in ("2024-02-29 13:14:15", "2026-03-09 23:59:59", "2026-03-10 12:00:00"):
        member = replace(terms(), members=(MemberChange(at(since), "edu"),))
        whole = usage("2026-03-10 12:00", "2026-04-11 13:00", priced=member)
        totals.add(charge_usages([whole], books_of()).total)
    assert len(totals) == 1


def test_what_a_reservation_or_package_pays_for_costs_nothing_more() -> None:
    included = replace(terms(Tariff.NO_GPU), included=True)
    charges = charge_usages([usage("2026-03-10 09:00", "2026-03-10 10:00", 8, included)], books_of())
    assert charges.total.micro == 0
    assert charges.segments[0].rate == 0


@pytest.mark.parametrize(("cards", "share"), [(1, "0.3"), (2, "0.15"), (3, "0.1"), (8, "0.0375")])
def test_no_gpu_costs_30_percent_of_one_card_whatever_the_instance_has(cards: int, share: str) -> None:
    hour = ("2026-03-10 09:00", "2026-03-10 10:00", cards)
    without = charge_usages([usage(*hour, terms(Tariff.NO_GPU))], books_of()).total
    assert Fraction(without.micro, charge_usages([usage(*hour)], books_of()).total.micro) == Fraction(share)


def test_a_tariff_change_goes_on_with_the_same_running_total() -> None:
    parts = [usage("2026-03-10 09:00:00", "2026-03-10 09:00:07", 7, terms(Tariff.IDLE, "rtx3090"))]
    parts.append(usage("2026-03-10 09:00:07", "2026-03-10 09:00:20", 7, terms(Tariff.SPOT, "rtx3090")))
    charges = charge_usages(parts[::-1], books_of())
    exact = sum((segment.exact for segment in charges.segments), Fraction(0))
    assert charges.total.micro == charges.running.charged.micro == int(exact)


def test_usages_that_overlap_or_belong_to_others_are_refused() -> None:
    first = usage("2026-03-10 09:00", "2026-03-10 10:00")
    with pytest.raises(Invalid, match="start"):
        charge_usages([first, usage("2026-03-10 09:59:59", "2026-03-10 11:00")], books_of())
    with pytest.raises(Invalid, match="several subjects"):
        charge_usages([first, replace(first, subject=Subject(SubjectKind.DISK, "d"))], books_of())
    with pytest.raises(Invalid, match="cards"):
        replace(first, cards=0)
    with pytest.raises(Invalid, match="whole second"):
        usage("2026-03-10 09:00:00.5", "2026-03-10 10:00")


def test_a_running_total_survives_storage_and_never_goes_back() -> None:
    total, amount = RunningTotal().add(Fraction(2, 3))
    assert amount.micro == 0
    restored = RunningTotal(int(str(total.numerator)), int(str(total.denominator)))
    assert restored.add(Fraction(1, 3))[1].micro == 1
    with pytest.raises(InvariantBroken):
        total.add(Fraction(-1))


def test_a_tariff_the_book_does_not_sell_is_refused_with_those_it_does() -> None:
    books = books_of(edited_book(('  idle:      {of: spot, factor: "0.90"}\n', "")))
    with pytest.raises(Invalid, match=r"idle.*on_demand, spot, reserved"):
        rate_at(terms(Tariff.IDLE), at(DAY), books)
