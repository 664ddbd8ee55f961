"""What a team owns and may spend, read from its ledger accounts, and which of them pay first.

How much of a charge coupons, credit and cash pay is decided by pricing (pricing.md, Paying a charge); here
those amounts are spread over the ledger accounts, earliest expiry first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from starverse.domain.ids import TeamId
from starverse.domain.ledger.accounts import AccountKind, LedgerAccount
from starverse.domain.money import Money, total

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wallet:
    """A team's ledger accounts: cash, then credit grants and coupons by expiry (those without one last)."""

    team_id: TeamId
    cash: LedgerAccount
    credits: tuple[LedgerAccount, ...] = ()
    coupons: tuple[LedgerAccount, ...] = ()

    @property
    def held(self) -> Money:
        """What open holds keep back, over all of the team's ledger accounts."""
        return total([account.held for account in (self.cash, *self.credits, *self.coupons)])

    def spendable(self, at: datetime) -> tuple[LedgerAccount, ...]:
        """What pays usage at an instant after coupons, first payer first: unexpired credit, then cash."""
        return (*self.credits_at(at), self.cash)

    def credits_at(self, at: datetime) -> tuple[LedgerAccount, ...]:
        """Credit grants not expired at ``at``."""
        return tuple(account for account in self.credits if _unexpired(account, at))

    def coupons_at(self, at: datetime) -> tuple[LedgerAccount, ...]:
        """Coupons redeemed and not expired at ``at``."""
        return tuple(
            account
            for account in self.coupons
            if _unexpired(account, at) and (account.redeemed_at is None or account.redeemed_at <= at)
        )

    def free(self, at: datetime) -> Money:
        """Credit and cash that no hold keeps back; coupons are left out: they pay shares only."""
        return available(self.spendable(at))


def wallet_of(team_id: TeamId, accounts: Iterable[LedgerAccount]) -> Wallet:
    """Sort a team's ledger accounts; raises ``ValueError`` when its cash account is not among them."""
    own = [account for account in accounts if account.team_id == team_id]
    cash = [account for account in own if account.kind is AccountKind.CASH]
    if len(cash) != 1:
        raise ValueError(f"team {team_id} has {len(cash)} cash accounts; open exactly one with the team")
    return Wallet(
        team_id,
        cash[0],
        _by_expiry(account for account in own if account.kind is AccountKind.CREDIT),
        _by_expiry(account for account in own if account.kind is AccountKind.COUPON),
    )


def available(accounts: Iterable[LedgerAccount]) -> Money:
    """What can still leave these ledger accounts, together."""
    return total([account.available for account in accounts])


def _unexpired(account: LedgerAccount, at: datetime) -> bool:
    return account.expires_at is None or at < account.expires_at


def _by_expiry(accounts: Iterable[LedgerAccount]) -> tuple[LedgerAccount, ...]:
    return tuple(sorted(accounts, key=lambda account: (account.expires_at or _NEVER, account.id)))
