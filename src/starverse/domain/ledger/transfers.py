"""Transfers: immutable double-entry postings, and the constructors of each kind.

A hold is a pending transfer; another transfer resolves it, once::

    pending --> post_pending    for the real amount; the rest returns
            --> void_pending    nothing happened
            --> expire_pending  its time ran out
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from starverse.domain.ids import LedgerAccountId, TransferId
from starverse.domain.money import Money


class TransferKind(Enum):
    """Whether money moves at once, is held, or a hold is resolved."""

    POSTED = "posted"
    PENDING = "pending"
    POST_PENDING = "post_pending"
    VOID_PENDING = "void_pending"
    EXPIRE_PENDING = "expire_pending"


RESOLVING_KINDS = frozenset(
    {TransferKind.POST_PENDING, TransferKind.VOID_PENDING, TransferKind.EXPIRE_PENDING}
)
PAYING_KINDS = frozenset({TransferKind.POSTED, TransferKind.POST_PENDING})
"""The kinds that move money for good, and so can be refunded."""


class Purpose(Enum):
    """Why money moves: what a statement shows."""

    TOP_UP = "top_up"
    GIFT = "gift"
    COUPON = "coupon"
    CHARGE = "charge"
    REFUND = "refund"
    GOODWILL = "goodwill"
    """Lost work after a node loss or card fault comes back as credit."""
    WRITE_OFF = "write_off"
    EXPIRY = "expiry"
    """What was left of an expired credit or coupon returns to ``gifts``."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """``amount`` (above zero) from ``debit`` to ``credit``; the caller makes the id.

    ``resolves`` names the pending transfer that this one ends; ``refunds`` the one that it pays back;
    ``subject`` what it is about (an allocation, a top-up order). A pending transfer with ``expires_at``
    can be posted before that instant only; ``None`` never expires on its own.
    """

    id: TransferId
    kind: TransferKind
    debit: LedgerAccountId
    credit: LedgerAccountId
    amount: Money
    purpose: Purpose
    subject: str | None = None
    resolves: TransferId | None = None
    refunds: TransferId | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredTransfer:
    """A transfer in the books: its place in the order of all, and when it was recorded."""

    sequence: int
    transfer: Transfer
    recorded_at: datetime


def move(
    transfer_id: TransferId,
    debit: LedgerAccountId,
    credit: LedgerAccountId,
    amount: Money,
    purpose: Purpose,
    *,
    subject: str | None = None,
) -> Transfer:
    """Money that moves at once."""
    return Transfer(transfer_id, TransferKind.POSTED, debit, credit, amount, purpose, subject)


def hold(
    transfer_id: TransferId,
    debit: LedgerAccountId,
    credit: LedgerAccountId,
    amount: Money,
    *,
    purpose: Purpose = Purpose.CHARGE,
    subject: str | None = None,
) -> Transfer:
    """Money kept back until posted or voided; see ``dataclasses.replace`` for one with ``expires_at``."""
    return Transfer(transfer_id, TransferKind.PENDING, debit, credit, amount, purpose, subject)


def post_hold(transfer_id: TransferId, pending: Transfer, amount: Money | None = None) -> Transfer:
    """Take ``amount`` (default all) of a hold for good; what is left of it returns to the debit side."""
    return _resolve(
        transfer_id, TransferKind.POST_PENDING, pending, pending.amount if amount is None else amount
    )


def void_hold(transfer_id: TransferId, pending: Transfer) -> Transfer:
    """Give a hold back whole."""
    return _resolve(transfer_id, TransferKind.VOID_PENDING, pending, pending.amount)


def settle_hold(transfer_id: TransferId, pending: Transfer, amount: Money) -> Transfer:
    """Post a hold for the real amount, or void it when that is zero."""
    return post_hold(transfer_id, pending, amount) if amount else void_hold(transfer_id, pending)


def expire_hold(transfer_id: TransferId, pending: Transfer) -> Transfer:
    """Give a hold back whole because its time ran out."""
    return _resolve(transfer_id, TransferKind.EXPIRE_PENDING, pending, pending.amount)


def refund(transfer_id: TransferId, source: Transfer, amount: Money | None = None) -> Transfer:
    """Pay ``amount`` (default all) of a payment back to where it came from."""
    return Transfer(
        transfer_id,
        TransferKind.POSTED,
        source.credit,
        source.debit,
        source.amount if amount is None else amount,
        Purpose.REFUND,
        source.subject,
        refunds=source.id,
    )


def _resolve(transfer_id: TransferId, kind: TransferKind, pending: Transfer, amount: Money) -> Transfer:
    return Transfer(
        transfer_id,
        kind,
        pending.debit,
        pending.credit,
        amount,
        pending.purpose,
        pending.subject,
        resolves=pending.id,
    )
