"""The ledger on a real SQLite file, and on the PostgreSQL that STARVERSE_TEST_POSTGRES names."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from starverse.db import ledger
from starverse.db.ledger_tables import ledger_accounts, open_holds, transfers
from starverse.db.metadata import metadata
from starverse.db.session import Database
from starverse.domain.errors import Conflict, NotFound
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import (
    GIFTS,
    REVENUE,
    AccountKind,
    cash,
    cash_id,
    coupon,
    credit_grant,
    gateway,
    gateway_id,
    platform_accounts,
)
from starverse.domain.ledger.posting import Reason, Status
from starverse.domain.ledger.transfers import (
    Purpose,
    Transfer,
    expire_hold,
    hold,
    move,
    post_hold,
    refund,
    void_hold,
)
from starverse.domain.money import Money

NOW = datetime(2026, 3, 10, 2, tzinfo=UTC)
TEAM = TeamId("t1")
CASH = cash_id(TEAM)
GATEWAY = gateway_id("mock")
GRANT = LedgerAccountId("grant")
COUPON = LedgerAccountId("coupon")
TABLES = [ledger_accounts, transfers, open_holds]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Books with a team of CNY 1.00, on either database; on PostgreSQL in a schema of its own."""
    if request.param == "sqlite":
        opened = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
        _open_books(opened)
        yield opened
        opened.close()
        return
    url = os.environ.get("STARVERSE_TEST_POSTGRES")
    if not url:
        pytest.skip("STARVERSE_TEST_POSTGRES names no PostgreSQL server")
    schema = f"ledger_{uuid.uuid4().hex}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    inside = make_url(url).update_query_dict({"options": f"-csearch_path={schema}"})
    opened = Database(inside.render_as_string(hide_password=False))
    _open_books(opened)
    yield opened
    opened.close()
    with admin.connect() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    admin.dispose()


def _open_books(database: Database) -> None:
    metadata.create_all(database.engine, tables=TABLES)
    with database.write() as connection:
        ledger.open_platform_accounts(connection, NOW)
        expiry = NOW + timedelta(days=30)
        team_accounts = (
            cash(TEAM),
            credit_grant(GRANT, TEAM, "sign-up credit", expiry),
            coupon(COUPON, TEAM, NOW, "SUMMER", expiry),
        )
        ledger.open_accounts(connection, (*team_accounts, gateway("mock")), NOW)
        assert ledger.post(connection, [TOP_UP], NOW).ok


def tid(name: str) -> TransferId:
    return TransferId(name)


def charge(name: str, micro: int, subject: str | None = None) -> Transfer:
    return move(tid(name), CASH, REVENUE, Money(micro), Purpose.CHARGE, subject=subject)


TOP_UP = move(tid("top-up"), GATEWAY, CASH, Money(1_000_000), Purpose.TOP_UP, subject="order-1")
HOLD = hold(tid("hold"), CASH, REVENUE, Money(400_000), subject="allocation-1")


def assert_sound(database: Database) -> None:
    with database.read() as connection:
        assert ledger.check(connection, chunk_rows=3) == ()


def test_a_hold_is_taken_posted_in_part_and_refunded(database: Database) -> None:
    posted = post_hold(tid("posted"), HOLD, Money(150_000))
    with database.write() as connection:
        assert ledger.post(connection, [HOLD], NOW).status is Status.CREATED
    with database.read() as connection:
        wallet = ledger.team_wallet(connection, TEAM)
        assert (wallet.free(NOW), wallet.held) == (Money(600_000), Money(400_000))
        assert [held.transfer for held in ledger.open_holds_of_team(connection, TEAM)] == [HOLD]
    with database.write() as connection:
        assert ledger.post(connection, [posted], NOW).status is Status.CREATED
        assert ledger.post(connection, [refund(tid("back"), posted, Money(50_000))], NOW).ok
    with database.read() as connection:
        assert ledger.team_wallet(connection, TEAM).free(NOW) == Money(900_000)
        assert ledger.open_holds_of_team(connection, TEAM) == ()
        assert ledger.refunded(connection, posted.id) == Money(50_000)
    assert_sound(database)


def test_what_is_recorded_is_read_back_equal_with_its_time_and_order(database: Database) -> None:
    later = NOW + timedelta(microseconds=1)
    held = replace(HOLD, expires_at=later)
    with database.write() as connection:
        assert ledger.post(connection, [held, charge("c", 5)], later).ok
    with database.read() as connection:
        found = ledger.find_transfers(connection, [held.id, tid("c"), tid("unknown")])
        assert {key: stored.transfer for key, stored in found.items()} == {"hold": held, "c": charge("c", 5)}
        assert {stored.recorded_at for stored in found.values()} == {later}
        assert found[held.id].sequence < found[tid("c")].sequence


def test_a_repeat_answers_exists_after_a_restart_and_moves_nothing(database: Database) -> None:
    group = [HOLD, charge("c", 10)]
    with database.write() as connection:
        assert ledger.post(connection, group, NOW).status is Status.CREATED
    again = Database(database.url)
    with again.write() as connection:
        assert ledger.post(connection, group, NOW + timedelta(hours=1)).status is Status.EXISTS
        other = ledger.post(connection, [charge("c", 11)], NOW).refusal
        assert other is not None
        assert other.reason is Reason.ID_HAS_OTHER_CONTENT
        assert ledger.balances(connection, [CASH])[CASH].available == Money(599_990)
    again.close()
    assert_sound(database)


def test_a_hold_resolved_in_an_earlier_transaction_stays_resolved(database: Database) -> None:
    with database.write() as connection:
        ledger.post(connection, [HOLD], NOW)
    with database.write() as connection:
        ledger.post(connection, [void_hold(tid("v"), HOLD)], NOW)
    with database.write() as connection:
        late = ledger.post(connection, [post_hold(tid("p"), HOLD)], NOW).refusal
    assert late is not None
    assert late.reason is Reason.PENDING_ALREADY_VOIDED
    assert_sound(database)


def test_overdue_holds_are_found_in_order_and_expired_once(database: Database) -> None:
    holds = [
        replace(hold(tid(f"h{n}"), CASH, REVENUE, Money(10)), expires_at=NOW + timedelta(seconds=n))
        for n in (3, 1, 2)
    ]
    with database.write() as connection:
        assert ledger.post(connection, [*holds, HOLD], NOW).ok
    at = NOW + timedelta(seconds=2)
    with database.write() as connection:
        overdue = ledger.overdue_holds(connection, at, limit=10)
        assert [stored.transfer.id for stored in overdue] == ["h1", "h2"]
        groups = [[expire_hold(tid(f"x{n}"), stored.transfer)] for n, stored in enumerate(overdue)]
        assert all(outcome.ok for outcome in ledger.post_groups(connection, groups, at))
        assert ledger.overdue_holds(connection, at, limit=10) == ()
    assert_sound(database)


def test_groups_in_one_transaction_stand_or_fall_alone(database: Database) -> None:
    groups = [[charge("a", 900_000)], [charge("b", 200_000)], [charge("c", 100_000)], []]
    with database.write() as connection:
        outcomes = ledger.post_groups(connection, groups, NOW)
    assert [outcome.ok for outcome in outcomes] == [True, False, True, True]
    assert outcomes[1].refusal is not None
    assert outcomes[1].refusal.missing == Money(100_000)
    assert_sound(database)


def test_history_pages_tile_it_newest_first(database: Database) -> None:
    with database.write() as connection:
        ledger.post_groups(connection, [[charge(f"c{n}", 1)] for n in range(7)], NOW)
        ledger.post(connection, [move(tid("gift"), GIFTS, GRANT, Money(5), Purpose.GIFT)], NOW)
    with database.read() as connection:
        seen: list[str] = []
        before = None
        while page := ledger.history(connection, [CASH, GRANT, REVENUE], limit=4, before=before):
            seen += [stored.transfer.id for stored in page]
            before = page[-1].sequence
        assert seen == ["gift", *(f"c{n}" for n in reversed(range(7))), "top-up"]
        assert [row.transfer.id for row in ledger.history(connection, [GRANT], limit=4)] == ["gift"]
        assert ledger.history(connection, [], limit=4) == ()
        assert [row.transfer for row in ledger.transfers_of_subject(connection, "order-1")] == [TOP_UP]


def test_accounts_open_once_and_empty(database: Database) -> None:
    with database.write() as connection:
        ledger.open_accounts(connection, [*platform_accounts(), gateway("mock")], NOW)
        assert [found.id for found in ledger.accounts_of_kind(connection, AccountKind.GATEWAY)] == [GATEWAY]
        with pytest.raises(Conflict):
            ledger.open_accounts(connection, [credit_grant(GRANT, TEAM, "another label")], NOW)
        full = replace(cash(TeamId("t2")), credits_posted=Money(1))
        with pytest.raises(ValueError, match="opens empty"):
            ledger.open_accounts(connection, [full], NOW)
        with pytest.raises(NotFound):
            ledger.team_wallet(connection, TeamId("t2"))
        wallet = ledger.team_wallet(connection, TEAM)
        assert [account.label for account in (*wallet.credits, *wallet.coupons)] == [
            "sign-up credit",
            "SUMMER",
        ]


FORBIDDEN = {
    "changing a transfer": "UPDATE transfers SET amount = 1",
    "deleting a transfer": "DELETE FROM transfers",
    "a wallet below zero": "UPDATE ledger_accounts SET debits_posted = 1000001 WHERE kind = 'cash'",
    "a wallet below zero by holds": "UPDATE ledger_accounts SET debits_pending = 1000001 WHERE kind = 'cash'",
    "a gateway below zero": "UPDATE ledger_accounts SET credits_posted = 1000001 WHERE kind = 'gateway'",
    "a negative counter": "UPDATE ledger_accounts SET debits_pending = -1 WHERE id = 'cash:t1'",
    "an unknown kind": "UPDATE ledger_accounts SET kind = 'piggy_bank' WHERE id = 'cash:t1'",
    "cash that nobody owns": "UPDATE ledger_accounts SET team_id = NULL WHERE id = 'cash:t1'",
    "cash that expires": "UPDATE ledger_accounts SET expires_at = 1 WHERE id = 'cash:t1'",
    "a second cash account": (
        "INSERT INTO ledger_accounts (id, kind, team_id, label, opened_at) VALUES ('z', 'cash', 't1', '', 0)"
    ),
}


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_the_database_itself_forbids(database: Database, statement: str) -> None:
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.exec_driver_sql(statement)
    assert_sound(database)


BAD_ROWS = {
    "an amount of zero": {"amount": 0},
    "one account on both sides": {"credit_id": "cash:t1"},
    "an unknown account": {"credit_id": "nowhere"},
    "an unknown kind": {"kind": "gone"},
    "an unknown purpose": {"purpose": "fun"},
    "a resolution of nothing": {"kind": "void_pending"},
    "a posted one that resolves": {"resolves": "hold"},
    "a hold resolved twice": {"kind": "void_pending", "resolves": "hold"},
    "a pending one that refunds": {"kind": "pending", "refunds": "top-up"},
    "a posted one that expires": {"expires_at": 1},
    "an id taken": {"id": "hold"},
}


@pytest.mark.parametrize("changes", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_the_database_itself_refuses_a_transfer_with(database: Database, changes: dict[str, object]) -> None:
    with database.write() as connection:
        ledger.post(connection, [HOLD, void_hold(tid("v"), HOLD)], NOW)
    good = {
        "id": "new",
        "kind": "posted",
        "debit_id": "cash:t1",
        "credit_id": "revenue",
        "amount": 1,
        "purpose": "charge",
        "recorded_at": 0,
    }
    row = {**good, **changes}
    insert = f"INSERT INTO transfers ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.execute(text(insert), row)


def test_the_check_names_tampering_and_a_lost_open_hold(database: Database) -> None:
    with database.write() as connection:
        ledger.post(connection, [HOLD], NOW)
        connection.exec_driver_sql("UPDATE ledger_accounts SET credits_posted = 2000000 WHERE id = 'cash:t1'")
        connection.exec_driver_sql("DELETE FROM open_holds")
    with database.read() as connection:
        broken = {(found.name, found.subject) for found in ledger.check(connection)}
    assert broken == {("counters_match", CASH), ("sum_zero", "posted"), ("open_holds_match", HOLD.id)}


def test_a_rolled_back_transaction_leaves_no_trace(database: Database) -> None:
    with pytest.raises(RuntimeError, match="afterwards"), database.write() as connection:
        assert ledger.post(connection, [charge("c", 10)], NOW).ok
        raise RuntimeError("something went wrong afterwards")
    with database.read() as connection:
        assert ledger.balances(connection, [CASH])[CASH].balance == Money(1_000_000)
        assert ledger.find_transfers(connection, [tid("c")]) == {}
    assert_sound(database)


def test_a_hundred_parallel_debits_of_two_fen_never_go_below_one_yuan(database: Database) -> None:
    start = threading.Barrier(20)

    def debit_five_times(worker: int) -> list[bool]:
        start.wait()
        answers = []
        for n in range(5):
            with database.write() as connection:
                answers.append(ledger.post(connection, [charge(f"d{worker}-{n}", 20_000)], NOW).ok)
        return answers

    with ThreadPoolExecutor(20) as threads:
        answers = [answer for worker in threads.map(debit_five_times, range(20)) for answer in worker]

    assert (len(answers), sum(answers)) == (100, 50)
    with database.read() as connection:
        assert ledger.balances(connection, [CASH])[CASH].available == Money(0)
    assert_sound(database)


def test_of_parallel_resolutions_and_repeats_exactly_one_counts(database: Database) -> None:
    with database.write() as connection:
        ledger.post(connection, [HOLD], NOW)
    start = threading.Barrier(10)

    def resolve(worker: int) -> str:
        start.wait()
        attempt = void_hold(tid(f"v{worker}"), HOLD) if worker % 2 else post_hold(tid("same"), HOLD)
        with database.write() as connection:
            outcome = ledger.post(connection, [attempt], NOW)
        return outcome.refusal.reason.value if outcome.refusal else outcome.status.value

    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(resolve, range(10)))

    assert answers.count("created") == 1
    if "exists" in answers:
        assert sorted(set(answers)) == ["created", "exists", "pending_already_posted"]
    else:
        assert sorted(set(answers)) == ["created", "pending_already_voided"]
    assert_sound(database)
