"""Sound books pass; each way of corrupting them breaks the invariant of that name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import (
    REVENUE,
    LedgerAccount,
    cash,
    cash_id,
    gateway,
    gateway_id,
    platform_accounts,
)
from starverse.domain.ledger.invariants import INVARIANTS, audit
from starverse.domain.ledger.posting import LedgerState, apply
from starverse.domain.ledger.transfers import Purpose, Transfer, hold, move, post_hold, refund, void_hold
from starverse.domain.money import Money

NOW = datetime(2026, 3, 10, tzinfo=UTC)
TEAM = TeamId("t1")
CASH = cash_id(TEAM)
TOP_UP = move(TransferId("top"), gateway_id("mock"), CASH, Money(100), Purpose.TOP_UP)
HELD = hold(TransferId("held"), CASH, REVENUE, Money(40))
POSTED = post_hold(TransferId("posted"), HELD, Money(30))
BACK = refund(TransferId("back"), POSTED, Money(20))
OPEN = hold(TransferId("open"), CASH, REVENUE, Money(5))

Books = tuple[dict[LedgerAccountId, LedgerAccount], list[Transfer]]


def books() -> Books:
    accounts = (*platform_accounts(), gateway("mock"), cash(TEAM))
    state = LedgerState({account.id: account for account in accounts})
    posting = apply(state, [TOP_UP, HELD, POSTED, BACK, OPEN], NOW)
    assert posting.outcomes[0].ok
    return dict(posting.state.accounts), list(posting.created)


def set_cash(name: str, micro: int) -> Callable[[Books], None]:
    def corrupt(books: Books) -> None:
        changes: dict[str, Any] = {name: Money(micro)}
        books[0][CASH] = replace(books[0][CASH], **changes)

    return corrupt


def add(transfer: Transfer) -> Callable[[Books], None]:
    return lambda books: books[1].append(transfer)


CORRUPTIONS: dict[str, tuple[Callable[[Books], None], str]] = {
    "a counter too high": (set_cash("credits_posted", 101), "counters_match"),
    "credits without debits": (set_cash("credits_posted", 121), "sum_zero"),
    "pending credits without debits": (set_cash("credits_pending", 1), "sum_zero"),
    "a wallet below zero": (set_cash("debits_posted", 131), "within_limits"),
    "a wallet below zero by its holds": (set_cash("debits_pending", 121), "within_limits"),
    "a negative counter": (set_cash("debits_pending", -1), "counters_not_negative"),
    "a transfer recorded twice": (add(TOP_UP), "ids_unique"),
    "a transfer nobody counted": (add(replace(TOP_UP, id=TransferId("other"))), "counters_match"),
    "a transfer of nothing": (
        add(replace(TOP_UP, id=TransferId("z"), amount=Money(0))),
        "transfers_well_formed",
    ),
    "a transfer to nowhere": (
        add(replace(TOP_UP, id=TransferId("z"), credit=LedgerAccountId("nowhere"))),
        "transfers_well_formed",
    ),
    "a hold resolved twice": (add(void_hold(TransferId("z"), HELD)), "pending_resolved_once"),
    "a hold posted for more": (add(post_hold(TransferId("z"), OPEN, Money(6))), "pending_resolved_once"),
    "a hold posted elsewhere": (
        add(replace(post_hold(TransferId("z"), OPEN), debit=gateway_id("mock"))),
        "pending_resolved_once",
    ),
    "more refunded than paid": (add(refund(TransferId("z"), POSTED, Money(11))), "refunds_within_paid"),
    "refunded to someone else": (
        add(replace(refund(TransferId("z"), POSTED, Money(1)), credit=gateway_id("mock"))),
        "refunds_within_paid",
    ),
    "a hold refunded": (add(refund(TransferId("z"), HELD, Money(1))), "refunds_within_paid"),
}


def test_sound_books_break_nothing() -> None:
    accounts, transfers = books()

    assert audit(accounts.values(), transfers) == ()


@pytest.mark.parametrize(("corrupt", "name"), CORRUPTIONS.values(), ids=CORRUPTIONS.keys())
def test_a_corruption_breaks_the_invariant_of_its_name(corrupt: Callable[[Books], None], name: str) -> None:
    accounts, transfers = corrupted = books()
    corrupt(corrupted)

    assert name in {broken.name for broken in audit(accounts.values(), transfers)}


def test_every_invariant_has_a_corruption_that_breaks_it() -> None:
    assert {name for _, name in CORRUPTIONS.values()} == set(INVARIANTS)


def test_money_that_a_missing_transfer_moved_is_noticed() -> None:
    accounts, transfers = books()

    broken = audit(accounts.values(), transfers[:-2])

    assert {found.name for found in broken} == {"counters_match"}
