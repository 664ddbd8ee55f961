"""Price-book versions as operators publish them: dated, immutable, refused whole when malformed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import accounts, price_books
from starverse.db.events import Event, record
from starverse.db.price_books import StoredBook
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound
from starverse.domain.ids import PriceBookId
from starverse.domain.pricing.price_book_yaml import load_price_book
from starverse.domain.timespan import format_instant


@dataclass(frozen=True, slots=True)
class BookView:
    """One version. ``in_effect``: it is the one of now. ``created_by`` ``None``: it came with the product.

    ``warnings`` says what is legal but odd.
    """

    id: str
    effective_from: datetime
    created_at: datetime
    created_by: str | None
    in_effect: bool
    warnings: tuple[str, ...]
    yaml: str


def list_price_books(platform: Platform) -> tuple[BookView, ...]:
    """All versions, newest first."""
    with platform.database.read() as connection:
        return tuple(reversed(_views(connection, platform.clock.now())))


def get_price_book(platform: Platform, book_id: str) -> BookView:
    """One version with its text."""
    for view in list_price_books(platform):
        if view.id == book_id:
            return view
    raise NotFound(f"There is no price book {book_id[:80]!r}.")


def add_price_book(platform: Platform, identity: Identity, text: str, once: Once | None = None) -> BookView:
    """Publish a version. It takes effect in the future only, so that nothing used so far changes its price.

    Raises :class:`Invalid` with every fault of the text; the version in effect stays.
    """
    book = load_price_book(text)
    book_id = PriceBookId(platform.ids.uuid7())
    try:
        with platform.database.write() as connection:
            now = platform.clock.now()
            earlier = claim(connection, identity.account_id, once, book_id, now)
            if earlier is None:
                if book.effective_from <= now:
                    given = format_instant(book.effective_from)
                    fault = FieldFault("effective_from", given, f"a time after now, {format_instant(now)}")
                    raise Invalid(faults=[fault])
                stored = StoredBook(book_id, book.effective_from, text, now, identity.account_id)
                price_books.add(connection, stored)
                message = f"in effect from {format_instant(book.effective_from)}"
                event = Event(
                    now, "price_book", book_id, "added", "", message, account_id=identity.account_id
                )
                record(connection, event)
            wanted = earlier or book_id
            return next(view for view in _views(connection, now) if view.id == wanted)
    except IntegrityError as error:
        at = format_instant(book.effective_from)
        raise Conflict(f"A version takes effect at {at} already; choose another instant.") from error


def _views(connection: Connection, now: datetime) -> list[BookView]:
    stored = price_books.versions(connection)
    current = max((book.effective_from for book in stored if book.effective_from <= now), default=None)
    return [
        BookView(
            id=book.id,
            effective_from=book.effective_from,
            created_at=book.created_at,
            created_by=_email(connection, book),
            in_effect=book.effective_from == current,
            warnings=load_price_book(book.content).warnings,
            yaml=book.content,
        )
        for book in stored
    ]


def _email(connection: Connection, book: StoredBook) -> str | None:
    account = None if book.created_by is None else accounts.get_account(connection, book.created_by)
    return None if account is None else account.email
