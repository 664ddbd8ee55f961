"""Disks cost the price of a GiB-month for each local calendar month, whatever its length, to the second."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from starverse.domain.disk_kind import DiskKind
from starverse.domain.errors import Invalid
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.storage import DiskUsage, charge_disk, free_gib_shares
from starverse.domain.timespan import Timespan
from starverse.testing.pricing import books_of, edited_book, span


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "Asia/Kolkata", "America/St_Johns"])
@pytest.mark.parametrize("month", range(4, 13))
def test_a_month_costs_the_price_and_is_the_sum_of_its_days(zone: str, month: int) -> None:
    books = PriceBooks([edited_book(("Asia/Shanghai", zone))])
    days = [datetime(2026, month, day, tzinfo=ZoneInfo(zone)) for day in range(1, 29)]
    end = datetime(2026 + month // 12, month % 12 + 1, 1, tzinfo=ZoneInfo(zone))
    usages = [
        DiskUsage(Timespan(a, b), DiskKind.BLOCK, 60, free_gib=50)
        for a, b in zip(days, [*days[1:], end], strict=True)
    ]
    segments, running = charge_disk(usages, books)
    assert running.charged.micro == 3_000_000
    assert sum(segment.amount.micro for segment in segments) == 3_000_000


def test_prices_by_kind_resizes_and_versions() -> None:
    dearer = edited_book(
        ("2026-03-01", "2026-04-16"), ('shared_gib_month: "0.20"', 'shared_gib_month: "0.40"')
    )
    books = books_of(edited_book(), dearer)
    usages = [
        DiskUsage(span("2026-04-01 00:00", "2026-04-11 00:00"), DiskKind.SHARED, 30),
        DiskUsage(span("2026-04-11 00:00", "2026-05-01 00:00"), DiskKind.SHARED, 60),
    ]
    segments, running = charge_disk(usages, books)
    assert [segment.amount.micro for segment in segments] == [2_000_000, 2_000_000, 12_000_000]
    assert running.charged.micro == 16_000_000


def test_free_gib_fall_to_disks_in_order_of_id() -> None:
    assert free_gib_shares(edited_book(), [("c", 100), ("a", 20), ("b", 40)]) == {"a": 20, "b": 30, "c": 0}
    free = DiskUsage(span("2026-04-01 00:00", "2026-05-01 00:00"), DiskKind.SHARED, 20, free_gib=20)
    assert charge_disk([free], books_of())[1].charged.micro == 0


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(Invalid, match="gib"):
        charge_disk([DiskUsage(span("2026-04-01 00:00", "2026-05-01 00:00"), DiskKind.BLOCK, -1)], books_of())
