"""The fast path agrees with rating; seconds metered twice or late are counted once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from starverse.domain.errors import Invalid
from starverse.domain.pricing.curve import Coverage, RateCurve
from starverse.domain.pricing.rating import charge_usages
from starverse.domain.pricing.windows import epoch_second
from starverse.domain.tariff import Tariff
from starverse.testing.pricing import books_of, edited_book, span, terms, usage

HORIZON = span("2026-03-09 00:00", "2026-03-16 00:00")


def test_many_spans_at_once_agree_with_one_by_one_and_with_rating() -> None:
    curve = RateCurve(replace(terms(), member="edu"), HORIZON, books_of())
    first = epoch_second(HORIZON.start)
    starts = np.arange(first, first + 6 * 86_400, 4_321, dtype=np.int64)
    ends = starts + np.arange(starts.size, dtype=np.int64) * 271 + 1
    together = curve.numerators(starts, ends)
    assert together.tolist() == [curve.numerator(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
    whole = usage("2026-03-09 22:59:47", "2026-03-11 08:00:13", 5, replace(terms(), member="edu"))
    bounds = epoch_second(whole.span.start), epoch_second(whole.span.end)
    assert curve.amount(*bounds, cards=5) == charge_usages([whole], books_of()).total


def test_no_gpu_counts_one_card_whatever_the_instance_has() -> None:
    curve = RateCurve(terms(Tariff.NO_GPU), HORIZON, books_of())
    start = epoch_second(HORIZON.start)
    assert not curve.per_card
    assert curve.amount(start, start + 3_600, cards=8).micro == 498_000


def test_outside_its_horizon_a_curve_refuses_and_packages_have_none() -> None:
    curve = RateCurve(terms(), HORIZON, books_of())
    start, end = epoch_second(HORIZON.start), epoch_second(HORIZON.end)
    for outside in ((start - 1, end), (start, end + 1)):
        with pytest.raises(ValueError, match="outside the horizon"):
            curve.numerator(*outside)
        with pytest.raises(ValueError, match="outside the horizon"):
            curve.numerators(np.array(outside[:1]), np.array(outside[1:]))
    with pytest.raises(Invalid, match="packages are priced whole"):
        RateCurve(terms(Tariff.MONTH), HORIZON, books_of())


def test_where_64_bits_do_not_hold_the_integral_arrays_refuse_and_integers_go_on() -> None:
    odd = edited_book(
        ('"1.66"', '"1.666661"'),
        (
            'night: {from: "23:00", to: "08:00", factor: "0.50"}',
            'night: {from: "23:00", to: "08:00", factor: "0.333333"}',
        ),
        ('edu: {factor: "0.90"}', 'edu: {factor: "0.999999"}'),
    )
    curve = RateCurve(replace(terms(), member="edu"), HORIZON, books_of(odd))
    start, end = epoch_second(HORIZON.start), epoch_second(HORIZON.end)
    with pytest.raises(OverflowError):
        curve.numerators(np.array([start]), np.array([end]))
    whole = replace(usage("2026-03-09 00:00", "2026-03-16 00:00"), terms=replace(terms(), member="edu"))
    assert curve.amount(start, end, 1) == charge_usages([whole], books_of(odd)).total


COVERED = [
    ("the meter goes on", [(0, 10), (10, 20)], [(10, 20)], [0, 20]),
    ("a repeated minute", [(0, 60), (0, 60)], [], [0, 60]),
    ("a late minute before", [(60, 120), (0, 60)], [(0, 60)], [0, 120]),
    ("a gap filled", [(0, 10), (20, 30), (10, 20)], [(10, 20)], [0, 30]),
    ("over several parts", [(0, 10), (20, 30), (40, 50), (5, 45)], [(10, 20), (30, 40)], [0, 50]),
    ("around everything", [(10, 20), (30, 40), (0, 50)], [(0, 10), (20, 30), (40, 50)], [0, 50]),
    ("inside one part", [(0, 50), (10, 20)], [], [0, 50]),
    ("nothing", [(0, 10), (5, 5)], [], [0, 10]),
]


@pytest.mark.parametrize(("adds", "fresh", "bounds"), [c[1:] for c in COVERED], ids=[c[0] for c in COVERED])
def test_covered_seconds(
    adds: list[tuple[int, int]], fresh: list[tuple[int, int]], bounds: list[int]
) -> None:
    coverage = Coverage.empty()
    last = [coverage.add(start, end) for start, end in adds][-1]
    assert (last, coverage.bounds) == (fresh, bounds)
    assert coverage.seconds == sum(b - a for a, b in zip(bounds[::2], bounds[1::2], strict=True))
