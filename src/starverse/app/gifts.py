"""Credit out of the ledger's gifts: of a sign-up, of an operator, for work lost by a fault of ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.ports import Ids
from starverse.db import ledger
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import GIFTS, credit_grant
from starverse.domain.ledger.transfers import Purpose, move
from starverse.domain.money import Money


@dataclass(frozen=True, slots=True)
class Gift:
    """``label`` is what its team reads, ``subject`` what it is about; ``expires_at`` ``None``: never.
    ``grant_id`` ``None``: a new one."""

    team_id: TeamId
    amount: Money
    label: str
    subject: str
    purpose: Purpose = Purpose.GIFT
    expires_at: datetime | None = None
    grant_id: LedgerAccountId | None = None


def give_credit(connection: Connection, ids: Ids, gift: Gift, now: datetime) -> LedgerAccountId:
    """One gift of credit with its own expiry; the id of its new ledger account."""
    grant = gift.grant_id or LedgerAccountId(f"credit:{ids.uuid7()}")
    ledger.open_accounts(connection, [credit_grant(grant, gift.team_id, gift.label, gift.expires_at)], now)
    moved = move(TransferId(ids.uuid7()), GIFTS, grant, gift.amount, gift.purpose, subject=gift.subject)
    ledger.post_decided(connection, [moved], now, "a gift of credit")
    return grant
