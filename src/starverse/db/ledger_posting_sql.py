"""The SQL of the posting path, as the drivers take it.

Every charge passes here, and compiled statements would cost more than the database does: so plain text with
lists bound as one parameter, the same text every time. ``ledger_tables`` has the columns and constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from starverse.db.metadata import from_micros, to_micros
from starverse.db.session import TRAITS, Traits, traits_of
from starverse.domain.errors import Conflict
from starverse.domain.ids import LedgerAccountId, TransferId
from starverse.domain.ledger.accounts import AccountKind, LedgerAccount
from starverse.domain.ledger.posting import LedgerState, Posting
from starverse.domain.ledger.transfers import Purpose, Transfer, TransferKind
from starverse.domain.money import ZERO, Money

_LOAD_ACCOUNTS = """
SELECT id, kind, team_id, label, expires_at, redeemed_at,
       debits_pending, debits_posted, credits_pending, credits_posted
FROM ledger_accounts WHERE id ONE_OF ORDER BY id LOCK"""

_LOAD_TRANSFERS = """
SELECT id, kind, debit_id, credit_id, amount, purpose, subject, resolves, refunds, expires_at
FROM transfers WHERE id ONE_OF"""

_LOAD_RESOLUTIONS = "SELECT resolves, kind FROM transfers WHERE resolves ONE_OF"

_LOAD_REFUNDED = "SELECT refunds, amount FROM transfers WHERE refunds ONE_OF"

_UPDATE_ACCOUNT = """
UPDATE ledger_accounts SET debits_pending = ?, debits_posted = ?, credits_pending = ?, credits_posted = ?
WHERE id = ? AND debits_pending = ? AND debits_posted = ? AND credits_pending = ? AND credits_posted = ?"""

_INSERT_TRANSFER = """
INSERT INTO transfers (id, kind, debit_id, credit_id, amount, purpose, subject, resolves, refunds, expires_at,
                       recorded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

_INSERT_HOLD = "INSERT INTO open_holds (transfer_id, debit_id, expires_at) VALUES (?, ?, ?)"

_DELETE_HOLD = "DELETE FROM open_holds WHERE transfer_id = ?"


def _sql(traits: Traits, template: str) -> str:
    one_of = traits.one_of.format("?")
    return template.replace("ONE_OF", one_of).replace("LOCK", traits.lock).replace("?", traits.mark)


_STATEMENTS = {
    traits: {
        statement: _sql(traits, statement)
        for statement in (
            _LOAD_ACCOUNTS,
            _LOAD_TRANSFERS,
            _LOAD_RESOLUTIONS,
            _LOAD_REFUNDED,
            _UPDATE_ACCOUNT,
            _INSERT_TRANSFER,
            _INSERT_HOLD,
            _DELETE_HOLD,
        )
    }
    for traits in TRAITS.values()
}

_ACCOUNT_KINDS = {kind.value: kind for kind in AccountKind}
_TRANSFER_KINDS = {kind.value: kind for kind in TransferKind}
_PURPOSES = {purpose.value: purpose for purpose in Purpose}
_KIND_TEXT = {kind: kind.value for kind in TransferKind}
_PURPOSE_TEXT = {purpose: purpose.value for purpose in Purpose}


def load_state(connection: Connection, groups: Sequence[Sequence[Transfer]]) -> LedgerState:
    """The part of the books that these groups touch, its ledger accounts locked until commit."""
    account_ids: set[str] = set()
    own: list[str] = []
    resolved: list[str] = []
    refunded: list[str] = []
    for group in groups:
        for transfer in group:
            account_ids.add(transfer.debit)
            account_ids.add(transfer.credit)
            own.append(transfer.id)
            if transfer.resolves is not None:
                resolved.append(transfer.resolves)
            if transfer.refunds is not None:
                refunded.append(transfer.refunds)
    with _Driver(connection) as driver:
        accounts = {row[0]: _account(row) for row in driver.rows(_LOAD_ACCOUNTS, account_ids)}
        recorded = driver.rows(_LOAD_TRANSFERS, own + resolved + refunded)
        resolutions = driver.rows(_LOAD_RESOLUTIONS, resolved)
        refunds = driver.rows(_LOAD_REFUNDED, refunded)
    sums: dict[TransferId, Money] = {}
    for payment_id, micro in refunds:
        sums[payment_id] = sums.get(payment_id, ZERO) + Money(micro)
    return LedgerState(
        accounts=accounts,
        transfers={row[0]: _transfer(row) for row in recorded},
        resolutions={hold_id: _TRANSFER_KINDS[kind] for hold_id, kind in resolutions},
        refunded=sums,
    )


def write_posting(
    connection: Connection, before: Mapping[LedgerAccountId, LedgerAccount], posting: Posting, now: datetime
) -> None:
    """Write counters (only where they are still as loaded), transfers and open holds; three executemany."""
    counters = [
        (*_counters(account), account.id, *_counters(before[account.id])) for account in posting.changed
    ]
    at = to_micros(now)
    created = [_transfer_row(transfer, at) for transfer in posting.created]
    pending = TransferKind.PENDING
    taken = [
        (transfer.id, transfer.debit, _micros(transfer.expires_at))
        for transfer in posting.created
        if transfer.kind is pending
    ]
    ended = [(transfer.resolves,) for transfer in posting.created if transfer.resolves is not None]
    with _Driver(connection) as driver:
        if counters and driver.change(_UPDATE_ACCOUNT, counters) != len(counters):
            raise Conflict("A ledger account changed while it was posted to; try again.")
        driver.change(_INSERT_TRANSFER, created)
        if taken:
            driver.change(_INSERT_HOLD, taken)
        if ended:
            driver.change(_DELETE_HOLD, ended)


class _Driver:
    """One of the driver's cursors inside the connection's transaction; closed at the end of the block.

    SQLAlchemy's result objects cost more than a small SQLite statement; the errors stay SQLAlchemy's, so
    that what retries a lost race sees them.
    """

    __slots__ = ("_bind_list", "_connection", "_cursor", "_last", "_statements")

    def __init__(self, connection: Connection) -> None:
        traits = traits_of(connection)
        self._connection = connection
        self._statements = _STATEMENTS[traits]
        self._bind_list = traits.bind_list
        self._cursor: Any = connection.connection.cursor()
        self._last = ""

    def __enter__(self) -> _Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cursor.close()
        if isinstance(error, Exception):
            dialect = self._connection.dialect
            base = cast(type[Exception], dialect.loaded_dbapi.Error)
            if isinstance(error, base):
                raise DBAPIError.instance(self._last, None, error, base, dialect=dialect) from error

    def rows(self, statement: str, ids: Iterable[str]) -> Sequence[Sequence[Any]]:
        """The rows that a loading statement finds for a list of ids; none asked, none read."""
        wanted = list(ids)
        if not wanted:
            return ()
        self._last = self._statements[statement]
        self._cursor.execute(self._last, (self._bind_list(wanted),))
        return cast(Sequence[Sequence[Any]], self._cursor.fetchall())

    def change(self, statement: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Execute a changing statement for every row; how many rows it changed in all."""
        self._last = self._statements[statement]
        self._cursor.executemany(self._last, rows)
        return int(self._cursor.rowcount)


def _account(row: Sequence[Any]) -> LedgerAccount:
    account_id, kind, team_id, label, expires_at, redeemed_at, *counters = row
    return LedgerAccount(
        account_id,
        _ACCOUNT_KINDS[kind],
        team_id,
        label,
        _instant(expires_at),
        _instant(redeemed_at),
        *map(Money, counters),
    )


def _transfer(row: Sequence[Any]) -> Transfer:
    transfer_id, kind, debit, credit, micro, purpose, subject, resolves, refunds, expires_at = row
    return Transfer(
        transfer_id,
        _TRANSFER_KINDS[kind],
        debit,
        credit,
        Money(micro),
        _PURPOSES[purpose],
        subject,
        resolves,
        refunds,
        _instant(expires_at),
    )


def _transfer_row(transfer: Transfer, at: int) -> tuple[object, ...]:
    return (
        transfer.id,
        _KIND_TEXT[transfer.kind],
        transfer.debit,
        transfer.credit,
        transfer.amount.micro,
        _PURPOSE_TEXT[transfer.purpose],
        transfer.subject,
        transfer.resolves,
        transfer.refunds,
        _micros(transfer.expires_at),
        at,
    )


def _counters(account: LedgerAccount) -> tuple[int, int, int, int]:
    return (
        account.debits_pending.micro,
        account.debits_posted.micro,
        account.credits_pending.micro,
        account.credits_posted.micro,
    )


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else to_micros(instant)


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
