"""Any split, cadence or order, repeated or late events: the same total, the floor of the exact sum."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.pricing.curve import Coverage, RateCurve
from starverse.domain.pricing.holds import hourly_hold
from starverse.domain.pricing.price_book import PriceBook, PriceBooks
from starverse.domain.pricing.rating import (
    ClearedPrice,
    MemberChange,
    RunningTotal,
    Terms,
    Usage,
    charge_usages,
    rate_at,
)
from starverse.domain.pricing.windows import epoch_second, instant_of
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan
from starverse.testing.pricing import SUBJECT, at, edited_book, split

ZONES = ["Asia/Shanghai", "America/St_Johns", "Australia/Lord_Howe", "Europe/Berlin"]
FIRST = at("2026-03-03 00:00")
DAYS = 20


def _books(zone: str) -> PriceBooks:
    """Two versions whose zone, night, factors and prices differ and divide badly."""
    first = edited_book(("Asia/Shanghai", zone), ('factor: "0.50"}\ntariffs', 'factor: "0.333333"}\ntariffs'))
    second = edited_book(
        ("2026-03-01T00:00:00", "2026-03-12T05:17:33"),
        ("Asia/Shanghai", zone),
        ('"1.66"', '"1.777777"'),
        ('"23:00"', '"21:30"'),
        ('edu: {factor: "0.90"}', 'edu: {factor: "0.71"}'),
    )
    return PriceBooks([first, second])


BOOKS = {zone: _books(zone) for zone in ZONES}
instants = st.integers(0, DAYS * 86_400).map(lambda second: FIRST + timedelta(seconds=second))


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    seconds = draw(st.integers(1, 6 * 86_400))
    start = draw(instants)
    tariff = draw(
        st.sampled_from([Tariff.ON_DEMAND, Tariff.SPOT, Tariff.IDLE, Tariff.NO_GPU, Tariff.RESERVED])
    )
    members = tuple(
        MemberChange(since, draw(st.sampled_from(["edu", None])))
        for since in draw(st.lists(instants, max_size=3))
    )
    cleared = tuple(
        ClearedPrice(since, draw(st.fractions(0, 3_000_000, max_denominator=997)))
        for since in draw(st.lists(instants, max_size=3))
    )
    terms = Terms(
        tariff,
        draw(st.sampled_from(["rtx4090", "rtx3090", "a100-40g"])),
        draw(st.sampled_from(["ib", "eth"])),
        members=members,
        booked_at=FIRST - timedelta(days=1) if tariff is Tariff.RESERVED else None,
        booked_start=start if tariff is Tariff.RESERVED else None,
        cleared=cleared,
        bid=draw(st.none() | st.just(Fraction(1_234_567, 3))),
    )
    return Usage(
        SUBJECT, Timespan(start, start + timedelta(seconds=seconds)), draw(st.integers(1, 64)), terms
    )


@settings(max_examples=80, deadline=None)
@given(usages(), st.sampled_from(ZONES), st.lists(instants, max_size=12), st.randoms(use_true_random=False))
def test_any_split_in_any_order_gives_the_same_total(
    whole: Usage, zone: str, cuts: list[datetime], order: object
) -> None:
    books = BOOKS[zone]
    expected = charge_usages([whole], books)
    exact = sum((segment.exact for segment in expected.segments), Fraction(0))
    assert expected.total.micro == exact.numerator // exact.denominator
    parts = split(whole, cuts)
    order.shuffle(parts)  # type: ignore[attr-defined]
    running, charged = RunningTotal(), 0
    for part in parts:
        charges = charge_usages([part], books, running)
        running = RunningTotal(charges.running.numerator, charges.running.denominator)
        charged += charges.total.micro
    assert charged == expected.total.micro == running.charged.micro


@settings(max_examples=80, deadline=None)
@given(usages(), st.sampled_from(ZONES))
def test_segments_tile_the_usage_to_the_second_and_their_rates_hold_throughout(
    whole: Usage, zone: str
) -> None:
    segments = charge_usages([whole], BOOKS[zone]).segments
    assert segments[0].span.start == whole.span.start
    assert segments[-1].span.end == whole.span.end
    assert all(a.span.end == b.span.start for a, b in pairwise(segments))
    assert sum(segment.span.seconds for segment in segments) == whole.span.seconds
    for segment in segments:
        for instant in (segment.span.start, segment.span.end - timedelta(seconds=1)):
            assert rate_at(whole.terms, instant, BOOKS[zone])[0] == segment.rate


@settings(max_examples=80, deadline=None)
@given(usages(), st.sampled_from(ZONES))
def test_no_rate_is_below_the_floor_or_above_list(whole: Usage, zone: str) -> None:
    for segment in charge_usages([whole], BOOKS[zone]).segments:
        book: PriceBook = BOOKS[zone].at(whole.terms.booked_at or segment.span.start)
        list_price = book.list_price_of(whole.terms.model, whole.terms.fabric).micro
        assert segment.rate <= list_price
        if whole.terms.tariff is not Tariff.NO_GPU:
            assert segment.rate >= book.floor_share * list_price


@settings(max_examples=60, deadline=None)
@given(
    usages(),
    st.sampled_from(ZONES),
    st.lists(st.tuples(st.integers(0, 8640), st.integers(1, 500)), max_size=40),
)
def test_shuffled_repeated_and_late_events_cost_what_the_seconds_they_cover_cost(
    whole: Usage, zone: str, events: list[tuple[int, int]]
) -> None:
    books = BOOKS[zone]
    curve = RateCurve(whole.terms, whole.span, books)
    start, end = epoch_second(whole.span.start), epoch_second(whole.span.end)
    coverage, numerator = Coverage.empty(), 0
    seconds: set[int] = set()
    for offset, length in events:
        begins, ends = min(end, start + offset), min(end, start + offset + length)
        seconds.update(range(begins, ends))
        numerator += sum(curve.numerator(a, b) for a, b in coverage.add(begins, ends))
    assert coverage.seconds == len(seconds)
    counted = whole.cards if curve.per_card else 1
    parts = [
        replace(whole, span=Timespan(instant_of(a), instant_of(b)))
        for a, b in zip(coverage.bounds[::2], coverage.bounds[1::2], strict=True)
    ]
    assert numerator * counted // curve.denominator == charge_usages(parts, books).total.micro


@settings(max_examples=60, deadline=None)
@given(usages(), st.sampled_from(ZONES), instants)
def test_the_growth_of_the_total_over_an_hour_fits_its_hold(whole: Usage, zone: str, start: datetime) -> None:
    if whole.terms.tariff is Tariff.RESERVED:
        start = max(start, whole.span.start)
    before = charge_usages([whole], BOOKS[zone]).running
    hour = replace(whole, span=Timespan(start, start + timedelta(hours=1)))
    growth = charge_usages([hour], BOOKS[zone], before).total
    assert growth <= hourly_hold(whole.terms, whole.cards, start, BOOKS[zone])
