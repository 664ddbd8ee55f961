"""Price-book versions as text. ``db.metering.load_books`` gives them parsed, for rating."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, select

from starverse.db.tables import price_books
from starverse.domain.ids import AccountId, PriceBookId


@dataclass(frozen=True, slots=True)
class StoredBook:
    """One version; ``created_by`` ``None``: it came with the installation."""

    id: PriceBookId
    effective_from: datetime
    content: str
    created_at: datetime
    created_by: AccountId | None = None


def add(connection: Connection, book: StoredBook) -> None:
    """Raises ``IntegrityError`` when a version takes effect at the same instant."""
    connection.execute(
        insert(price_books).values(
            id=book.id,
            effective_from=book.effective_from,
            content=book.content,
            created_at=book.created_at,
            created_by=book.created_by,
        )
    )


def versions(connection: Connection) -> tuple[StoredBook, ...]:
    """All versions, oldest first."""
    rows = connection.execute(select(price_books).order_by(price_books.c.effective_from))
    return tuple(
        StoredBook(row.id, row.effective_from, row.content, row.created_at, row.created_by) for row in rows
    )


def get(connection: Connection, book_id: str) -> StoredBook | None:
    return next((book for book in versions(connection) if book.id == book_id), None)


def count(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(price_books)).scalar_one())
