"""Tables of the ledger: constraints repeat the rules of the domain, triggers forbid changing a transfer."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Table, Text, event, text
from sqlalchemy.engine import Connection

from starverse.db.metadata import EnumText, IdText, MicroYuan, SerialKey, UtcTime, metadata, one_of
from starverse.db.session import TRAITS, traits_of
from starverse.domain.ledger.accounts import LIMIT_OF_KIND, TEAM_KINDS, AccountKind, Limit
from starverse.domain.ledger.transfers import RESOLVING_KINDS, Purpose, TransferKind


def _values(members: list[AccountKind] | list[TransferKind]) -> str:
    return ", ".join(sorted(f"'{member.value}'" for member in members))


_DEBITS_LIMITED = _values(
    [kind for kind, limit in LIMIT_OF_KIND.items() if limit is Limit.DEBITS_WITHIN_CREDITS]
)
_CREDITS_LIMITED = _values(
    [kind for kind, limit in LIMIT_OF_KIND.items() if limit is Limit.CREDITS_WITHIN_DEBITS]
)

ledger_accounts = Table(
    "ledger_accounts",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("kind", EnumText(AccountKind), nullable=False),
    Column("team_id", IdText, index=True),
    Column("label", Text, nullable=False),
    Column("expires_at", UtcTime),
    Column("redeemed_at", UtcTime),
    Column("opened_at", UtcTime, nullable=False),
    Column("debits_pending", MicroYuan, nullable=False, server_default=text("0")),
    Column("debits_posted", MicroYuan, nullable=False, server_default=text("0")),
    Column("credits_pending", MicroYuan, nullable=False, server_default=text("0")),
    Column("credits_posted", MicroYuan, nullable=False, server_default=text("0")),
    one_of("kind", AccountKind),
    CheckConstraint(
        "debits_pending >= 0 AND debits_posted >= 0 AND credits_pending >= 0 AND credits_posted >= 0",
        name="counters_not_negative",
    ),
    CheckConstraint(
        f"kind NOT IN ({_DEBITS_LIMITED}) OR debits_posted + debits_pending <= credits_posted",
        name="debits_within_credits",
    ),
    CheckConstraint(
        f"kind NOT IN ({_CREDITS_LIMITED}) OR credits_posted + credits_pending <= debits_posted",
        name="credits_within_debits",
    ),
    CheckConstraint(
        f"(team_id IS NOT NULL) = (kind IN ({_values(list(TEAM_KINDS))}))", name="team_owns_its_kinds"
    ),
    CheckConstraint("expires_at IS NULL OR kind IN ('credit', 'coupon')", name="only_gifts_expire"),
    CheckConstraint("(redeemed_at IS NOT NULL) = (kind = 'coupon')", name="only_coupons_are_redeemed"),
)

Index(
    "uq_ledger_accounts_cash_of_team",
    ledger_accounts.c.team_id,
    unique=True,
    sqlite_where=text("kind = 'cash'"),
    postgresql_where=text("kind = 'cash'"),
)

transfers = Table(
    "transfers",
    metadata,
    Column("sequence", SerialKey, primary_key=True),
    Column("id", IdText, nullable=False, unique=True),
    Column("kind", EnumText(TransferKind), nullable=False),
    Column("debit_id", ForeignKey(ledger_accounts.c.id), nullable=False),
    Column("credit_id", ForeignKey(ledger_accounts.c.id), nullable=False),
    Column("amount", MicroYuan, nullable=False),
    Column("purpose", EnumText(Purpose), nullable=False),
    Column("subject", Text),
    Column("resolves", ForeignKey("transfers.id")),
    Column("refunds", ForeignKey("transfers.id")),
    Column("expires_at", UtcTime),
    Column("recorded_at", UtcTime, nullable=False),
    one_of("kind", TransferKind),
    one_of("purpose", Purpose),
    CheckConstraint("amount > 0", name="amount_positive"),
    CheckConstraint("debit_id <> credit_id", name="two_accounts"),
    CheckConstraint(
        f"(resolves IS NOT NULL) = (kind IN ({_values(list(RESOLVING_KINDS))}))",
        name="resolving_kinds_resolve",
    ),
    CheckConstraint("refunds IS NULL OR kind = 'posted'", name="only_posted_refunds"),
    CheckConstraint("expires_at IS NULL OR kind = 'pending'", name="only_pending_expires"),
)
"""Append-only. ``sequence`` is the order recorded; ``id`` is the caller's."""

Index("ix_transfers_debit_id_sequence", transfers.c.debit_id, transfers.c.sequence)
Index("ix_transfers_credit_id_sequence", transfers.c.credit_id, transfers.c.sequence)
Index(
    "uq_transfers_resolves",
    transfers.c.resolves,
    unique=True,
    sqlite_where=transfers.c.resolves.is_not(None),
    postgresql_where=transfers.c.resolves.is_not(None),
)
Index(
    "ix_transfers_refunds",
    transfers.c.refunds,
    sqlite_where=transfers.c.refunds.is_not(None),
    postgresql_where=transfers.c.refunds.is_not(None),
)
Index(
    "ix_transfers_subject",
    transfers.c.subject,
    sqlite_where=transfers.c.subject.is_not(None),
    postgresql_where=transfers.c.subject.is_not(None),
)

open_holds = Table(
    "open_holds",
    metadata,
    Column("transfer_id", ForeignKey(transfers.c.id), primary_key=True),
    Column("debit_id", ForeignKey(ledger_accounts.c.id), nullable=False, index=True),
    Column("expires_at", UtcTime),
)
"""The pending transfers that nothing resolved yet: found without reading the history."""

Index(
    "ix_open_holds_expires_at",
    open_holds.c.expires_at,
    sqlite_where=open_holds.c.expires_at.is_not(None),
    postgresql_where=open_holds.c.expires_at.is_not(None),
)


def immutable_transfers_sql(dialect_name: str) -> tuple[str, ...]:
    """The statements that forbid changing or deleting transfers, for ``create_all`` and for migrations."""
    return _of_transfers(TRAITS[dialect_name].forbid_changes)


def _of_transfers(statements: tuple[str, ...]) -> tuple[str, ...]:
    # TABLE is a word of SQL in none of them
    return tuple(statement.replace("TABLE", transfers.name) for statement in statements)


@event.listens_for(transfers, "after_create")
def _forbid_changes(_table: Table, connection: Connection, **_options: object) -> None:
    for statement in _of_transfers(traits_of(connection).forbid_changes):
        connection.exec_driver_sql(statement)


@event.listens_for(transfers, "after_drop")
def _forget(_table: Table, connection: Connection, **_options: object) -> None:
    for statement in _of_transfers(traits_of(connection).forget):
        connection.exec_driver_sql(statement)
