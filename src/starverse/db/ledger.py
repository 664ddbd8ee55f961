"""The ledger in the database: open ledger accounts, post, look up, check. All on a given open connection.

Posting loads the touched rows (locked in id order on PostgreSQL; on SQLite the immediate transaction already
keeps other writers out), lets ``domain.ledger.posting`` decide, and writes the result back with a conditional
update. The caller commits. On PostgreSQL a writing transaction is READ COMMITTED: once a lock is granted, the
next statement sees what its former holder wrote.

The SQL of the posting path is in ``db/ledger_posting_sql.py``; reading is here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Row, Select, bindparam, func, select, union_all

from starverse.db.ledger_posting_sql import load_state, write_posting
from starverse.db.ledger_tables import ledger_accounts, open_holds, transfers
from starverse.db.prepared import Prepared
from starverse.db.session import LostRace, traits_of
from starverse.db.statements import insert_new
from starverse.domain.errors import Conflict, InvariantBroken, NotFound
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import AccountKind, LedgerAccount, platform_accounts
from starverse.domain.ledger.invariants import Auditor, BrokenInvariant
from starverse.domain.ledger.posting import Outcome, apply_groups
from starverse.domain.ledger.transfers import StoredTransfer, Transfer
from starverse.domain.ledger.wallet import Wallet, wallet_of
from starverse.domain.money import ZERO, Money

CHUNK_ROWS = 5_000

_ACCOUNT_COLUMNS = tuple(column for column in ledger_accounts.c if column.name != "opened_at")
_TRANSFER_COLUMNS = tuple(transfers.c)
_TEAM_ACCOUNTS = Prepared(
    select(*(ledger_accounts.c[field.name] for field in dataclasses.fields(LedgerAccount))).where(
        ledger_accounts.c.team_id == bindparam("team")
    )
)


def post(connection: Connection, group: Sequence[Transfer], now: datetime) -> Outcome:
    """Record one group of transfers, all or nothing; a repeat of it changes nothing."""
    return post_groups(connection, (group,), now)[0]


def post_decided(connection: Connection, group: Sequence[Transfer], now: datetime, what: str) -> None:
    """Record transfers that were decided in this transaction after a look at the wallet.

    A refusal means that the wallet changed since it was looked at: on PostgreSQL :class:`LostRace`, to be
    decided again. On SQLite nobody else can write meanwhile: :class:`InvariantBroken`.
    """
    outcome = post(connection, group, now)
    if outcome.ok:
        return
    if traits_of(connection).one_writer:
        raise InvariantBroken(f"the ledger refused {what}", context={"outcome": outcome})
    raise LostRace(f"the wallet changed before {what}", context={"outcome": outcome})


def post_groups(
    connection: Connection, groups: Sequence[Sequence[Transfer]], now: datetime
) -> tuple[Outcome, ...]:
    """Record many groups, each all or nothing and seeing those before it; one outcome per group, in order.

    Raises :class:`Conflict` when a counter changed between load and write, which the transaction's isolation
    rules out; roll back and try again.
    """
    state = load_state(connection, groups)
    posting = apply_groups(state, groups, now)
    if posting.created:
        write_posting(connection, state.accounts, posting, now)
    return posting.outcomes


def open_accounts(connection: Connection, accounts: Iterable[LedgerAccount], now: datetime) -> None:
    """Add ledger accounts, empty; those that exist with the same content are left alone.

    Raises :class:`Conflict` when an id exists with other content, ``ValueError`` when counters are not zero.
    """
    for account in accounts:
        if any(
            (account.debits_pending, account.debits_posted, account.credits_pending, account.credits_posted)
        ):
            raise ValueError(f"{account.id}: a ledger account opens empty; fill it with a transfer")
        values = {
            "id": account.id,
            "kind": account.kind,
            "team_id": account.team_id,
            "label": account.label,
            "expires_at": account.expires_at,
            "redeemed_at": account.redeemed_at,
            "opened_at": now,
        }
        if not insert_new(connection, ledger_accounts, values):
            existing = balances(connection, [account.id])
            if account.id not in existing or _identity(existing[account.id]) != _identity(account):
                raise Conflict(f"The ledger account {account.id} exists with other content.")


def open_platform_accounts(connection: Connection, now: datetime) -> None:
    """Add revenue, gifts and write_off where they are not there yet."""
    open_accounts(connection, platform_accounts(), now)


def balances(connection: Connection, ids: Iterable[LedgerAccountId]) -> dict[LedgerAccountId, LedgerAccount]:
    """The ledger accounts with these ids and their counters; unknown ids are left out."""
    rows = connection.execute(select(*_ACCOUNT_COLUMNS).where(ledger_accounts.c.id.in_(list(ids))))
    return {row.id: _account(row) for row in rows}


def accounts_of_kind(connection: Connection, kind: AccountKind) -> tuple[LedgerAccount, ...]:
    """All ledger accounts of a kind, by id; ``GATEWAY`` lists the providers."""
    query = select(*_ACCOUNT_COLUMNS).where(ledger_accounts.c.kind == kind).order_by(ledger_accounts.c.id)
    return tuple(_account(row) for row in connection.execute(query))


def team_wallet(connection: Connection, team_id: TeamId) -> Wallet:
    """A team's wallet; raises :class:`NotFound` for a team without ledger accounts."""
    accounts = [LedgerAccount(*row) for row in _TEAM_ACCOUNTS.rows(connection, team=team_id)]
    if not accounts:
        raise NotFound(f"The team {team_id} has no wallet.")
    return wallet_of(team_id, accounts)


def find_transfers(connection: Connection, ids: Iterable[TransferId]) -> dict[TransferId, StoredTransfer]:
    """The recorded transfers with these ids; unknown ids are left out."""
    rows = connection.execute(select(*_TRANSFER_COLUMNS).where(transfers.c.id.in_(list(ids))))
    return {row.id: _stored(row) for row in rows}


def transfers_of_subject(connection: Connection, subject: str) -> tuple[StoredTransfer, ...]:
    """All transfers about one allocation, top-up order or the like, in the order recorded."""
    query = select(*_TRANSFER_COLUMNS).where(transfers.c.subject == subject).order_by(transfers.c.sequence)
    return tuple(_stored(row) for row in connection.execute(query))


def refunded(connection: Connection, payment_id: TransferId) -> Money:
    """How much of a payment went back so far."""
    query = select(func.sum(transfers.c.amount)).where(transfers.c.refunds == payment_id)
    return connection.execute(query).scalar() or ZERO


def open_holds_of_team(connection: Connection, team_id: TeamId) -> tuple[StoredTransfer, ...]:
    """The holds on a team's wallet that nothing resolved yet, in the order taken."""
    query = (
        _select_open_holds()
        .join(ledger_accounts, ledger_accounts.c.id == open_holds.c.debit_id)
        .where(ledger_accounts.c.team_id == team_id)
        .order_by(transfers.c.sequence)
    )
    return tuple(_stored(row) for row in connection.execute(query))


def overdue_holds(connection: Connection, now: datetime, limit: int) -> tuple[StoredTransfer, ...]:
    """At most ``limit`` open holds whose ``expires_at`` has passed, the longest overdue first."""
    return tuple(_stored(row) for row in _OVERDUE_HOLDS.rows(connection, now=now, most=limit))


def history(
    connection: Connection, account_ids: Iterable[LedgerAccountId], limit: int, before: int | None = None
) -> tuple[StoredTransfer, ...]:
    """Transfers that touch any of these ledger accounts, newest first, at most ``limit``.

    The next page is asked for with ``before`` = the last ``sequence`` of this one. Reads ``limit`` rows per
    ledger account and side, whatever the length of the history.
    """
    pages = []
    for account_id in account_ids:
        for side in (transfers.c.debit_id, transfers.c.credit_id):
            page = select(transfers.c.sequence).where(side == account_id)
            if before is not None:
                page = page.where(transfers.c.sequence < before)
            pages.append(select(page.order_by(transfers.c.sequence.desc()).limit(limit).subquery()))
    if not pages:
        return ()
    wanted = union_all(*pages).subquery()
    query = (
        select(*_TRANSFER_COLUMNS)
        .where(transfers.c.sequence.in_(select(wanted.c.sequence)))
        .order_by(transfers.c.sequence.desc())
        .limit(limit)
    )
    return tuple(_stored(row) for row in connection.execute(query))


def all_transfers(connection: Connection, chunk_rows: int = CHUNK_ROWS) -> Iterator[StoredTransfer]:
    """Every transfer in the order recorded, read in chunks."""
    last = 0
    while True:
        query = (
            select(*_TRANSFER_COLUMNS)
            .where(transfers.c.sequence > last)
            .order_by(transfers.c.sequence)
            .limit(chunk_rows)
        )
        rows = connection.execute(query).all()
        if not rows:
            return
        for row in rows:
            yield _stored(row)
        last = rows[-1].sequence


def check(connection: Connection, chunk_rows: int = CHUNK_ROWS) -> tuple[BrokenInvariant, ...]:
    """Every broken invariant of the whole books (``domain.ledger.invariants``); empty means sound.

    Also ``open_holds_match``: the table of open holds names exactly the pending transfers not resolved. Call
    it in a transaction that reads one snapshot (SQLite: any; PostgreSQL: REPEATABLE READ).
    """
    auditor = Auditor(_account(row) for row in connection.execute(select(*_ACCOUNT_COLUMNS)))
    for stored in all_transfers(connection, chunk_rows):
        auditor.add(stored.transfer)
    listed = {row.transfer_id: row.debit_id for row in connection.execute(select(open_holds))}
    unresolved = {transfer.id: transfer.debit for transfer in auditor.open_holds.values()}
    return (
        *auditor.finish(),
        *(
            BrokenInvariant("open_holds_match", hold_id, "listed open and not, or on another ledger account")
            for hold_id in sorted(listed.keys() | unresolved.keys())
            if listed.get(hold_id) != unresolved.get(hold_id)
        ),
    )


def _select_open_holds() -> Select[*tuple[object, ...]]:
    return select(*_TRANSFER_COLUMNS).join(open_holds, open_holds.c.transfer_id == transfers.c.id)


_OVERDUE_HOLDS = Prepared(
    _select_open_holds()
    .where(open_holds.c.expires_at <= bindparam("now"))
    .order_by(open_holds.c.expires_at, transfers.c.sequence)
    .limit(bindparam("most", type_=Integer))
)


def _identity(account: LedgerAccount) -> tuple[object, ...]:
    return (account.kind, account.team_id, account.label, account.expires_at, account.redeemed_at)


def _account(row: Row[*tuple[object, ...]]) -> LedgerAccount:
    return LedgerAccount(**row._mapping)


def _stored(row: Any) -> StoredTransfer:
    return StoredTransfer(
        row.sequence,
        Transfer(
            row.id,
            row.kind,
            row.debit_id,
            row.credit_id,
            row.amount,
            row.purpose,
            row.subject,
            row.resolves,
            row.refunds,
            row.expires_at,
        ),
        row.recorded_at,
    )
