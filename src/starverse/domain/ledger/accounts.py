"""Ledger accounts: where money stands. Never just "account", which is a person.

Every transfer debits one ledger account and credits another, so all debits equal all credits. What a team
owns is owed to it: its accounts grow by credits and fall by debits. Money flows like this::

    gateway --top-up--> cash   --charge--> revenue
    gifts   --gift----> credit --charge--> revenue
    gifts   --coupon--> coupon --charge--> revenue
    write_off ------residue nobody pays--> revenue

A refund runs the same way back. Each kind has the limit that keeps it from going below zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from starverse.domain.ids import LedgerAccountId, TeamId
from starverse.domain.money import ZERO, Money


class AccountKind(Enum):
    """What a ledger account is for; the first three belong to a team."""

    CASH = "cash"
    CREDIT = "credit"
    """One gift of credit with its own expiry (sign-up credit, goodwill)."""
    COUPON = "coupon"
    """One redeemed coupon; pays a share of usage only (pricing.md, Paying a charge)."""
    GATEWAY = "gateway"
    """The world outside, one per payment provider: what came in less what was paid back."""
    REVENUE = "revenue"
    GIFTS = "gifts"
    """Where credit and coupons come from: what the operator gave away."""
    WRITE_OFF = "write_off"
    """What reality forced and nobody pays, kept in sight instead of below zero in a wallet."""


class Limit(Enum):
    """What a ledger account may not do; pending amounts count against it, pending incomes do not."""

    DEBITS_WITHIN_CREDITS = "debits_must_not_exceed_credits"
    CREDITS_WITHIN_DEBITS = "credits_must_not_exceed_debits"


TEAM_KINDS = frozenset({AccountKind.CASH, AccountKind.CREDIT, AccountKind.COUPON})

LIMIT_OF_KIND = {
    AccountKind.CASH: Limit.DEBITS_WITHIN_CREDITS,
    AccountKind.CREDIT: Limit.DEBITS_WITHIN_CREDITS,
    AccountKind.COUPON: Limit.DEBITS_WITHIN_CREDITS,
    AccountKind.REVENUE: Limit.DEBITS_WITHIN_CREDITS,
    AccountKind.GATEWAY: Limit.CREDITS_WITHIN_DEBITS,
    AccountKind.GIFTS: Limit.CREDITS_WITHIN_DEBITS,
    AccountKind.WRITE_OFF: Limit.CREDITS_WITHIN_DEBITS,
}
"""The limit that each kind carries: no ledger account is without one."""

REVENUE = LedgerAccountId("revenue")
GIFTS = LedgerAccountId("gifts")
WRITE_OFF = LedgerAccountId("write_off")


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """A ledger account and its four counters; the counters only sum up transfers.

    ``team_id`` is ``None`` for the platform's own. ``expires_at`` (credit, coupon) and ``redeemed_at``
    (coupon) say which usage it may pay; the ledger itself lets late bills reach expired money, since usage
    before the expiry may be metered after it.
    """

    id: LedgerAccountId
    kind: AccountKind
    team_id: TeamId | None = None
    label: str = ""
    expires_at: datetime | None = None
    redeemed_at: datetime | None = None
    debits_pending: Money = ZERO
    debits_posted: Money = ZERO
    credits_pending: Money = ZERO
    credits_posted: Money = ZERO

    @property
    def limit(self) -> Limit:
        return LIMIT_OF_KIND[self.kind]

    @property
    def balance(self) -> Money:
        """What stands posted, in the account's own direction; never negative within its limit."""
        if self.limit is Limit.DEBITS_WITHIN_CREDITS:
            return self.credits_posted - self.debits_posted
        return self.debits_posted - self.credits_posted

    @property
    def held(self) -> Money:
        """What open holds keep back from :attr:`available`."""
        return self.debits_pending if self.limit is Limit.DEBITS_WITHIN_CREDITS else self.credits_pending

    @property
    def available(self) -> Money:
        """What can still leave: the balance less open holds."""
        return self.balance - self.held


def cash_id(team_id: TeamId) -> LedgerAccountId:
    """The id of the one cash account of a team."""
    return LedgerAccountId(f"cash:{team_id}")


def gateway_id(provider: str) -> LedgerAccountId:
    """The id of the ledger account that stands for a payment provider, such as ``mock``."""
    return LedgerAccountId(f"gateway:{provider}")


def cash(team_id: TeamId) -> LedgerAccount:
    """A team's cash, empty."""
    return LedgerAccount(cash_id(team_id), AccountKind.CASH, team_id)


def credit_grant(
    account_id: LedgerAccountId, team_id: TeamId, label: str = "", expires_at: datetime | None = None
) -> LedgerAccount:
    """One gift of credit, empty until a transfer from ``gifts`` fills it; ``None`` never expires."""
    return LedgerAccount(account_id, AccountKind.CREDIT, team_id, label, expires_at)


def coupon(
    account_id: LedgerAccountId,
    team_id: TeamId,
    redeemed_at: datetime,
    label: str = "",
    expires_at: datetime | None = None,
) -> LedgerAccount:
    """One redeemed coupon, empty until a transfer from ``gifts`` fills it."""
    return LedgerAccount(account_id, AccountKind.COUPON, team_id, label, expires_at, redeemed_at)


def gateway(provider: str) -> LedgerAccount:
    """The ledger account of a payment provider, empty."""
    return LedgerAccount(gateway_id(provider), AccountKind.GATEWAY, label=provider)


def platform_accounts() -> tuple[LedgerAccount, ...]:
    """The ledger accounts that every installation has, empty: revenue, gifts, write_off."""
    return (
        LedgerAccount(REVENUE, AccountKind.REVENUE),
        LedgerAccount(GIFTS, AccountKind.GIFTS),
        LedgerAccount(WRITE_OFF, AccountKind.WRITE_OFF),
    )
