"""When a named window of the price book is open, over all versions of the book: where night jobs may run.

A window that a later version moves, opens or drops is moved, opened or dropped from the instant on at which
that version takes effect (pricing.md, Versions).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.windows import epoch_second, instant_of, window_pieces
from starverse.domain.timespan import Timespan, floor_to_second

_STRIDE = timedelta(days=7)
_REACH = timedelta(days=400)
"""Further ahead nobody looks: a window that stays closed so long is closed."""


def open_spans(books: PriceBooks, name: str, since: datetime) -> Iterator[Timespan]:
    """The spans in which the window holds, from an instant on (its fraction of a second is dropped).

    Neighbours are whole: a span that ends is followed by time outside, or by the end of what is looked at.
    """
    begins = floor_to_second(since)
    end = begins + _REACH
    kept: Timespan | None = None
    while begins < end:
        for piece in _pieces(books, name, Timespan(begins, begins + _STRIDE)):
            if kept is not None and kept.end == piece.start:
                kept = Timespan(kept.start, piece.end)
                continue
            if kept is not None:
                yield kept
            kept = piece
        begins += _STRIDE
        if kept is not None and kept.end < begins:
            yield kept
            kept = None
    if kept is not None:
        yield kept


def window_end(books: PriceBooks, name: str, instant: datetime) -> datetime | None:
    """When the window that holds at an instant ends; ``None`` when it does not hold there or is unknown."""
    first = next(open_spans(books, name, instant), None)
    return first.end if first is not None and first.start == floor_to_second(instant) else None


def window_opening(books: PriceBooks, name: str, instant: datetime) -> datetime | None:
    """When a window opens next, strictly after an instant; ``None`` where it never does."""
    spans = open_spans(books, name, instant)
    return next((span.start for span in spans if span.start > instant), None)


def seconds_left(books: PriceBooks, name: str, start: datetime) -> int:
    """Whole seconds from a start to the end of the window; 0 when it does not hold there."""
    end = window_end(books, name, start)
    return 0 if end is None else int((end - start).total_seconds())


def window_edges_of_all(books: PriceBooks, span: Timespan) -> list[datetime]:
    """Where any window opens or closes and where a version takes over, strictly inside the span."""
    edges = books.edges(span.start, span.end)
    found = list(edges)
    for part in span.split_at(edges):
        book = books.at(part.start)
        for window in book.windows.values():
            start, end = epoch_second(part.start), epoch_second(part.end)
            found += [instant_of(at) for at, _, _ in window_pieces((window,), start, end, book.timezone)[1:]]
    return found


def _pieces(books: PriceBooks, name: str, span: Timespan) -> Iterator[Timespan]:
    for part in span.split_at(books.edges(span.start, span.end)):
        book = books.at(part.start)
        window = book.windows.get(name)
        if window is None:
            continue
        start, end = epoch_second(part.start), epoch_second(part.end)
        for begins, ends, held in window_pieces((window,), start, end, book.timezone):
            if held is not None:
                yield Timespan(instant_of(begins), instant_of(ends))
