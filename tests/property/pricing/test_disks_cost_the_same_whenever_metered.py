"""A team's disks share its free GiB: what each costs depends on their sizes over time alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from starverse.domain.disk_kind import DiskKind
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import RunningTotal
from starverse.domain.pricing.storage import charge_disk
from starverse.domain.pricing.team_storage import SizeChange, team_usages
from starverse.testing.plain_price import PlainBook, PlainSize, plain_disk_costs
from starverse.testing.pricing import at, books_of, edited_book

START = at("2026-03-28 09:17:23")
SECONDS = 6 * 86_400
"""Over the end of a local month."""

LATER = ("2026-03-01T00:00:00+08:00", "2026-03-30T05:00:00+08:00")
CHEAPER = edited_book(
    LATER, ('shared_gib_month: "0.20"', 'shared_gib_month: "0.17"'), ("free_gib: 50", "free_gib: 35")
)
SHIPPED = edited_book()
BOOKS = {"one": books_of(SHIPPED), "two": books_of(SHIPPED, CHEAPER)}

instants = st.integers(0, SECONDS).map(lambda seconds: START + timedelta(seconds=seconds))
changes = st.lists(
    st.builds(
        SizeChange,
        disk_id=st.sampled_from(["a", "b", "c"]),
        kind=st.just(DiskKind.SHARED),
        since=instants,
        gib=st.sampled_from([0, 0, 1, 20, 49, 50, 51, 400]),
    ),
    max_size=12,
    unique_by=lambda change: (change.disk_id, change.since),
)


def metered(sizes: Sequence[SizeChange], looks: Sequence[datetime], books: PriceBooks) -> dict[str, int]:
    """What each disk was charged by a meter that looked at these instants."""
    running: dict[str, RunningTotal] = {}
    until: dict[str, datetime] = {}
    for look in sorted(looks):
        known = [change for change in sizes if change.since <= look]
        for disk_id, usages in team_usages(known, until, look, books).items():
            _, running[disk_id] = charge_disk(usages, books, running.get(disk_id))
            until[disk_id] = look
    return {disk_id: total.charged.micro for disk_id, total in running.items() if total.charged.micro}


@given(changes, st.lists(instants, max_size=8), st.sampled_from(sorted(BOOKS)))
def test_the_total_is_that_of_the_plain_rule_however_often_it_was_looked_at(
    sizes: list[SizeChange], looks: list[datetime], which: str
) -> None:
    end = START + timedelta(seconds=SECONDS)
    books = BOOKS[which]
    plain = [PlainSize(c.disk_id, c.kind.value, c.since, c.gib) for c in sizes]
    versions = [PlainBook(book.effective_from, raw_of(book.effective_from)) for book in books.versions]
    right = {key: cost for key, cost in plain_disk_costs(plain, end, versions).items() if cost}
    assert metered(sizes, [end], books) == right
    assert metered(sizes, [*looks, end], books) == right


def raw_of(since: datetime) -> dict[str, object]:
    """The part of a version that is about storage, as typed."""
    later = since > START
    return {
        "timezone": "Asia/Shanghai",
        "storage": {
            "shared_gib_month": "0.17" if later else "0.20",
            "block_gib_month": "0.30",
            "free_gib": 35 if later else 50,
        },
    }
