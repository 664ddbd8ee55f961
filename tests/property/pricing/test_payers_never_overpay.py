"""Whatever the wallet: parts add up, no source goes below zero, coupons keep to their share."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.money import Money
from starverse.domain.pricing.paying import (
    Coupon,
    Credit,
    Piece,
    SourceKind,
    Sources,
    pay,
    pay_edges,
)
from starverse.testing.pricing import at

FIRST = at("2026-03-10 00:00")
minutes = st.integers(0, 600).map(lambda minute: FIRST + timedelta(minutes=minute))
amounts = st.integers(0, 5_000).map(Money)
shares = st.sampled_from([Fraction(3, 10), Fraction(1, 3), Fraction(1), Fraction(0)])


@st.composite
def wallets(draw: st.DrawFn, fixed: bool = False) -> Sources:
    """Any wallet; ``fixed``: its coupons were redeemed before everything and never expire."""
    coupons = []
    for index in range(draw(st.integers(0, 4))):
        redeemed = FIRST if fixed else draw(minutes)
        expires = None if fixed else draw(st.none() | minutes)
        coupons.append(Coupon(f"c{index}", draw(amounts), redeemed, expires))
    credits_ = [
        Credit(f"g{index}", draw(amounts), None if fixed else draw(st.none() | minutes))
        for index in range(draw(st.integers(0, 3)))
    ]
    return Sources(tuple(coupons), tuple(credits_), draw(st.none() | amounts))


def cut(sources: Sources, ends: list[datetime], growth_per_minute: int) -> list[Piece]:
    """Usage from 00:00 to 10:00, split at the paying edges and at ``ends``."""
    stop = FIRST + timedelta(minutes=600)
    bounds = sorted({FIRST, stop, *(edge for edge in (*pay_edges(sources), *ends) if FIRST < edge < stop)})
    return [
        Piece(a, b, Money((b - a) // timedelta(minutes=1) * growth_per_minute)) for a, b in pairwise(bounds)
    ]


def _left(sources: Sources) -> list[Money]:
    return [coupon.left for coupon in sources.coupons] + [credit.left for credit in sources.credits]


@settings(max_examples=150, deadline=None)
@given(wallets(), shares, st.lists(minutes, max_size=6), st.integers(0, 40))
def test_parts_and_what_is_missing_add_up_and_nothing_goes_below_zero(
    sources: Sources, share: Fraction, ends: list[datetime], growth: int
) -> None:
    pieces = cut(sources, ends, growth)
    payment = pay(pieces, sources, share)
    total = sum(piece.growth.micro for piece in pieces)
    assert sum(part.amount.micro for part in payment.parts) + payment.missing.micro == total
    assert all(part.amount.micro > 0 for part in payment.parts)
    left = _left(payment.sources)
    assert all(money >= Money(0) for money in left)
    before = sum(money.micro for money in _left(sources))
    given_up = payment.amount_of(SourceKind.COUPON) + payment.amount_of(SourceKind.CREDIT)
    assert before - sum(money.micro for money in left) == given_up.micro
    if sources.cash is not None:
        assert payment.sources.cash == sources.cash - payment.amount_of(SourceKind.CASH)
        assert payment.sources.cash >= Money(0)
    else:
        assert payment.missing == Money(0)


@settings(max_examples=150, deadline=None)
@given(wallets(), shares, st.lists(minutes, max_size=6), st.integers(0, 40))
def test_coupons_pay_at_most_their_share_of_what_came_after_each_and_before_its_expiry(
    sources: Sources, share: Fraction, ends: list[datetime], growth: int
) -> None:
    pieces = cut(sources, ends, growth)
    parts = {part.id: part.amount.micro for part in pay(pieces, sources, share).parts}
    for coupon in sources.coupons:
        held = [
            piece.growth.micro
            for piece in pieces
            if coupon.redeemed_at <= piece.start
            and (coupon.expires_at is None or piece.end <= coupon.expires_at)
        ]
        assert parts.get(coupon.id, 0) <= share * sum(held)
        later = [other for other in sources.coupons if other.redeemed_at >= coupon.redeemed_at]
        after = sum(piece.growth.micro for piece in pieces if piece.start >= coupon.redeemed_at)
        assert sum(parts.get(other.id, 0) for other in later) <= share * after


@settings(max_examples=100, deadline=None)
@given(wallets(fixed=True), shares, st.lists(minutes, max_size=8), st.integers(0, 40))
def test_who_pays_does_not_depend_on_how_often_the_meter_ran(
    sources: Sources, share: Fraction, ends: list[datetime], growth: int
) -> None:
    whole = pay(cut(sources, [], growth), sources, share)
    standing, left, paid = None, sources, dict.fromkeys(SourceKind, 0)
    for piece in cut(sources, ends, growth):
        payment = pay([piece], left, share, standing)
        standing, left = payment.subject, payment.sources
        for kind in SourceKind:
            paid[kind] += payment.amount_of(kind).micro
    assert paid == {kind: whole.amount_of(kind).micro for kind in SourceKind}
    assert left == whole.sources
