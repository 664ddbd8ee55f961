"""The ledger's named invariants and the one checker of all: tests, the simulator, ``admin ledger check``.

========================  =====================================================================
``transfers_well_formed``  every amount is above zero, between two ledger accounts that exist
``ids_unique``             no transfer id is recorded twice
``pending_resolved_once``  a resolution names a hold that is still open, keeps its accounts, and
                           takes no more than it
``refunds_within_paid``    a refund goes back the way its payment came; together never more than paid
``counters_match``         every counter of a ledger account equals the sum of its transfers
``sum_zero``               over all ledger accounts debits equal credits, posted and pending
``within_limits``          no ledger account is below zero in its own direction, holds counted
``counters_not_negative``  no counter is below zero
========================  =====================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from starverse.domain.ids import LedgerAccountId, TransferId
from starverse.domain.ledger.accounts import LedgerAccount
from starverse.domain.ledger.transfers import PAYING_KINDS, Transfer, TransferKind
from starverse.domain.money import Money

INVARIANTS = (
    "transfers_well_formed",
    "ids_unique",
    "pending_resolved_once",
    "refunds_within_paid",
    "counters_match",
    "sum_zero",
    "within_limits",
    "counters_not_negative",
)


@dataclass(frozen=True, slots=True)
class BrokenInvariant:
    """An invariant that does not hold, where, and how far off."""

    name: str
    subject: str
    detail: str


def audit(accounts: Iterable[LedgerAccount], transfers: Iterable[Transfer]) -> tuple[BrokenInvariant, ...]:
    """Every broken invariant of whole books; ``transfers`` in the order recorded. Empty means sound.

    One pass over each; memory grows with the number of transfers (an id and a few numbers each).
    """
    auditor = Auditor(accounts)
    for transfer in transfers:
        auditor.add(transfer)
    return auditor.finish()


@dataclass(slots=True)
class _Sums:
    debits_pending: int = 0
    debits_posted: int = 0
    credits_pending: int = 0
    credits_posted: int = 0


class Auditor:
    """Takes transfers one by one in the order recorded, so that a database can stream them."""

    def __init__(self, accounts: Iterable[LedgerAccount]) -> None:
        self.accounts = {account.id: account for account in accounts}
        self.broken: list[BrokenInvariant] = []
        self._open: dict[TransferId, Transfer] = {}
        self._refundable: dict[TransferId, tuple[LedgerAccountId, LedgerAccountId, int]] = {}
        self._seen: set[TransferId] = set()
        self._sums: dict[LedgerAccountId, _Sums] = defaultdict(_Sums)

    @property
    def open_holds(self) -> dict[TransferId, Transfer]:
        """The pending transfers that nothing resolved so far."""
        return dict(self._open)

    def add(self, transfer: Transfer) -> None:
        """Check one transfer against those before it."""
        if transfer.id in self._seen:
            self._break("ids_unique", transfer.id, "recorded twice")
        self._seen.add(transfer.id)
        known = transfer.debit in self.accounts and transfer.credit in self.accounts
        if transfer.amount.micro <= 0 or transfer.debit == transfer.credit or not known:
            self._break("transfers_well_formed", transfer.id, f"{transfer}")
        if transfer.kind is TransferKind.PENDING:
            self._open[transfer.id] = transfer
            self._count(transfer, pending=transfer.amount.micro)
        elif transfer.kind is TransferKind.POSTED:
            self._count(transfer, posted=transfer.amount.micro)
        else:
            self._resolve(transfer)
        if transfer.refunds is not None:
            self._refund(transfer, transfer.refunds)
        elif transfer.kind in PAYING_KINDS:
            self._refundable[transfer.id] = (transfer.debit, transfer.credit, transfer.amount.micro)

    def finish(self) -> tuple[BrokenInvariant, ...]:
        """Compare the sums with the ledger accounts; all that is broken, in the order found."""
        for account in self.accounts.values():
            self._check_account(account)
        for kind in ("posted", "pending"):
            debits = sum(getattr(account, f"debits_{kind}").micro for account in self.accounts.values())
            credits_ = sum(getattr(account, f"credits_{kind}").micro for account in self.accounts.values())
            if debits != credits_:
                self._break("sum_zero", kind, f"debits {debits}, credits {credits_}")
        return tuple(self.broken)

    def _break(self, name: str, subject: str, detail: str) -> None:
        self.broken.append(BrokenInvariant(name, subject, detail))

    def _count(self, transfer: Transfer, *, pending: int = 0, posted: int = 0) -> None:
        debit, credit = self._sums[transfer.debit], self._sums[transfer.credit]
        debit.debits_pending += pending
        debit.debits_posted += posted
        credit.credits_pending += pending
        credit.credits_posted += posted

    def _resolve(self, transfer: Transfer) -> None:
        pending = None if transfer.resolves is None else self._open.pop(transfer.resolves, None)
        posted = transfer.amount.micro if transfer.kind is TransferKind.POST_PENDING else 0
        if pending is None:
            self._break("pending_resolved_once", transfer.id, f"{transfer.resolves} is not an open hold")
            self._count(transfer, posted=posted)
            return
        same = (transfer.debit, transfer.credit) == (pending.debit, pending.credit)
        if not same or transfer.amount > pending.amount:
            self._break("pending_resolved_once", transfer.id, f"{transfer} does not fit {pending}")
        self._count(pending, pending=-pending.amount.micro)
        self._count(transfer, posted=posted)

    def _refund(self, transfer: Transfer, payment_id: TransferId) -> None:
        payment = self._refundable.get(payment_id)
        if payment is None:
            self._break("refunds_within_paid", transfer.id, f"{payment_id} is not a payment")
            return
        source, receiver, left = payment
        left -= transfer.amount.micro
        if left < 0 or (transfer.credit, transfer.debit) != (source, receiver):
            self._break(
                "refunds_within_paid", transfer.id, f"{-left} over what {payment_id} paid, or elsewhere"
            )
        self._refundable[payment_id] = (source, receiver, left)

    def _check_account(self, account: LedgerAccount) -> None:
        sums = self._sums[account.id]
        for name in ("debits_pending", "debits_posted", "credits_pending", "credits_posted"):
            counter: Money = getattr(account, name)
            if counter.micro != getattr(sums, name):
                detail = f"{name} is {counter.micro}, its transfers sum to {getattr(sums, name)}"
                self._break("counters_match", account.id, detail)
            if counter.micro < 0:
                self._break("counters_not_negative", account.id, f"{name} is {counter.micro}")
        if account.available.micro < 0:
            self._break("within_limits", account.id, f"{-account.available.micro} below zero")
