"""Top-ups, their refunds, and the rules of automatic ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, bindparam, insert, select, update

from starverse.db.prepared import Prepared, among
from starverse.db.statements import insert_new
from starverse.db.tables import auto_topups, refunds, topups
from starverse.domain.ids import AccountId, TeamId, TransferId
from starverse.domain.money import Money


@dataclass(frozen=True, slots=True)
class TopUp:
    """An order at a payment provider; ``transfer_id`` is set once it is paid. Its id is our order number."""

    id: str
    team_id: TeamId
    account_id: AccountId
    provider: str
    amount: Money
    state: str
    automatic: bool
    created_at: datetime
    paid_at: datetime | None = None
    transfer_id: TransferId | None = None


@dataclass(frozen=True, slots=True)
class Refund:
    """Money paid back to where a top-up came from; pending until ``done_at``: the provider was told."""

    id: str
    topup_id: str
    amount: Money
    created_at: datetime
    done_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AutoTopUp:
    """Top up by ``amount`` once free money falls below ``below``; ``armed`` again when it is back above."""

    team_id: TeamId
    account_id: AccountId
    below: Money
    amount: Money
    armed: bool


_MOST = bindparam("most", type_=Integer)
_PENDING_AUTOMATIC = Prepared(
    select(topups)
    .where(topups.c.automatic.is_(True), topups.c.state == "pending")
    .order_by(topups.c.id)
    .limit(_MOST)
)
_PENDING_REFUNDS = Prepared(
    select(refunds, topups.c.provider)
    .join(topups, topups.c.id == refunds.c.topup_id)
    .where(refunds.c.done_at.is_(None), among(topups.c.provider, "providers"))
    .order_by(refunds.c.id)
    .limit(_MOST)
)
_RULES = Prepared(select(auto_topups).order_by(auto_topups.c.team_id))
_RULE = Prepared(select(auto_topups).where(auto_topups.c.team_id == bindparam("team")))


def add_topup(connection: Connection, topup: TopUp) -> None:
    connection.execute(
        insert(topups).values(
            id=topup.id,
            team_id=topup.team_id,
            account_id=topup.account_id,
            provider=topup.provider,
            provider_reference=topup.id,
            amount_micro=topup.amount,
            state=topup.state,
            automatic=topup.automatic,
            created_at=topup.created_at,
            paid_at=topup.paid_at,
            transfer_id=topup.transfer_id,
        )
    )


def get_topup(connection: Connection, topup_id: str) -> TopUp | None:
    row = connection.execute(select(topups).where(topups.c.id == topup_id)).one_or_none()
    return None if row is None else _topup(row)


def list_topups(
    connection: Connection, team_id: TeamId, limit: int, before_id: str | None = None
) -> tuple[TopUp, ...]:
    """A team's top-ups, newest first (ids are ordered by time)."""
    query = select(topups).where(topups.c.team_id == team_id).order_by(topups.c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(topups.c.id < before_id)
    return tuple(_topup(row) for row in connection.execute(query))


def pending_automatic(connection: Connection, limit: int) -> tuple[TopUp, ...]:
    """Automatic top-ups that nobody paid yet, oldest first."""
    return tuple(_topup(row) for row in _PENDING_AUTOMATIC.rows(connection, most=limit))


def mark_paid(connection: Connection, topup_id: str, transfer_id: TransferId, now: datetime) -> bool:
    """False when it was not pending any more."""
    done = connection.execute(
        update(topups)
        .where(topups.c.id == topup_id, topups.c.state == "pending")
        .values(state="paid", paid_at=now, transfer_id=transfer_id)
    )
    return done.rowcount == 1


def add_refund(connection: Connection, refund: Refund, team_id: TeamId) -> None:
    """The transfer of a refund has the refund's own id."""
    connection.execute(
        insert(refunds).values(
            id=refund.id,
            topup_id=refund.topup_id,
            team_id=team_id,
            amount_micro=refund.amount,
            transfer_id=refund.id,
            created_at=refund.created_at,
            done_at=refund.done_at,
        )
    )


def pending_refunds(
    connection: Connection, limit: int, providers: Collection[str]
) -> list[tuple[Refund, str]]:
    """Refunds of which one of these providers was not told yet, oldest first, each with its provider."""
    rows = _PENDING_REFUNDS.rows(connection, providers=providers, most=limit)
    return [(_refund(row), row.provider) for row in rows]


def mark_refunded(connection: Connection, refund_id: str, now: datetime) -> None:
    """The provider was told; a repeat changes nothing."""
    connection.execute(
        update(refunds).where(refunds.c.id == refund_id, refunds.c.done_at.is_(None)).values(done_at=now)
    )


def refunds_of(connection: Connection, topup_ids: list[str]) -> dict[str, tuple[Refund, ...]]:
    """The refunds of these top-ups, oldest first."""
    found: dict[str, tuple[Refund, ...]] = dict.fromkeys(topup_ids, ())
    rows = connection.execute(select(refunds).where(refunds.c.topup_id.in_(topup_ids)).order_by(refunds.c.id))
    for row in rows:
        refund = _refund(row)
        found[row.topup_id] = (*found[row.topup_id], refund)
    return found


def set_rule(connection: Connection, rule: AutoTopUp) -> None:
    """Add or replace a team's rule."""
    values = {
        "account_id": rule.account_id,
        "below_micro": rule.below,
        "amount_micro": rule.amount,
        "armed": rule.armed,
    }
    change = update(auto_topups).where(auto_topups.c.team_id == rule.team_id).values(**values)
    changed = connection.execute(change)
    if changed.rowcount == 0 and not insert_new(connection, auto_topups, {"team_id": rule.team_id, **values}):
        connection.execute(change)


def remove_rule(connection: Connection, team_id: TeamId) -> None:
    connection.execute(auto_topups.delete().where(auto_topups.c.team_id == team_id))


def get_rule(connection: Connection, team_id: TeamId) -> AutoTopUp | None:
    row = _RULE.first(connection, team=team_id)
    return None if row is None else _rule(row)


def all_rules(connection: Connection) -> tuple[AutoTopUp, ...]:
    return tuple(_rule(row) for row in _RULES.rows(connection))


def set_armed(connection: Connection, team_id: TeamId, armed: bool) -> bool:
    """Flip a rule; false when it was so already: of many that see one crossing, one fires."""
    done = connection.execute(
        update(auto_topups)
        .where(auto_topups.c.team_id == team_id, auto_topups.c.armed.is_(not armed))
        .values(armed=armed)
    )
    return done.rowcount == 1


def _rule(row: Any) -> AutoTopUp:
    return AutoTopUp(row.team_id, row.account_id, row.below_micro, row.amount_micro, row.armed)


def _refund(row: Any) -> Refund:
    return Refund(row.id, row.topup_id, row.amount_micro, row.created_at, row.done_at)


def _topup(row: Any) -> TopUp:
    return TopUp(
        id=row.id,
        team_id=row.team_id,
        account_id=row.account_id,
        provider=row.provider,
        amount=row.amount_micro,
        state=row.state,
        automatic=row.automatic,
        created_at=row.created_at,
        paid_at=row.paid_at,
        transfer_id=row.transfer_id,
    )
