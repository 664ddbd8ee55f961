"""Coupons, credit, cash: who pays a charge, in what order, up to what share; and where refunds go."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

import pytest

from starverse.domain.errors import InvariantBroken
from starverse.domain.money import Money
from starverse.domain.pricing.paying import (
    Coupon,
    Credit,
    HoldPeriod,
    Piece,
    SourceKind,
    Sources,
    pay,
    pay_edges,
    pay_in_order,
    statement_total,
)
from starverse.testing.pricing import at

SHARE = Fraction(3, 10)


def clock(text: str) -> datetime:
    return at(f"2026-03-10 {text}")


def piece(start: str, end: str, micro: int) -> Piece:
    return Piece(clock(start), clock(end), Money(micro))


def coupon(name: str, micro: int, redeemed: str = "00:00", expires: str | None = None) -> Coupon:
    return Coupon(name, Money(micro), clock(redeemed), clock(expires) if expires else None)


def credit(name: str, micro: int, expires: str | None = None) -> Credit:
    return Credit(name, Money(micro), clock(expires) if expires else None)


def split_of(sources: Sources, *pieces: Piece) -> tuple[dict[str, int], int]:
    payment = pay(pieces, sources, SHARE)
    return {part.id or "cash": part.amount.micro for part in payment.parts}, payment.missing.micro


HOUR = piece("10:00", "11:00", 1_000)
CASES = [
    ("cash alone", Sources(cash=Money(5_000)), [HOUR], {"cash": 1_000}, 0),
    ("cash too short", Sources(cash=Money(400)), [HOUR], {"cash": 400}, 600),
    ("nothing at all", Sources(cash=Money(0)), [HOUR], {}, 1_000),
    ("a coupon pays 30 percent", Sources((coupon("a", 900),)), [HOUR], {"a": 300, "cash": 700}, 0),
    ("a coupon pays what it has", Sources((coupon("a", 120),)), [HOUR], {"a": 120, "cash": 880}, 0),
    (
        "coupons together pay 30 percent, earliest expiry first",
        Sources((coupon("late", 900, expires="20:00"), coupon("soon", 200, expires="19:00"))),
        [HOUR],
        {"soon": 200, "late": 100, "cash": 700},
        0,
    ),
    (
        "one that never expires comes last",
        Sources((coupon("never", 900), coupon("soon", 900, expires="19:00"))),
        [HOUR],
        {"soon": 300, "cash": 700},
        0,
    ),
    (
        "credit pays what is left, earliest expiry first, then cash",
        Sources((coupon("a", 900),), (credit("gift", 500), credit("old", 100, "20:00")), Money(9_000)),
        [HOUR],
        {"a": 300, "old": 100, "gift": 500, "cash": 100},
        0,
    ),
    (
        "a coupon redeemed on the way counts from there",
        Sources((coupon("a", 900, redeemed="11:00"),)),
        [HOUR, piece("11:00", "12:00", 1_000)],
        {"a": 300, "cash": 1_700},
        0,
    ),
    (
        "a coupon pays for usage before its expiry only",
        Sources((coupon("a", 900, expires="11:00"),)),
        [HOUR, piece("11:00", "12:00", 1_000)],
        {"a": 300, "cash": 1_700},
        0,
    ),
    (
        "a piece across the expiry is not paid by it",
        Sources((coupon("a", 900, expires="10:30"),), (credit("gift", 900, "10:30"),)),
        [HOUR],
        {"cash": 1_000},
        0,
    ),
    (
        "what is paid at one instant can be paid by a coupon",
        Sources((coupon("a", 900, redeemed="10:00", expires="10:01"),)),
        [piece("10:00", "10:00", 1_000)],
        {"a": 300, "cash": 700},
        0,
    ),
    (
        "thirds of a micro-yuan add up over pieces",
        Sources((coupon("a", 900),)),
        [piece("10:00", "10:01", 1), piece("10:01", "10:02", 2), piece("10:02", "10:03", 1)],
        {"a": 1, "cash": 3},
        0,
    ),
    (
        "a later coupon does not pay for what came before it",
        Sources((coupon("first", 30, expires="20:00"), coupon("second", 900, redeemed="11:00"))),
        [HOUR, piece("11:00", "12:00", 1_000)],
        {"first": 30, "second": 300, "cash": 1_670},
        0,
    ),
    (
        "two coupons at once still pay 30 percent of what came after",
        Sources((coupon("first", 900), coupon("second", 900, redeemed="11:00"))),
        [HOUR, piece("11:00", "12:00", 1_000)],
        {"first": 600, "cash": 1_400},
        0,
    ),
]


@pytest.mark.parametrize(
    ("sources", "pieces", "parts", "missing"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_who_pays(sources: Sources, pieces: list[Piece], parts: dict[str, int], missing: int) -> None:
    assert split_of(sources, *pieces) == (parts, missing)


def test_usage_metered_late_is_still_paid_by_the_coupon_that_held_then() -> None:
    expired = Sources((coupon("a", 900, expires="11:00"),))
    first = pay([piece("11:00", "12:00", 500)], expired, SHARE)
    late = pay([HOUR], first.sources, SHARE)
    assert late.amount_of(SourceKind.COUPON).micro == 300


def test_the_subject_s_standing_makes_many_posts_equal_to_one() -> None:
    sources = Sources((coupon("a", 250),), (credit("g", 300),), Money(10_000))
    whole = pay([piece("10:00", "13:00", 1_111)], sources, SHARE)
    standing, left = None, sources
    amounts = dict.fromkeys(SourceKind, 0)
    for start, end, growth in (("10:00", "11:00", 370), ("11:00", "12:00", 371), ("12:00", "13:00", 370)):
        payment = pay([piece(start, end, growth)], left, SHARE, standing)
        standing, left = payment.subject, payment.sources
        for kind in SourceKind:
            amounts[kind] += payment.amount_of(kind).micro
    assert amounts == {kind: whole.amount_of(kind).micro for kind in SourceKind}
    assert left == whole.sources


def test_edges_are_where_what_may_pay_changes() -> None:
    sources = Sources((coupon("a", 1, "09:00", "12:00"),), (credit("g", 1, "11:00"), credit("h", 1)))
    assert pay_edges(sources) == [clock("09:00"), clock("11:00"), clock("12:00")]


def test_periods_of_several_subjects_share_a_coupon_in_order_of_end_then_id() -> None:
    periods = [
        HoldPeriod("b", clock("11:00"), (HOUR,)),
        HoldPeriod("a", clock("12:00"), (piece("11:00", "12:00", 1_000),)),
        HoldPeriod("a", clock("11:00"), (HOUR,)),
    ]
    paid = pay_in_order(periods, Sources((coupon("c", 700),)), SHARE)
    assert [(p.subject_id, p.end, payment.amount_of(SourceKind.COUPON).micro) for p, payment in paid] == [
        ("a", clock("11:00"), 300),
        ("b", clock("11:00"), 300),
        ("a", clock("12:00"), 100),
    ]


def test_a_total_that_shrinks_is_a_broken_invariant() -> None:
    with pytest.raises(InvariantBroken):
        pay([piece("10:00", "11:00", -1)], Sources(), SHARE)


@pytest.mark.parametrize(
    ("charges", "rounded", "line"),
    [((8_761,), 10_000, 1_239), ((4_999, 1), 10_000, 5_000), ((4_999,), 0, -4_999), ((), 0, 0)],
)
def test_a_statement_rounds_to_the_fen_once_half_up(
    charges: tuple[int, ...], rounded: int, line: int
) -> None:
    assert statement_total([Money(micro) for micro in charges]) == (Money(rounded), Money(line))
