"""What every explained charge shows: its price books, and the transfers that paid it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

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


class Paid(Protocol):
    """A charge with who paid it."""

    @property
    def total(self) -> Money: ...
    @property
    def coupon(self) -> Money: ...
    @property
    def credit(self) -> Money: ...
    @property
    def cash(self) -> Money: ...
    @property
    def written_off(self) -> Money: ...


def paid_in_words(charge: Paid) -> str:
    """Who paid how much of a charge: the last step of its arithmetic."""
    parts = [
        f"{name} {amount.decimal()}"
        for name, amount in (
            ("coupons", charge.coupon),
            ("credit", charge.credit),
            ("cash", charge.cash),
            ("written off", charge.written_off),
        )
        if amount
    ]
    return f"paid: {', '.join(parts) or 'nothing was due'}; together {charge.total.decimal()}"


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
