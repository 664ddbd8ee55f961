"""Price-book versions as operators publish them: dated, immutable, refused whole when malformed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.idempotency import Once, claim
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import accounts, allocations, inventory, jobs, price_books
from starverse.db.events import Event, record
from starverse.db.metering import load_books
from starverse.db.price_books import StoredBook
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound
from starverse.domain.ids import PriceBookId
from starverse.domain.pricing.price_book import PriceBook
from starverse.domain.pricing.price_book_yaml import load_price_book
from starverse.domain.timespan import format_instant
from starverse.domain.workloads.states import JobState


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

    Raises :class:`Invalid` with every fault of the text, or with every model that is in use and that it
    leaves without a price; the version in effect stays.
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
                _require_prices_in_use(connection, book, now)
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


def _require_prices_in_use(connection: Connection, book: PriceBook, now: datetime) -> None:
    """What is sold and in use keeps a price: what runs could not be charged without one."""
    if not price_books.versions(connection):
        return
    versions = load_books(connection).books.versions
    sold = [v for v in versions if v.effective_from <= now][-1:] + [
        v for v in versions if v.effective_from > now
    ]
    faults = [
        FieldFault(f"list_price.{model}", "", f"a price for {model}/{fabric}: {users}")
        for (model, fabric), users in sorted(_pools_in_use(connection).items())
        if not book.sells(model, fabric) and any(version.sells(model, fabric) for version in sold)
    ]
    if faults:
        raise Invalid(faults=faults)


def _pools_in_use(connection: Connection) -> dict[tuple[str, str], str]:
    """(model, fabric) -> who needs its price: a queued job, an open allocation, else a card."""
    used: dict[tuple[str, str], str] = {}
    for job in jobs.in_state(connection, JobState.QUEUED):
        asked = job.spec.priced_resources
        if asked.card_model is not None:
            used.setdefault(
                (asked.card_model, asked.fabric or "eth"), f"job {job.display_number} waits for it"
            )
    for run in allocations.open_ones(connection):
        if run.card_model is not None:
            used.setdefault((run.card_model, run.fabric), f"allocation {run.id} holds it")
    for node in inventory.load_nodes(connection):
        for card in node.cards:
            used.setdefault((card.model, node.fabric), f"node {node.id} has such cards")
    return used


def unpriced_pools(platform: Platform) -> tuple[str, ...]:
    """Pools (``model/fabric``) of cards that are here and have no price in the book of now: nobody can rent
    them until the operator adds one."""
    with platform.database.read() as connection:
        book = load_books(connection).books.at(platform.clock.now())
        here = {(card.model, node.fabric) for node in inventory.load_nodes(connection) for card in node.cards}
    return tuple(f"{model}/{fabric}" for model, fabric in sorted(here) if not book.sells(model, fabric))


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
            warnings=_warnings_of(book.content),
            yaml=book.content,
        )
        for book in stored
    ]


@lru_cache(maxsize=64)
def _warnings_of(content: str) -> tuple[str, ...]:
    """A version never changes, and looking for what is odd in one takes most of a second."""
    return load_price_book(content).warnings


def _email(connection: Connection, book: StoredBook) -> str | None:
    account = None if book.created_by is None else accounts.get_account(connection, book.created_by)
    return None if account is None else account.email
