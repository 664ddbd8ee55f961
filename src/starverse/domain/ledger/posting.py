"""Posting: decide what happens to groups of transfers, over the touched part of the books.

A group is all or nothing; its transfers see the ones before them. Refusals are values that name the first
failing transfer. A repeat of a recorded group with the same content answers ``EXISTS`` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from starverse.domain.ids import LedgerAccountId, TransferId
from starverse.domain.ledger.accounts import LedgerAccount, Limit
from starverse.domain.ledger.transfers import PAYING_KINDS, RESOLVING_KINDS, Transfer, TransferKind
from starverse.domain.money import ZERO, Money

COUNTER_MICRO_MAX = 2**63 - 1
"""What a 64-bit counter of the database can hold."""


class Reason(Enum):
    """Why a transfer is refused."""

    NOT_ENOUGH_MONEY = "not_enough_money"
    CREDITS_WOULD_EXCEED_DEBITS = "credits_would_exceed_debits"
    ACCOUNT_UNKNOWN = "account_unknown"
    SAME_ACCOUNT_TWICE = "same_account_twice"
    AMOUNT_NOT_POSITIVE = "amount_not_positive"
    AMOUNT_TOO_LARGE = "amount_too_large"
    ID_HAS_OTHER_CONTENT = "id_has_other_content"
    GROUP_RECORDED_IN_PART = "group_recorded_in_part"
    ID_TWICE_IN_GROUP = "id_twice_in_group"
    FIELDS_DO_NOT_FIT_KIND = "fields_do_not_fit_kind"
    PENDING_UNKNOWN = "pending_unknown"
    PENDING_ALREADY_POSTED = "pending_already_posted"
    PENDING_ALREADY_VOIDED = "pending_already_voided"
    PENDING_ALREADY_EXPIRED = "pending_already_expired"
    PENDING_OVERDUE = "pending_overdue"
    """Its ``expires_at`` has passed: it can be voided or expired, not posted."""
    PENDING_NOT_OVERDUE = "pending_not_overdue"
    EXCEEDS_PENDING = "exceeds_pending"
    RETURNS_LESS_THAN_PENDING = "returns_less_than_pending"
    ACCOUNTS_DO_NOT_MATCH = "accounts_do_not_match"
    """A resolution keeps its hold's accounts; a refund swaps those of the payment."""
    PAYMENT_UNKNOWN = "payment_unknown"
    PAYMENT_NOT_REFUNDABLE = "payment_not_refundable"
    EXCEEDS_PAID = "exceeds_paid"


ALREADY_RESOLVED = {
    TransferKind.POST_PENDING: Reason.PENDING_ALREADY_POSTED,
    TransferKind.VOID_PENDING: Reason.PENDING_ALREADY_VOIDED,
    TransferKind.EXPIRE_PENDING: Reason.PENDING_ALREADY_EXPIRED,
}


class Status(Enum):
    CREATED = "created"
    EXISTS = "exists"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first transfer of a group that cannot be: which, its place in the group, why.

    ``missing`` is how much too little there was (money, pending amount, amount paid), where that is the
    reason; ``account_id`` the ledger account concerned, where there is one.
    """

    transfer_id: TransferId
    index: int
    reason: Reason
    account_id: LedgerAccountId | None = None
    missing: Money = ZERO


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one group; ``refusal`` is set if and only if it was refused."""

    status: Status
    refusal: Refusal | None = None

    @property
    def ok(self) -> bool:
        """Whether the books now hold the group, newly or from before."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The part of the books that a posting touches.

    It must hold both accounts of every transfer given (those that exist), every recorded transfer whose id
    is given, resolved or refunded; and of those the ``resolutions`` (pending id -> the kind that resolved
    it) and the sums ``refunded`` so far. Holding more does no harm.
    """

    accounts: Mapping[LedgerAccountId, LedgerAccount] = field(default_factory=dict)
    transfers: Mapping[TransferId, Transfer] = field(default_factory=dict)
    resolutions: Mapping[TransferId, TransferKind] = field(default_factory=dict)
    refunded: Mapping[TransferId, Money] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Posting:
    """The outcomes, one per group; the transfers to record, in order; accounts changed; the state after."""

    outcomes: tuple[Outcome, ...]
    created: tuple[Transfer, ...]
    changed: tuple[LedgerAccount, ...]
    state: LedgerState


def apply(state: LedgerState, transfers: Sequence[Transfer], now: datetime) -> Posting:
    """Decide one group: :attr:`Posting.outcomes` has one entry. An empty group is created, moving nothing."""
    return apply_groups(state, (transfers,), now)


def apply_groups(state: LedgerState, groups: Sequence[Sequence[Transfer]], now: datetime) -> Posting:
    """Decide groups one after the other, each all or nothing and seeing those before it.

    Linear in the transfers given and in the size of ``state``. ``now`` decides whether a hold is overdue.
    """
    books = _Books(state)
    created: list[Transfer] = []
    outcomes = tuple([_post_group(books, group, now, created) for group in groups])
    changed = {
        account_id: counters.account() for account_id, counters in books.counters.items() if counters.differ()
    }
    after = LedgerState(
        accounts={**state.accounts, **changed},
        transfers=books.transfers,
        resolutions=books.resolutions,
        refunded={key: Money(micro) for key, micro in books.refunded.items()},
    )
    return Posting(outcomes, tuple(created), tuple(changed.values()), after)


class _Counters:
    """One account's counters in micro-yuan while a posting is decided: integers, because this is hot."""

    __slots__ = (
        "before",
        "credits_pending",
        "credits_posted",
        "debits_limited",
        "debits_pending",
        "debits_posted",
    )

    def __init__(self, account: LedgerAccount) -> None:
        self.before = account
        self.debits_limited = account.limit is Limit.DEBITS_WITHIN_CREDITS
        self.debits_pending = account.debits_pending.micro
        self.debits_posted = account.debits_posted.micro
        self.credits_pending = account.credits_pending.micro
        self.credits_posted = account.credits_posted.micro

    def differ(self) -> bool:
        before = self.before
        return (
            self.debits_posted != before.debits_posted.micro
            or self.credits_posted != before.credits_posted.micro
            or self.debits_pending != before.debits_pending.micro
            or self.credits_pending != before.credits_pending.micro
        )

    def account(self) -> LedgerAccount:
        before = self.before
        return LedgerAccount(
            before.id,
            before.kind,
            before.team_id,
            before.label,
            before.expires_at,
            before.redeemed_at,
            Money(self.debits_pending),
            Money(self.debits_posted),
            Money(self.credits_pending),
            Money(self.credits_posted),
        )


class _Books:
    """The working copy of a state."""

    __slots__ = ("counters", "refunded", "resolutions", "transfers")

    def __init__(self, state: LedgerState) -> None:
        self.counters = {key: _Counters(account) for key, account in state.accounts.items()}
        self.transfers = dict(state.transfers)
        self.resolutions = dict(state.resolutions)
        self.refunded = {key: amount.micro for key, amount in state.refunded.items()}

    def add(self, transfer: Transfer, sign: int = 1) -> None:
        """Record a transfer that was found right, or with ``sign`` -1 take it back."""
        debit, credit = self.counters[transfer.debit], self.counters[transfer.credit]
        amount = sign * transfer.amount.micro
        kind = transfer.kind
        if kind is TransferKind.PENDING:
            debit.debits_pending += amount
            credit.credits_pending += amount
        elif kind in PAYING_KINDS:
            debit.debits_posted += amount
            credit.credits_posted += amount
        if transfer.resolves is not None:
            released = sign * self.transfers[transfer.resolves].amount.micro
            debit.debits_pending -= released
            credit.credits_pending -= released
            if sign > 0:
                self.resolutions[transfer.resolves] = kind
            else:
                del self.resolutions[transfer.resolves]
        if transfer.refunds is not None:
            self.refunded[transfer.refunds] = self.refunded.get(transfer.refunds, 0) + amount
        if sign > 0:
            self.transfers[transfer.id] = transfer
        else:
            del self.transfers[transfer.id]


_CREATED = Outcome(Status.CREATED)
_EXISTS = Outcome(Status.EXISTS)


def _post_group(books: _Books, group: Sequence[Transfer], now: datetime, created: list[Transfer]) -> Outcome:
    recorded = books.transfers
    if any(transfer.id in recorded for transfer in group):
        return _repeat(books, group)
    for index, transfer in enumerate(group):
        refusal = _refusal(books, transfer, index, now)
        if refusal is not None:
            for earlier in reversed(group[:index]):
                books.add(earlier, -1)
            return Outcome(Status.REFUSED, refusal)
        books.add(transfer)
    created.extend(group)
    return _CREATED


def _repeat(books: _Books, group: Sequence[Transfer]) -> Outcome:
    """A group of which something is recorded: the same again, or a clash."""
    for index, transfer in enumerate(group):
        recorded = books.transfers.get(transfer.id)
        if recorded is None:
            return _refuse(transfer, index, Reason.GROUP_RECORDED_IN_PART)
        if recorded != transfer:
            return _refuse(transfer, index, Reason.ID_HAS_OTHER_CONTENT)
    return _EXISTS


def _refuse(transfer: Transfer, index: int, reason: Reason) -> Outcome:
    return Outcome(Status.REFUSED, Refusal(transfer.id, index, reason))


def _refusal(books: _Books, transfer: Transfer, index: int, now: datetime) -> Refusal | None:
    """Why this transfer cannot follow what is recorded, or ``None``."""
    reason: Reason | None = None
    missing = 0
    account_id: LedgerAccountId | None = None
    debit, credit = books.counters.get(transfer.debit), books.counters.get(transfer.credit)
    amount = transfer.amount.micro
    if transfer.id in books.transfers:
        reason = Reason.ID_TWICE_IN_GROUP
    elif not _fields_fit(transfer):
        reason = Reason.FIELDS_DO_NOT_FIT_KIND
    elif amount <= 0:
        reason = Reason.AMOUNT_NOT_POSITIVE
    elif transfer.debit == transfer.credit:
        reason, account_id = Reason.SAME_ACCOUNT_TWICE, transfer.debit
    elif debit is None or credit is None:
        reason, account_id = Reason.ACCOUNT_UNKNOWN, transfer.debit if debit is None else transfer.credit
    elif transfer.resolves is not None:
        reason, missing = _against_pending(books, transfer, transfer.resolves, now)
    else:
        if transfer.refunds is not None:
            reason, missing = _against_payment(books, transfer, transfer.refunds)
        if reason is None:
            reason, missing = _against_limits(debit, credit, amount)
            account_id = transfer.debit if reason is Reason.NOT_ENOUGH_MONEY else transfer.credit
    if reason is None:
        return None
    return Refusal(transfer.id, index, reason, account_id, Money(missing))


def _fields_fit(transfer: Transfer) -> bool:
    kind = transfer.kind
    if kind is TransferKind.POSTED:
        return transfer.resolves is None and transfer.expires_at is None
    if kind is TransferKind.PENDING:
        return transfer.resolves is None and transfer.refunds is None
    return (
        kind in RESOLVING_KINDS
        and transfer.resolves is not None
        and transfer.refunds is None
        and transfer.expires_at is None
    )


_Verdict = tuple[Reason | None, int]


def _against_limits(debit: _Counters, credit: _Counters, amount: int) -> _Verdict:
    """Limits count what is pending out, never what is pending in."""
    debits = debit.debits_posted + debit.debits_pending + amount
    credits_ = credit.credits_posted + credit.credits_pending + amount
    if debits > COUNTER_MICRO_MAX or credits_ > COUNTER_MICRO_MAX:
        return Reason.AMOUNT_TOO_LARGE, 0
    if debit.debits_limited and debits > debit.credits_posted:
        return Reason.NOT_ENOUGH_MONEY, debits - debit.credits_posted
    if not credit.debits_limited and credits_ > credit.debits_posted:
        return Reason.CREDITS_WOULD_EXCEED_DEBITS, credits_ - credit.debits_posted
    return None, 0


def _against_pending(books: _Books, transfer: Transfer, pending_id: TransferId, now: datetime) -> _Verdict:
    """A hold is resolved once, in time, within its amount, on its own accounts."""
    pending = books.transfers.get(pending_id)
    if pending is None or pending.kind is not TransferKind.PENDING:
        return Reason.PENDING_UNKNOWN, 0
    resolved = books.resolutions.get(pending_id)
    if resolved is not None:
        return ALREADY_RESOLVED[resolved], 0
    if (transfer.debit, transfer.credit) != (pending.debit, pending.credit):
        return Reason.ACCOUNTS_DO_NOT_MATCH, 0
    overdue = pending.expires_at is not None and now >= pending.expires_at
    over = transfer.amount.micro - pending.amount.micro
    if over > 0:
        return Reason.EXCEEDS_PENDING, over
    if transfer.kind is TransferKind.POST_PENDING:
        return (Reason.PENDING_OVERDUE, 0) if overdue else (None, 0)
    if over < 0:
        return Reason.RETURNS_LESS_THAN_PENDING, -over
    if transfer.kind is TransferKind.EXPIRE_PENDING and not overdue:
        return Reason.PENDING_NOT_OVERDUE, 0
    return None, 0


def _against_payment(books: _Books, transfer: Transfer, payment_id: TransferId) -> _Verdict:
    """A refund goes back the way the money came, never more than was paid."""
    payment = books.transfers.get(payment_id)
    if payment is None:
        return Reason.PAYMENT_UNKNOWN, 0
    if payment.kind not in PAYING_KINDS or payment.refunds is not None:
        return Reason.PAYMENT_NOT_REFUNDABLE, 0
    if (transfer.debit, transfer.credit) != (payment.credit, payment.debit):
        return Reason.ACCOUNTS_DO_NOT_MATCH, 0
    over = books.refunded.get(payment_id, 0) + transfer.amount.micro - payment.amount.micro
    return (Reason.EXCEEDS_PAID, over) if over > 0 else (None, 0)
