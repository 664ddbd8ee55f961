"""A team's wallet as its members see it: what is there, what is held, how fast it burns, where it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from sqlalchemy import Connection

from starverse.app.disks.metering import burn_per_hour as disk_burn
from starverse.app.funding import terms_of
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.views import PAGE_ITEMS_DEFAULT, Page
from starverse.db import allocations, ledger
from starverse.db.metering import load_books
from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import LedgerAccount
from starverse.domain.ledger.transfers import StoredTransfer, TransferKind
from starverse.domain.money import Money, floor_to_micro
from starverse.domain.pricing.holds import runway_seconds
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import charged_cards, rate_at

WARN_SECONDS = ((600, "less than ten minutes"), (3600, "less than one hour"))


@dataclass(frozen=True, slots=True)
class GiftView:
    """One gift of credit or one coupon; ``expires_at`` ``None``: never."""

    id: LedgerAccountId
    label: str
    left: Money
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class WalletView:
    """``free`` is credit and cash that no hold keeps back; ``burn`` is micro-yuan an hour of what runs now;
    ``runway_seconds`` ``None``: nothing costs anything."""

    team: str
    cash: Money
    credits: tuple[GiftView, ...]
    coupons: tuple[GiftView, ...]
    held: Money
    free: Money
    burn_per_hour: Money
    runway_seconds: int | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransferView:
    """A transfer seen from one team: ``amount`` is what its wallet gained (negative: lost).

    A hold, and its return, have ``amount`` zero and ``held`` the money kept back (negative: given back).
    """

    id: str
    at: datetime
    kind: str
    purpose: str
    subject: str | None
    account: str
    amount: Money
    held: Money


def show_wallet(platform: Platform, identity: Identity) -> WalletView:
    """The wallet of the caller's team, now."""
    with platform.database.read() as connection:
        return wallet_view(connection, identity.team_id, identity.team_name, platform.clock.now())


def wallet_view(connection: Connection, team_id: TeamId, team_name: str, now: datetime) -> WalletView:
    """The same on an open connection."""
    wallet = ledger.team_wallet(connection, team_id)
    burn = burn_of(connection, team_id, load_books(connection).books, now)
    free = wallet.free(now)
    left = runway_seconds(free, wallet.held, burn)
    warnings = []
    if left is not None:
        near = next((text for seconds, text in WARN_SECONDS if left < seconds), None)
        if near is not None:
            warnings.append(f"the money lasts {near} at the present burn; top up or stop something")
    return WalletView(
        team=team_name,
        cash=wallet.cash.balance,
        credits=tuple(_gift(a) for a in wallet.credits_at(now) if a.balance),
        coupons=tuple(_gift(a) for a in wallet.coupons_at(now) if a.balance),
        held=wallet.held,
        free=free,
        burn_per_hour=floor_to_micro(burn),
        runway_seconds=left,
        warnings=tuple(warnings),
    )


def burn_of(connection: Connection, team_id: TeamId, books: PriceBooks, now: datetime) -> Fraction:
    """Micro-yuan an hour that the team's running allocations and its disks cost at this instant."""
    burn = disk_burn(connection, team_id, books, now)
    for allocation in allocations.open_ones(connection):
        if allocation.team_id == team_id and allocation.card_model is not None:
            terms = terms_of(connection, allocation)
            rate, _ = rate_at(terms, now, books)
            burn += rate * charged_cards(terms, allocation.cards_priced, books.at(now))
    return burn


def list_transfers(
    platform: Platform, identity: Identity, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[TransferView]:
    """Everything that moved in the team's wallet, newest first."""
    before = _sequence(cursor)
    with platform.database.read() as connection:
        wallet = ledger.team_wallet(connection, identity.team_id)
        own = {a.id: a for a in (wallet.cash, *wallet.credits, *wallet.coupons)}
        found = ledger.history(connection, own, limit + 1, before)
        resolved = ledger.find_transfers(
            connection, [s.transfer.resolves for s in found if s.transfer.resolves is not None]
        )
    shown = found[:limit]
    items = tuple(_seen_by_team(stored, own, resolved) for stored in shown)
    return Page(items, str(shown[-1].sequence) if len(found) > limit else None)


def _seen_by_team(
    stored: StoredTransfer,
    own: dict[LedgerAccountId, LedgerAccount],
    resolved: Mapping[TransferId, StoredTransfer],
) -> TransferView:
    transfer = stored.transfer
    account = own.get(transfer.debit) or own[transfer.credit]
    sign = -1 if transfer.debit in own else 1
    moved = transfer.kind in (TransferKind.POSTED, TransferKind.POST_PENDING)
    held = 0
    if transfer.kind is TransferKind.PENDING:
        held = transfer.amount.micro
    elif transfer.resolves is not None:
        held = -resolved[transfer.resolves].transfer.amount.micro
    return TransferView(
        id=transfer.id,
        at=stored.recorded_at,
        kind=transfer.kind.value,
        purpose=transfer.purpose.value,
        subject=transfer.subject,
        account=account.kind.value,
        amount=Money(sign * transfer.amount.micro if moved else 0),
        held=Money(held),
    )


def _sequence(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise Invalid(faults=[FieldFault("cursor", cursor[:40], "the next_cursor of the page before")])
    return int(cursor)


def _gift(account: LedgerAccount) -> GiftView:
    return GiftView(account.id, account.label, account.balance, account.expires_at)
