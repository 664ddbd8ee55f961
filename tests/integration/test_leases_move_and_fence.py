"""Leases of loops: shared among the servers that live, moved when one dies, and no write after that."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from starverse.app.ports import Wakeups
from starverse.app.servers import KnownServers, Server, require_same_data
from starverse.db import leases
from starverse.db.leases import LeaseLost
from starverse.db.session import Database
from starverse.domain.errors import Conflict
from starverse.reconcilers.driver import Driver, Reconciler
from starverse.reconcilers.leadership import LEASE_SECONDS, Leadership, Terms
from starverse.testing.platforms import POSTGRES_VARIABLE, SetClock, fresh_database

NAMES = ("inventory", "schedule", "launch", "meter")
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@dataclass
class Ground:
    """A database whose clock a test moves, and servers on it."""

    database: Database
    clock: SetClock

    def server(self, name: str) -> Leadership:
        terms = Terms(
            alone=False,
            clock=lambda _: self.clock.now(),
            elapsed=lambda: self.clock.now().timestamp(),
        )
        return Leadership(self.database, KnownServers(Server(name)), NAMES, Wakeups(), terms)

    def held(self, *servers: Leadership) -> list[set[str]]:
        return [{name for name in NAMES if server.holds(name)} for server in servers]


@pytest.fixture(params=KINDS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(request.param, tmp_path) as database:
        yield Ground(database, SetClock())


def write_something(connection: Connection) -> None:
    connection.execute(text("INSERT INTO counters (name, value) VALUES ('written', 1)"))


def test_a_lonely_server_has_all_and_gives_half_to_a_second_one(ground: Ground) -> None:
    first, second = ground.server("a"), ground.server("b")
    first.beat()
    assert ground.held(first, second) == [set(NAMES), set()]
    for server in (second, first, second):
        server.beat()
    one, other = ground.held(first, second)
    assert len(one) == len(other) == 2
    assert one | other == set(NAMES)
    assert second.why_not(next(iter(one))) == "runs on a"


def test_the_leases_of_a_dead_server_move_when_they_ran_out_and_not_before(ground: Ground) -> None:
    dead, alive = ground.server("a"), ground.server("b")
    dead.beat()
    ground.clock.advance(seconds=LEASE_SECONDS - 0.1)
    alive.beat()
    assert ground.held(alive) == [set()]
    ground.clock.advance(seconds=0.2)
    alive.beat()
    assert ground.held(dead, alive) == [set(), set(NAMES)]


def test_leases_that_are_let_go_move_at_once(ground: Ground) -> None:
    leaving, staying = ground.server("a"), ground.server("b")
    leaving.beat()
    leaving.stop()
    staying.beat()
    assert ground.held(leaving, staying) == [set(), set(NAMES)]


def test_a_holder_that_was_replaced_writes_nothing_more(ground: Ground) -> None:
    stopped, other = ground.server("a"), ground.server("b")
    stopped.beat()
    with stopped.round_of("meter") as ours:
        assert ours
        ground.clock.advance(seconds=LEASE_SECONDS + 1)  # it hangs, and does not know how long
        other.beat()
        with pytest.raises(LeaseLost), ground.database.write() as connection:
            write_something(connection)
    with ground.database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM counters")).scalar_one() == 0
    with other.round_of("meter") as ours, ground.database.write() as connection:
        assert ours
        write_something(connection)


def test_a_write_under_way_is_finished_before_its_lease_is_taken(ground: Ground) -> None:
    """On SQLite the writer has the whole database, so that the taking waits there as well."""
    slow, other = ground.server("a"), ground.server("b")
    slow.beat()
    with slow.round_of("meter"), ground.database.write() as connection:
        write_something(connection)
        ground.clock.advance(seconds=LEASE_SECONDS + 1)
        beat = threading.Thread(target=other.beat)
        beat.start()
        beat.join(0.5)
        assert not other.holds("meter")
    beat.join(30)
    other.beat()
    assert other.holds("meter")
    with ground.database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM counters")).scalar_one() == 1


def test_what_a_thread_of_its_own_does_for_a_loop_is_fenced_only_there(ground: Ground) -> None:
    first, second = ground.server("a"), ground.server("b")
    first.beat()
    ground.clock.advance(seconds=LEASE_SECONDS + 1)
    second.beat()
    with first.round_of("meter") as ours:
        assert not ours
    with ground.database.write() as connection:  # a request, which is nobody's loop
        write_something(connection)


def test_tokens_only_grow(ground: Ground) -> None:
    servers = [ground.server(name) for name in "abc"]
    seen: list[int] = []
    for server in servers * 3:
        ground.clock.advance(seconds=LEASE_SECONDS + 1)
        server.beat()
        with ground.database.read() as connection:
            seen.append(next(row.token for row in leases.load(connection) if row.name == "meter"))
    assert seen == sorted(set(seen))


def test_the_driver_runs_what_it_holds_and_shows_what_others_run(ground: Ground) -> None:
    ran: list[str] = []

    def run(server: str) -> str:
        ran.append(server)
        return f"by {server}"

    def loops(server: str) -> list[Reconciler]:
        return [Reconciler(name, "tests", 1, lambda: run(server)) for name in NAMES]

    first, second = ground.server("a"), ground.server("b")
    first.beat()
    drivers = [Driver(loops(s.me.id), ground.clock, Wakeups(), s) for s in (first, second)]
    first.start(drivers[0].statuses)
    for driver in drivers:
        driver.run_once("meter")
    assert ran == ["a"]
    first.beat()
    second.beat()
    status = next(s for s in drivers[1].statuses() if s.name == "meter")
    assert (status.healthy, status.message) == (True, "by a")
    first.stop()


@pytest.mark.postgres
def test_a_server_with_another_data_folder_is_refused_while_one_lives(tmp_path: Path) -> None:
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database("postgresql", tmp_path) as database:
        first = Server("a", "http://a", data_id="one")
        Leadership(database, KnownServers(first), NAMES, Wakeups()).beat()
        require_same_data(database, Server("b", data_id="one"), 60)
        with pytest.raises(Conflict, match="http://a has this database with another data folder"):
            require_same_data(database, Server("b", data_id="two"), 60)


def test_the_clock_of_the_database_is_this_machines(ground: Ground) -> None:
    from starverse.app.ports import SystemClock

    with ground.database.read() as connection:
        told = leases.clock(connection)
    assert abs(told - SystemClock().now()) < timedelta(seconds=5)


def test_a_server_that_has_its_leases_again_runs_its_loops_at_once(ground: Ground) -> None:
    """The database was away for longer than a lease, and nobody else took them."""
    server = ground.server("a")
    woken: list[str] = []
    server._wakeups.listen("meter", lambda: woken.append("meter"))
    server.beat()
    server.beat()
    assert woken == ["meter"]
    ground.clock.advance(seconds=30)
    assert not server.holds("meter")
    server.beat()
    assert server.holds("meter")
    assert woken == ["meter", "meter"]
