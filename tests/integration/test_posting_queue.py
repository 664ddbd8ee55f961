"""Threads that post at once share flushes, each gets its own answer, and a failed flush moves nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.engine import Connection

from starverse.db import ledger
from starverse.db.ledger_tables import ledger_accounts, open_holds, transfers
from starverse.db.metadata import metadata
from starverse.db.posting_queue import PostingQueue
from starverse.db.session import Database
from starverse.domain.errors import Unavailable
from starverse.domain.ids import TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash, cash_id, gateway, gateway_id
from starverse.domain.ledger.posting import Reason, Status
from starverse.domain.ledger.transfers import Purpose, Transfer, move
from starverse.domain.money import Money

NOW = datetime(2026, 3, 10, tzinfo=UTC)
CASH = cash_id(TeamId("t1"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    metadata.create_all(opened.engine, tables=[ledger_accounts, transfers, open_holds])
    with opened.write() as connection:
        ledger.open_platform_accounts(connection, NOW)
        ledger.open_accounts(connection, [cash(TeamId("t1")), gateway("mock")], NOW)
        top_up = move(TransferId("top-up"), gateway_id("mock"), CASH, Money(1_000_000), Purpose.TOP_UP)
        assert ledger.post(connection, [top_up], NOW).ok
    yield opened
    opened.close()


def charge(name: str, micro: int) -> Transfer:
    return move(TransferId(name), CASH, REVENUE, Money(micro), Purpose.CHARGE)


def test_a_lone_caller_is_answered_at_once(database: Database) -> None:
    queue = PostingQueue(database, lambda: NOW)

    assert queue.post([charge("a", 10)]).status is Status.CREATED
    assert queue.post([charge("a", 10)]).status is Status.EXISTS
    refusal = queue.post([charge("b", 1_000_000)]).refusal
    assert refusal is not None
    assert refusal.reason is Reason.NOT_ENOUGH_MONEY


def test_a_hundred_parallel_debits_share_flushes_and_never_go_below_zero(database: Database) -> None:
    commits: list[Connection] = []
    event.listen(database.engine, "commit", commits.append)
    first_is_in = threading.Event()
    all_are_in_line = threading.Event()

    def clock() -> datetime:
        first_is_in.set()
        assert all_are_in_line.wait(30)
        return NOW

    queue = PostingQueue(database, clock)
    with ThreadPoolExecutor(100) as threads:
        answers = [threads.submit(queue.post, [charge("d0", 20_000)])]
        assert first_is_in.wait(30)
        answers += [threads.submit(queue.post, [charge(f"d{n}", 20_000)]) for n in range(1, 100)]
        while queue.waiting < 99 and not any(answer.done() for answer in answers):
            pass
        all_are_in_line.set()
        outcomes = [answer.result(30) for answer in answers]

    assert sum(outcome.ok for outcome in outcomes) == 50
    assert len(commits) == 2
    with database.read() as connection:
        assert ledger.balances(connection, [CASH])[CASH].available == Money(0)
        assert ledger.check(connection) == ()


def test_a_failed_flush_is_told_to_its_callers_and_the_next_goes_on(database: Database) -> None:
    broken = [True]

    def refuse(_connection: Connection) -> None:
        if broken.pop() if broken else False:
            raise OSError("no space left on device")

    event.listen(database.engine, "commit", refuse)
    queue = PostingQueue(database, lambda: NOW)

    with pytest.raises(Unavailable) as caught:
        queue.post([charge("a", 10)])
    assert isinstance(caught.value.__cause__, OSError)
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(transfers)).scalar() == 1
    assert queue.post([charge("a", 10)]).status is Status.CREATED
