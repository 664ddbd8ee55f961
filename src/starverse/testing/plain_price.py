"""What a span should cost, by the shortest reading of pricing.md, without any code of ``domain``.

Slow and simple on purpose: the simulation compares the product's charges with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
