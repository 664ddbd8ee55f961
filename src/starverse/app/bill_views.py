"""What every explained charge shows: its price books, and the transfers that paid it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starverse.domain.ledger.transfers import StoredTransfer
from starverse.domain.money import Money


@dataclass(frozen=True, slots=True)
class BookRef:
    """A price-book version that a charge used."""

    id: str
    effective_from: datetime


@dataclass(frozen=True, slots=True)
class ChargeTransfer:
    """Money that moved for a charge."""

    id: str
    at: datetime
    kind: str
    purpose: str
    debit: str
    credit: str
    amount: Money


def show_transfer(stored: StoredTransfer) -> ChargeTransfer:
    """A transfer with the kinds of its ledger accounts, not their ids."""
    transfer = stored.transfer
    return ChargeTransfer(
        id=transfer.id,
        at=stored.recorded_at,
        kind=transfer.kind.value,
        purpose=transfer.purpose.value,
        debit=transfer.debit.partition(":")[0],
        credit=transfer.credit.partition(":")[0],
        amount=transfer.amount,
    )
