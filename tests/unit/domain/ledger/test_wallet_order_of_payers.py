"""A wallet lists what pays first first, and counts only what may pay at the instant asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from starverse.domain.ids import LedgerAccountId, TeamId
from starverse.domain.ledger.accounts import LedgerAccount, cash, coupon, credit_grant
from starverse.domain.ledger.wallet import wallet_of
from starverse.domain.money import Money

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
TEAM = TeamId("t1")


def grant(name: str, micro: int, expires_days: int | None, held: int = 0) -> LedgerAccount:
    expires_at = None if expires_days is None else NOW + timedelta(days=expires_days)
    account = credit_grant(LedgerAccountId(name), TEAM, expires_at=expires_at)
    return replace(account, credits_posted=Money(micro), debits_pending=Money(held))


def purse(micro: int) -> LedgerAccount:
    return replace(cash(TEAM), credits_posted=Money(micro))


ACCOUNTS = [
    grant("never", 5, None),
    grant("late", 20, 30, held=4),
    purse(100),
    grant("soon", 10, 1),
    grant("gone", 50, 0),
    replace(coupon(LedgerAccountId("c-now"), TEAM, NOW), credits_posted=Money(7)),
    replace(coupon(LedgerAccountId("c-later"), TEAM, NOW + timedelta(seconds=1)), credits_posted=Money(8)),
]


def test_earliest_expiry_pays_first_and_cash_last() -> None:
    wallet = wallet_of(TEAM, ACCOUNTS)

    assert [account.id for account in wallet.spendable(NOW)] == ["soon", "late", "never", "cash:t1"]


def test_free_money_leaves_out_holds_expired_credit_and_coupons() -> None:
    wallet = wallet_of(TEAM, ACCOUNTS)

    assert wallet.free(NOW) == Money(10 + 16 + 5 + 100)
    assert wallet.held == Money(4)


def test_credit_holds_until_the_instant_before_its_expiry() -> None:
    wallet = wallet_of(TEAM, ACCOUNTS)

    assert "gone" in [account.id for account in wallet.credits_at(NOW - timedelta(microseconds=1))]
    assert "gone" not in [account.id for account in wallet.credits_at(NOW)]


def test_a_coupon_pays_nothing_used_before_it_was_redeemed() -> None:
    wallet = wallet_of(TEAM, ACCOUNTS)

    assert [account.id for account in wallet.coupons_at(NOW)] == ["c-now"]
    assert len(wallet.coupons_at(NOW + timedelta(seconds=1))) == 2


def test_a_team_without_cash_account_is_a_fault() -> None:
    with pytest.raises(ValueError, match="cash accounts"):
        wallet_of(TEAM, [grant("only", 5, None)])
