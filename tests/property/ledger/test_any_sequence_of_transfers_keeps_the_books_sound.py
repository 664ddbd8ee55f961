"""Whatever is posted, valid or not, in groups or alone, again or for the first time: the invariants hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import (
    GIFTS,
    REVENUE,
    WRITE_OFF,
    cash,
    cash_id,
    credit_grant,
    gateway,
    gateway_id,
    platform_accounts,
)
from starverse.domain.ledger.invariants import audit
from starverse.domain.ledger.posting import (
    ALREADY_RESOLVED,
    LedgerState,
    Outcome,
    Reason,
    Status,
    apply,
    apply_groups,
)
from starverse.domain.ledger.transfers import (
    PAYING_KINDS,
    RESOLVING_KINDS,
    Purpose,
    Transfer,
    TransferKind,
    post_hold,
    refund,
)
from starverse.domain.money import Money

START = datetime(2026, 3, 10, tzinfo=UTC)
TEAMS = (TeamId("t1"), TeamId("t2"))
GRANT = LedgerAccountId("grant")
OPENED = (
    *platform_accounts(),
    gateway("mock"),
    *(cash(team) for team in TEAMS),
    credit_grant(GRANT, TEAMS[0]),
)
BOOKS = LedgerState({account.id: account for account in OPENED})
ACCOUNT_IDS = [account.id for account in OPENED] + [LedgerAccountId("nowhere")]
IDS = [TransferId(f"x{n}") for n in range(30)]
ROUTES = [
    (gateway_id("mock"), cash_id(TEAMS[0])),
    (gateway_id("mock"), cash_id(TEAMS[1])),
    (GIFTS, GRANT),
    (GRANT, REVENUE),
    (cash_id(TEAMS[0]), REVENUE),
    (cash_id(TEAMS[1]), REVENUE),
    (WRITE_OFF, REVENUE),
]

ids = st.sampled_from(IDS)
routes = st.sampled_from(ROUTES) | st.tuples(st.sampled_from(ACCOUNT_IDS), st.sampled_from(ACCOUNT_IDS))
amounts = st.integers(1, 60) | st.sampled_from([-1, 0, 2**62, 2**63])
instants = st.integers(0, 20).map(lambda seconds: START + timedelta(seconds=seconds))


@st.composite
def loose_transfers(draw: st.DrawFn) -> Transfer:
    """Any transfer at all, often nonsense."""
    debit, credit = draw(routes)
    kind = draw(st.sampled_from([TransferKind.POSTED, TransferKind.POSTED, *TransferKind]))
    return Transfer(
        draw(ids),
        kind,
        debit,
        credit,
        Money(draw(amounts)),
        Purpose.CHARGE,
        resolves=draw(ids) if kind in RESOLVING_KINDS else draw(st.none() | st.none() | ids),
        refunds=draw(st.none() | ids) if kind is TransferKind.POSTED else None,
        expires_at=draw(st.none() | instants) if kind is TransferKind.PENDING else None,
    )


@st.composite
def follow_ups(draw: st.DrawFn, recorded: dict[TransferId, Transfer]) -> Transfer:
    """A resolution or refund of something recorded, mostly sensible."""
    source = recorded[draw(st.sampled_from(sorted(recorded)))]
    amount = Money(draw(st.integers(1, max(1, min(source.amount.micro, 100)))))
    if source.kind is TransferKind.PENDING:
        kind = draw(st.sampled_from(sorted(RESOLVING_KINDS, key=lambda kind: kind.value)))
        whole = kind is not TransferKind.POST_PENDING
        return replace(post_hold(draw(ids), source, source.amount if whole else amount), kind=kind)
    return refund(draw(ids), source, amount)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_groups_keep_every_invariant_and_never_change_what_is_recorded(data: st.DataObject) -> None:
    state = BOOKS
    recorded: list[Transfer] = []
    for second in range(data.draw(st.integers(1, 12), label="groups")):
        now = START + timedelta(seconds=second)
        candidates = loose_transfers()
        if state.transfers:
            candidates = candidates | follow_ups(dict(state.transfers))
        group = data.draw(st.lists(candidates, min_size=1, max_size=4), label=f"group {second}")
        before = state

        posting = apply(state, group, now)
        state = posting.state
        recorded += posting.created

        assert audit(state.accounts.values(), recorded) == ()
        assert {key: state.transfers[key] for key in before.transfers} == before.transfers
        if posting.outcomes[0].status is not Status.CREATED:
            assert (posting.created, posting.changed) == ((), ())
            assert state.accounts == before.accounts
            assert state.resolutions == before.resolutions
        else:
            assert apply(state, group, now).outcomes[0].status is Status.EXISTS
            assert apply(state, group, now).state == state


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(loose_transfers(), max_size=3), max_size=8))
def test_many_groups_at_once_answer_as_one_after_the_other(groups: list[list[Transfer]]) -> None:
    together = apply_groups(BOOKS, groups, START)

    state = BOOKS
    outcomes: list[Outcome] = []
    created: list[Transfer] = []
    for group in groups:
        posting = apply(state, group, START)
        state = posting.state
        outcomes += posting.outcomes
        created += posting.created
    assert list(together.outcomes) == outcomes
    assert list(together.created) == created
    assert together.state.accounts == state.accounts


@settings(max_examples=60, deadline=None)
@given(
    held=st.integers(1, 100),
    attempts=st.lists(
        st.tuples(st.sampled_from(sorted(RESOLVING_KINDS, key=lambda k: k.value)), st.integers(1, 120)),
        min_size=1,
        max_size=5,
    ),
    expires=st.none() | instants,
    now=instants,
)
def test_of_many_attempts_to_resolve_a_hold_one_wins_and_the_rest_are_told_which(
    held: int, attempts: list[tuple[TransferKind, int]], expires: datetime | None, now: datetime
) -> None:
    debit, credit = ROUTES[4]
    pending = Transfer(
        TransferId("h"),
        TransferKind.PENDING,
        debit,
        credit,
        Money(held),
        Purpose.CHARGE,
        expires_at=expires,
    )
    top_up = Transfer(TransferId("t"), TransferKind.POSTED, *ROUTES[0], Money(100), Purpose.TOP_UP)
    state = apply(BOOKS, [top_up, pending], START).state
    winner: TransferKind | None = None
    for number, (kind, micro) in enumerate(attempts):
        amount = Money(micro) if kind is TransferKind.POST_PENDING else pending.amount
        resolution = replace(post_hold(TransferId(f"r{number}"), pending, amount), kind=kind)
        posting = apply(state, [resolution], now)
        state = posting.state
        refusal = posting.outcomes[0].refusal
        if winner is not None:
            assert refusal is not None
            assert refusal.reason is ALREADY_RESOLVED[winner]
        elif refusal is None:
            winner = kind
            spent = micro if kind is TransferKind.POST_PENDING else 0
            assert state.accounts[debit].available == Money(100 - spent)
            assert state.accounts[debit].held == Money(0)
        else:
            assert state.accounts[debit].held == Money(held)


@settings(max_examples=60, deadline=None)
@given(paid=st.integers(1, 100), refunds=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_refunds_together_never_exceed_what_was_paid_and_go_back_to_the_payer(
    paid: int, refunds: list[int]
) -> None:
    top_up = Transfer(TransferId("t"), TransferKind.POSTED, *ROUTES[0], Money(1000), Purpose.TOP_UP)
    payment = Transfer(TransferId("p"), TransferKind.POSTED, *ROUTES[4], Money(paid), Purpose.CHARGE)
    other = Transfer(TransferId("o"), TransferKind.POSTED, *ROUTES[4], Money(500), Purpose.CHARGE)
    assert payment.kind in PAYING_KINDS
    state = apply(BOOKS, [top_up, payment, other], START).state
    back = 0
    for number, micro in enumerate(refunds):
        posting = apply(state, [refund(TransferId(f"r{number}"), payment, Money(micro))], START)
        state = posting.state
        refusal = posting.outcomes[0].refusal
        if back + micro <= paid:
            back += micro
            assert refusal is None
        else:
            assert refusal is not None
            assert (refusal.reason, refusal.missing) == (Reason.EXCEEDS_PAID, Money(back + micro - paid))
    assert state.accounts[cash_id(TEAMS[0])].balance == Money(1000 - paid - 500 + back)
