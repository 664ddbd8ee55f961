"""Tables in the style of TigerBeetle's: a step, its outcome, and what the wallet shows after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import (
    GIFTS,
    REVENUE,
    WRITE_OFF,
    cash,
    cash_id,
    coupon,
    credit_grant,
    gateway,
    gateway_id,
    platform_accounts,
)
from starverse.domain.ledger.invariants import audit
from starverse.domain.ledger.posting import LedgerState, Reason, Refusal, Status, apply, apply_groups
from starverse.domain.ledger.transfers import (
    Purpose,
    Transfer,
    TransferKind,
    expire_hold,
    hold,
    move,
    post_hold,
    refund,
    settle_hold,
    void_hold,
)
from starverse.domain.money import Money

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
TEAM = TeamId("t1")
CASH = cash_id(TEAM)
CREDIT = LedgerAccountId("credit-1")
COUPON = LedgerAccountId("coupon-1")
GATEWAY = gateway_id("mock")
NOWHERE = LedgerAccountId("nowhere")


def books() -> LedgerState:
    accounts = (
        *platform_accounts(),
        gateway("mock"),
        cash(TEAM),
        credit_grant(CREDIT, TEAM),
        coupon(COUPON, TEAM, redeemed_at=NOW),
    )
    return LedgerState({account.id: account for account in accounts})


def tid(name: str) -> TransferId:
    return TransferId(name)


def top_up(name: str, micro: int) -> Transfer:
    return move(tid(name), GATEWAY, CASH, Money(micro), Purpose.TOP_UP)


def charge(name: str, micro: int) -> Transfer:
    return move(tid(name), CASH, REVENUE, Money(micro), Purpose.CHARGE)


def take(name: str, micro: int) -> Transfer:
    return hold(tid(name), CASH, REVENUE, Money(micro))


H = take("h", 40)
OVERDUE = replace(take("o", 40), expires_at=NOW)
LATER = replace(take("l", 40), expires_at=NOW + timedelta(microseconds=1))
PAID = charge("paid", 30)
CREATED = Status.CREATED
EXISTS = Status.EXISTS


@dataclass(frozen=True)
class Step:
    """A group, what is expected of it, and cash after it: (balance, held)."""

    group: list[Transfer]
    expected: Status | Reason
    balance: int
    held: int = 0


STORIES = {
    "a top-up, a charge, nothing left": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([charge("b", 100)], CREATED, 0),
        Step([charge("c", 1)], Reason.NOT_ENOUGH_MONEY, 0),
    ],
    "a hold keeps money back until it is posted; the rest returns": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([H], CREATED, 100, 40),
        Step([charge("b", 61)], Reason.NOT_ENOUGH_MONEY, 100, 40),
        Step([charge("c", 60)], CREATED, 40, 40),
        Step([post_hold(tid("p"), H, Money(25))], CREATED, 15, 0),
        Step([charge("d", 15)], CREATED, 0),
    ],
    "a hold posted whole": [
        Step([top_up("a", 40)], CREATED, 40),
        Step([H], CREATED, 40, 40),
        Step([post_hold(tid("p"), H)], CREATED, 0),
    ],
    "a void returns all": [
        Step([top_up("a", 40)], CREATED, 40),
        Step([H], CREATED, 40, 40),
        Step([void_hold(tid("v"), H)], CREATED, 40),
    ],
    "settling for nothing is a void": [
        Step([top_up("a", 40)], CREATED, 40),
        Step([H], CREATED, 40, 40),
        Step([settle_hold(tid("s"), H, Money(0))], CREATED, 40),
        Step([post_hold(tid("p"), H)], Reason.PENDING_ALREADY_VOIDED, 40),
    ],
    "a hold is resolved once": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([H], CREATED, 100, 40),
        Step([post_hold(tid("p"), H, Money(1))], CREATED, 99),
        Step([post_hold(tid("p2"), H, Money(1))], Reason.PENDING_ALREADY_POSTED, 99),
        Step([void_hold(tid("v"), H)], Reason.PENDING_ALREADY_POSTED, 99),
        Step([post_hold(tid("p"), H, Money(1))], EXISTS, 99),
    ],
    "an overdue hold can only go back": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([OVERDUE], CREATED, 100, 40),
        Step([post_hold(tid("p"), OVERDUE)], Reason.PENDING_OVERDUE, 100, 40),
        Step([expire_hold(tid("x"), OVERDUE)], CREATED, 100),
        Step([void_hold(tid("v"), OVERDUE)], Reason.PENDING_ALREADY_EXPIRED, 100),
    ],
    "a hold does not expire before its instant": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([LATER], CREATED, 100, 40),
        Step([expire_hold(tid("x"), LATER)], Reason.PENDING_NOT_OVERDUE, 100, 40),
        Step([post_hold(tid("p"), LATER)], CREATED, 60),
    ],
    "a hold without an expiry never expires": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([H], CREATED, 100, 40),
        Step([expire_hold(tid("x"), H)], Reason.PENDING_NOT_OVERDUE, 100, 40),
    ],
    "a hold gives no more than it holds": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([H], CREATED, 100, 40),
        Step([post_hold(tid("p"), H, Money(41))], Reason.EXCEEDS_PENDING, 100, 40),
        Step([replace(void_hold(tid("v"), H), amount=Money(39))], Reason.RETURNS_LESS_THAN_PENDING, 100, 40),
        Step([replace(post_hold(tid("p"), H), debit=CREDIT)], Reason.ACCOUNTS_DO_NOT_MATCH, 100, 40),
        Step([post_hold(tid("p"), charge("a", 5))], Reason.PENDING_UNKNOWN, 100, 40),
        Step([post_hold(tid("p"), take("unknown", 5))], Reason.PENDING_UNKNOWN, 100, 40),
    ],
    "what is only pending in cannot be spent": [
        Step([hold(tid("in"), GATEWAY, CASH, Money(50), purpose=Purpose.TOP_UP)], CREATED, 0),
        Step([charge("b", 1)], Reason.NOT_ENOUGH_MONEY, 0),
    ],
    "a refund goes back to its source, never more than was paid": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([PAID], CREATED, 70),
        Step([refund(tid("r1"), PAID, Money(20))], CREATED, 90),
        Step([refund(tid("r2"), PAID, Money(11))], Reason.EXCEEDS_PAID, 90),
        Step([replace(refund(tid("r2"), PAID, Money(10)), credit=CREDIT)], Reason.ACCOUNTS_DO_NOT_MATCH, 90),
        Step([refund(tid("r2"), PAID, Money(10))], CREATED, 100),
        Step([refund(tid("r3"), PAID, Money(1))], Reason.EXCEEDS_PAID, 100),
        Step([refund(tid("r4"), refund(tid("r2"), PAID, Money(10)))], Reason.PAYMENT_NOT_REFUNDABLE, 100),
    ],
    "a refund of a posted hold is bounded by what was posted": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([H], CREATED, 100, 40),
        Step([post_hold(tid("p"), H, Money(25))], CREATED, 75),
        Step([refund(tid("r"), H)], Reason.PAYMENT_NOT_REFUNDABLE, 75),
        Step([refund(tid("r"), post_hold(tid("p"), H, Money(25)), Money(26))], Reason.EXCEEDS_PAID, 75),
        Step([refund(tid("r"), post_hold(tid("p"), H, Money(25)))], CREATED, 100),
    ],
    "a top-up is paid back to the gateway only while its money is there": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([charge("b", 1)], CREATED, 99),
        Step([refund(tid("r"), top_up("a", 100))], Reason.NOT_ENOUGH_MONEY, 99),
        Step([refund(tid("r"), top_up("a", 100), Money(99))], CREATED, 0),
        Step([refund(tid("r5"), top_up("never", 5))], Reason.PAYMENT_UNKNOWN, 0),
    ],
    "the gateway never pays back more than came in": [
        Step([top_up("a", 10)], CREATED, 10),
        Step([move(tid("g"), GIFTS, CREDIT, Money(90), Purpose.GIFT)], CREATED, 10),
        Step(
            [move(tid("x"), CREDIT, GATEWAY, Money(11), Purpose.REFUND)],
            Reason.CREDITS_WOULD_EXCEED_DEBITS,
            10,
        ),
    ],
    "a repeat changes nothing, another content is refused": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([top_up("a", 100)], EXISTS, 100),
        Step([top_up("a", 101)], Reason.ID_HAS_OTHER_CONTENT, 100),
        Step([replace(top_up("a", 100), subject="order-2")], Reason.ID_HAS_OTHER_CONTENT, 100),
    ],
    "a group is all or nothing and its members see each other": [
        Step([top_up("a", 100), charge("b", 60), charge("c", 50)], Reason.NOT_ENOUGH_MONEY, 0),
        Step([top_up("a", 100), charge("b", 60), charge("c", 40)], CREATED, 0),
        Step([top_up("a", 100), charge("b", 60), charge("c", 40)], EXISTS, 0),
        Step([top_up("a", 100), charge("d", 0)], Reason.GROUP_RECORDED_IN_PART, 0),
        Step([top_up("e", 1), top_up("e", 1)], Reason.ID_TWICE_IN_GROUP, 0),
        Step([], CREATED, 0),
    ],
    "a failed group gives holds and refunds back too": [
        Step([top_up("a", 100), H, PAID], CREATED, 70, 40),
        Step(
            [post_hold(tid("p"), H), refund(tid("r"), PAID), charge("big", 1000)],
            Reason.NOT_ENOUGH_MONEY,
            70,
            40,
        ),
        Step([void_hold(tid("p"), H), refund(tid("r"), PAID)], CREATED, 100),
    ],
    "in one group a hold too small is given back and the real amount moved": [
        Step([top_up("a", 100)], CREATED, 100),
        Step([H], CREATED, 100, 40),
        Step([void_hold(tid("v"), H), charge("c", 45)], CREATED, 55),
    ],
    "what makes no sense is refused with its reason": [
        Step([top_up("a", 0)], Reason.AMOUNT_NOT_POSITIVE, 0),
        Step([top_up("a", -5)], Reason.AMOUNT_NOT_POSITIVE, 0),
        Step([top_up("a", 2**63)], Reason.AMOUNT_TOO_LARGE, 0),
        Step([top_up("a", 2**63 - 1)], CREATED, 2**63 - 1),
        Step([top_up("b", 1)], Reason.AMOUNT_TOO_LARGE, 2**63 - 1),
        Step([replace(charge("c", 1), credit=CASH)], Reason.SAME_ACCOUNT_TWICE, 2**63 - 1),
        Step([replace(charge("c", 1), credit=NOWHERE)], Reason.ACCOUNT_UNKNOWN, 2**63 - 1),
        Step([replace(charge("c", 1), debit=NOWHERE)], Reason.ACCOUNT_UNKNOWN, 2**63 - 1),
    ],
    "what nobody pays is written off in sight, not below zero": [
        Step([top_up("a", 10)], CREATED, 10),
        Step([charge("b", 10), move(tid("w"), WRITE_OFF, REVENUE, Money(7), Purpose.WRITE_OFF)], CREATED, 0),
    ],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_each_step_answers_and_leaves_the_cash_expected(story: list[Step]) -> None:
    state = books()
    recorded: list[Transfer] = []
    for number, step in enumerate(story):
        posting = apply(state, step.group, NOW)
        (outcome,) = posting.outcomes
        answer = outcome.refusal.reason if outcome.refusal else outcome.status
        state = posting.state
        recorded += posting.created
        account = state.accounts[CASH]
        assert (answer, account.balance, account.held) == (
            step.expected,
            Money(step.balance),
            Money(step.held),
        ), f"step {number}"
        assert audit(state.accounts.values(), recorded) == ()


FITS_NO_KIND = {
    "posted that resolves": replace(charge("x", 1), resolves=tid("h")),
    "posted with an expiry": replace(charge("x", 1), expires_at=NOW),
    "pending that resolves": replace(take("x", 1), resolves=tid("h")),
    "pending that refunds": replace(take("x", 1), refunds=tid("h")),
    "resolution of nothing": replace(charge("x", 1), kind=TransferKind.VOID_PENDING),
    "resolution that refunds": replace(void_hold(tid("x"), H), refunds=tid("h")),
    "resolution with an expiry": replace(void_hold(tid("x"), H), expires_at=NOW),
}


@pytest.mark.parametrize("transfer", FITS_NO_KIND.values(), ids=FITS_NO_KIND.keys())
def test_fields_that_do_not_fit_the_kind_are_refused(transfer: Transfer) -> None:
    state = apply(books(), [top_up("a", 100), H], NOW).state

    posting = apply(state, [transfer], NOW)

    assert posting.outcomes[0].refusal == Refusal(tid("x"), 0, Reason.FIELDS_DO_NOT_FIT_KIND)
    assert (posting.created, posting.changed) == ((), ())


def test_a_refusal_names_the_first_failing_transfer_its_account_and_what_is_missing() -> None:
    posting = apply(books(), [top_up("a", 100), charge("b", 60), charge("c", 50), charge("d", -1)], NOW)

    assert posting.outcomes[0].refusal == Refusal(tid("c"), 2, Reason.NOT_ENOUGH_MONEY, CASH, Money(10))
    assert not posting.outcomes[0].ok
    assert posting.state == books()


def test_groups_are_decided_one_by_one_and_see_those_before() -> None:
    groups = [[top_up("a", 10)], [charge("b", 11)], [charge("c", 10)], [top_up("a", 10)]]

    posting = apply_groups(books(), groups, NOW)

    assert [outcome.status for outcome in posting.outcomes] == [
        Status.CREATED,
        Status.REFUSED,
        Status.CREATED,
        Status.EXISTS,
    ]
    assert [transfer.id for transfer in posting.created] == ["a", "c"]
    assert {account.id for account in posting.changed} == {GATEWAY, CASH, REVENUE}


def test_a_hundred_debits_of_two_fen_against_one_yuan_let_fifty_through() -> None:
    state = apply(books(), [top_up("a", 1_000_000)], NOW).state

    posting = apply_groups(state, [[charge(f"d{n}", 20_000)] for n in range(100)], NOW)

    assert sum(outcome.ok for outcome in posting.outcomes) == 50
    assert posting.state.accounts[CASH].balance == Money(0)
