"""Builders for tests of prices: usages, books and instants with defaults (the shipped book, one RTX 4090)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from starverse.domain.pricing.price_book import PriceBook, PriceBooks
from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book_text
from starverse.domain.pricing.rating import Subject, SubjectKind, Terms, Usage
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan, parse_instant

SUBJECT = Subject(SubjectKind.ALLOCATION, "01999999-0000-7000-8000-000000000001")


def at(text: str) -> datetime:
    """An instant written without its offset is in +08:00: ``2026-03-10 10:00`` or ``2026-03-10 10:00:05``."""
    return parse_instant(text if text.endswith("Z") or "+" in text else f"{text}+08:00")


def span(start: str, end: str) -> Timespan:
    """A span of two instants written as for ``at``."""
    return Timespan(at(start), at(end))


def edited_book(*edits: tuple[str, str]) -> PriceBook:
    """The shipped book with pieces of its text replaced; each piece has to be there."""
    text = shipped_price_book_text()
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{old!r} is not in the shipped price book")
        text = text.replace(old, new)
    return load_price_book(text)


def books_of(*versions: PriceBook) -> PriceBooks:
    """A series of versions; the shipped one where none is given."""
    return PriceBooks(versions or [edited_book()])


def terms(tariff: Tariff = Tariff.ON_DEMAND, model: str = "rtx4090", fabric: str = "eth") -> Terms:
    """Terms without membership."""
    return Terms(tariff, model, fabric, booked_start=at("2026-03-20 00:00") if tariff == "reserved" else None)


def usage(start: str, end: str, cards: int = 1, priced: Terms | None = None) -> Usage:
    """A usage of ``SUBJECT``; on demand on ``rtx4090`` by default."""
    return Usage(SUBJECT, span(start, end), cards, priced or terms())


def split(whole: Usage, instants: list[datetime]) -> list[Usage]:
    """The same usage, closed by the meter at each of ``instants`` that lies inside."""
    return [replace(whole, span=part) for part in whole.span.split_at(instants)]
