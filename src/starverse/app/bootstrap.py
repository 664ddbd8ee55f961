"""What an installation needs before anyone can use it; run at every start, changes only what is missing."""

from __future__ import annotations

from starverse.app.platform import Platform
from starverse.db import ledger, price_books
from starverse.db.price_books import StoredBook
from starverse.domain.ids import PriceBookId
from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book_text


def prepare(platform: Platform) -> None:
    """The platform's own ledger accounts, and the shipped price book where there is none."""
    with platform.database.write() as connection:
        now = platform.clock.now()
        ledger.open_platform_accounts(connection, now)
        if price_books.count(connection) == 0:
            text = shipped_price_book_text()
            effective_from = load_price_book(text).effective_from
            book = StoredBook(PriceBookId(platform.ids.uuid7()), effective_from, text, now)
            price_books.add(connection, book)
