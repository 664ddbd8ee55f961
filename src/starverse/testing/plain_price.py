"""What a span should cost, by the shortest reading of pricing.md, without any code of ``domain``.

Slow and simple on purpose: the simulation compares the product's charges with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import yaml


@dataclass(frozen=True, slots=True)
class PlainBook:
    """One version: from when it is in effect, and its text as read."""

    since: datetime
    raw: Mapping[str, Any]

    @classmethod
    def read(cls, since: datetime, text: str) -> PlainBook:
        return cls(since, _parsed(text))


@dataclass(frozen=True, slots=True)
class PlainUsage:
    """So many cards of a pool over whole seconds; ``members``: (since, class or ``None``), oldest first."""

    start: datetime
    end: datetime
    cards: int
    tariff: str
    model: str
    fabric: str
    members: tuple[tuple[datetime, str | None], ...] = ()


@lru_cache(maxsize=256)
def _parsed(text: str) -> Mapping[str, Any]:
    raw: Mapping[str, Any] = yaml.safe_load(text)
    return raw


def plain_cost(usage: PlainUsage, books: Sequence[PlainBook]) -> int:
    """Micro-yuan, rounded down once."""
    edges = {usage.start, usage.end, *(book.since for book in books), *(since for since, _ in usage.members)}
    for book in books:
        edges |= _window_edges(book, usage.start, usage.end)
    inside = sorted(edge for edge in edges if usage.start <= edge <= usage.end)
    exact = Fraction(0)
    for start, end in pairwise(inside):
        seconds = Fraction((end - start) // timedelta(microseconds=1), 1_000_000)
        exact += _rate(usage, start, books) * usage.cards * seconds / 3600
    return exact.numerator // exact.denominator


def in_window(book: PlainBook, name: str, instant: datetime) -> bool:
    """Whether the wall clock of the book's zone lies in the window, which may wrap midnight."""
    first, last = _bounds(book, name)
    wall = instant.astimezone(ZoneInfo(book.raw["timezone"])).time()
    return first <= wall < last if first < last else wall >= first or wall < last


def book_at(books: Sequence[PlainBook], instant: datetime) -> PlainBook:
    """The version in effect."""
    return max((book for book in books if book.since <= instant), key=lambda book: book.since)


def _rate(usage: PlainUsage, instant: datetime, books: Sequence[PlainBook]) -> Fraction:
    book = book_at(books, instant)
    prices, tariff = book.raw["list_price"], book.raw["tariffs"][usage.tariff]
    listed = Fraction(prices.get(f"{usage.model}/{usage.fabric}") or prices[usage.model]) * 1_000_000
    rate = listed * Fraction(tariff["factor"])
    for name in tariff.get("windows", ()):
        if in_window(book, name, instant):
            rate *= Fraction(book.raw["windows"][name]["factor"])
    member = None
    for since, given in usage.members:
        if since <= instant:
            member = given
    if member in book.raw["members"]:
        rate *= Fraction(book.raw["members"][member]["factor"])
    return max(rate, listed * Fraction(book.raw["floor_share"]))


def _window_edges(book: PlainBook, start: datetime, end: datetime) -> set[datetime]:
    zone = ZoneInfo(book.raw["timezone"])
    day: date = start.astimezone(zone).date() - timedelta(days=1)
    edges = set()
    while day <= end.astimezone(zone).date() + timedelta(days=1):
        for name in book.raw["windows"]:
            edges |= {datetime.combine(day, at, zone).astimezone(UTC) for at in _bounds(book, name)}
        day += timedelta(days=1)
    return edges


def _bounds(book: PlainBook, name: str) -> tuple[time, time]:
    window = book.raw["windows"][name]
    return time.fromisoformat(window["from"]), time.fromisoformat(window["to"])


@dataclass(frozen=True, slots=True)
class PlainSize:
    """From ``since`` on a disk has so many GiB; 0: none."""

    disk_id: str
    kind: str
    since: datetime
    gib: int


def plain_disk_costs(
    sizes: Sequence[PlainSize], until: datetime, books: Sequence[PlainBook]
) -> dict[str, int]:
    """Micro-yuan of each of a team's disks up to an instant, rounded down once."""
    if not sizes:
        return {}
    first = min(size.since for size in sizes)
    edges = {first, until, *(size.since for size in sizes), *(book.since for book in books)}
    edges |= set(_month_starts(first, until, books))
    inside = sorted(edge for edge in edges if first <= edge <= until)
    exact = {size.disk_id: Fraction(0) for size in sizes}
    for start, end in pairwise(inside):
        storage = book_at(books, start).raw["storage"]
        left = int(storage["free_gib"])
        for disk_id in sorted(exact):
            own = [size for size in sizes if size.disk_id == disk_id and size.since <= start]
            size = max(own, key=lambda size: size.since, default=None)
            if size is None or size.gib == 0:
                continue
            free = min(left, size.gib)
            left -= free
            price = Fraction(str(storage[f"{size.kind}_gib_month"])) * 1_000_000
            exact[disk_id] += (
                price
                * (size.gib - free)
                * int((end - start).total_seconds())
                / _month(start, book_at(books, start))
            )
    return {disk_id: amount.numerator // amount.denominator for disk_id, amount in exact.items()}


def _month_starts(first: datetime, until: datetime, books: Sequence[PlainBook]) -> Iterator[datetime]:
    for book in books:
        zone = ZoneInfo(book.raw["timezone"])
        local = first.astimezone(zone)
        year, month = local.year, local.month
        while True:
            start = datetime(year, month, 1, tzinfo=zone).astimezone(UTC)
            if start > until:
                break
            yield start
            year, month = year + month // 12, month % 12 + 1


def _month(instant: datetime, book: PlainBook) -> int:
    """Seconds of the local month that an instant lies in."""
    zone = ZoneInfo(book.raw["timezone"])
    local = instant.astimezone(zone)
    start = datetime(local.year, local.month, 1, tzinfo=zone).astimezone(UTC)
    end = datetime(local.year + local.month // 12, local.month % 12 + 1, 1, tzinfo=zone).astimezone(UTC)
    return int((end - start).total_seconds())
