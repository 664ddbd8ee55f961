"""Engines and transactions: deferred reads, immediate writes, the same on SQLite and PostgreSQL.

SQLite: WAL, ``synchronous=FULL`` for the ledger's sake, and two ways to begin, since ``BEGIN IMMEDIATE``
on every begin would block readers (stack.md). Python 3.11's driver has no ``autocommit``, so it is kept
in ``isolation_level=None`` and the ``begin`` event says which kind of transaction starts. PostgreSQL:
reads in REPEATABLE READ (one snapshot), writes in READ COMMITTED with row locks and conditional updates.
A write that lost a race (one that the database saw, or a conditional update that changed nothing) is run
again here and nowhere else. A database that is away raises :class:`DatabaseAway` from either.

What statements of other modules have to say differently is in :class:`Traits`; no other module asks which
of the two it has (where whole databases are read and filled: ``db/maintenance/dialects.py``).
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Connection, Dialect, Engine, Text, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from starverse.db.server_lock import hold_file, hold_session
from starverse.domain.errors import Conflict, Unavailable

T = TypeVar("T")
Guard = Callable[[Connection], None]
"""Raises where a write transaction that has just begun must not go on."""

SQLITE_BUSY_SECONDS = 30
SQLITE_POOL = (10, 40)
POSTGRES_POOL = (15, 15)
"""Connections kept, and more under load, of one process: three servers fit into PostgreSQL's usual 100."""
POOL_WAIT_SECONDS = 15
CONNECT_SECONDS = 5
POSTGRES_SETTINGS = {
    "statement_timeout": "120s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""A process that hangs or whose machine is gone holds no lock for ever."""
_RETRIES = 5
_RACES = frozenset({"40001", "40P01", "55P03"})
"""PostgreSQL: serialization_failure, deadlock_detected, lock_not_available."""
_AWAY = ("08", "53", "57")
"""Classes of PostgreSQL: connection exception, insufficient resources, operator intervention."""
_AWAY_TOO = frozenset({"25P03"})
"""idle_in_transaction_session_timeout: the server has hung up."""


class LostRace(Conflict):
    """Someone changed it at the same moment; look at it and try again."""

    code = "lost_race"


class DatabaseAway(Unavailable):
    """The database does not answer just now; nothing is lost, try again in a moment."""

    code = "database_away"


_SQLITE_AWAY: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_BUSY: (
        "The database is held by somebody else just now; nothing was changed.",
        "Try again in a moment.",
    ),
    sqlite3.SQLITE_LOCKED: (
        "The database is held by somebody else just now; nothing was changed.",
        "Try again in a moment.",
    ),
    sqlite3.SQLITE_FULL: (
        "The platform's disk is full; nothing was changed.",
        "The operator has to free some space there; the platform goes on by itself then.",
    ),
    sqlite3.SQLITE_IOERR: (
        "The disk of the platform's database fails; nothing was changed.",
        "The operator has to look at that disk and at its free space.",
    ),
    sqlite3.SQLITE_READONLY: (
        "The platform's database cannot be written to; nothing was changed.",
        "The operator has to look at the permissions of the database's folder and files.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "The platform's database cannot be opened; nothing was changed.",
        "The operator has to look at the database's folder and at the server's limit of open files.",
    ),
}
"""What SQLite's result codes mean that are no fault of the program, and what to do about each."""


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """What SQLite and PostgreSQL say differently. One object for each, so that it can be a key.

    ``one_writer``: nobody else writes while a write transaction is open. ``mark`` stands for a parameter in
    the driver's SQL; ``one_of`` is a condition with ``{}`` for a list that is one parameter, of
    ``list_type``, as ``bind_list`` gives it. ``lock``: of rows that are read to be changed. ``insert`` makes
    an INSERT that may meet a row that is there. ``forbid_changes`` and ``forget`` are made and undone with
    a table that only grows, whose name stands for ``TABLE``.
    """

    one_writer: bool
    mark: str
    one_of: str
    list_type: TypeEngine[Any]
    bind_list: Callable[[list[str]], Any]
    lock: str
    insert: Callable[..., Any]
    forbid_changes: tuple[str, ...]
    forget: tuple[str, ...]


def _refuse_sqlite(change: str) -> str:
    return (
        f"CREATE TRIGGER TABLE_no_{change.lower()} BEFORE {change} ON TABLE "
        "BEGIN SELECT RAISE(ABORT, 'TABLE are immutable'); END"
    )


TRAITS: Mapping[str, Traits] = {
    "sqlite": Traits(
        one_writer=True,
        mark="?",
        one_of="IN (SELECT value FROM json_each({}))",
        list_type=Text(),
        bind_list=json.dumps,
        lock="",
        insert=sqlite.insert,
        forbid_changes=(_refuse_sqlite("UPDATE"), _refuse_sqlite("DELETE")),
        forget=(),
    ),
    "postgresql": Traits(
        one_writer=False,
        mark="%s",
        one_of="= ANY({})",
        list_type=postgresql.ARRAY(Text()),
        bind_list=list,
        lock="FOR UPDATE",
        insert=postgresql.insert,
        forbid_changes=(
            "CREATE OR REPLACE FUNCTION TABLE_are_immutable() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'TABLE are immutable' "
            "USING ERRCODE = 'integrity_constraint_violation'; END $$",
            "CREATE TRIGGER TABLE_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON TABLE "
            "FOR EACH STATEMENT EXECUTE FUNCTION TABLE_are_immutable()",
        ),
        forget=("DROP FUNCTION IF EXISTS TABLE_are_immutable()",),
    ),
}
"""By the name of SQLAlchemy's dialect."""


def traits_of(where: Connection | Dialect) -> Traits:
    """What to write for the database of a connection, or for a dialect that compiles for it."""
    return TRAITS[(where.dialect if isinstance(where, Connection) else where).name]


_guard: ContextVar[Guard | None] = ContextVar("guard", default=None)


class Database:
    """One database: ``read()`` and ``write()`` give a connection inside its own transaction.

    ``write`` commits at the end of the block, rolls back on any exception. Never keep either open across
    an engine, a file tree or the network. ``durable`` false leaves out SQLite's flushes to disk: for the
    throw-away worlds of simulations, where processes die and machines do not. ``like`` is a database of the
    same kind that has been connected to: a statement compiled for either is compiled for both, which is what
    a process pays for that opens hundreds of databases.
    """

    def __init__(self, url: str, *, durable: bool = True, like: Database | None = None) -> None:
        self.url = url
        self.engine = _create(url, "FULL" if durable else "OFF")
        if like is not None:
            self.engine.dialect, self.engine._compiled_cache = (
                like.engine.dialect,
                like.engine._compiled_cache,
            )
        self._traits = traits_of(self.engine.dialect)
        self._reader = self.engine.execution_options(
            **({} if self._traits.one_writer else {"isolation_level": "REPEATABLE READ"})
        )
        self._writer = self.engine.execution_options(starverse_write=True)

    @property
    def kind(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self.engine.dialect.name

    @property
    def shared(self) -> bool:
        """Whether several servers may run on it at once."""
        return not self._traits.one_writer

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot; never blocks a writer and is never blocked by one."""
        with _in_our_words(), self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction. On SQLite it holds the one write lock from its first moment."""
        guard = _guard.get()
        with _in_our_words(), self._writer.connect() as connection, connection.begin():
            if guard is not None:
                guard(connection)
            yield connection

    def write_retrying(self, act: Callable[[Connection], T]) -> T:
        """Run ``act`` in a write transaction, again (at most 5 times) when it lost a race.

        So ``act`` reads what it changes itself: what was read before it is as old the next time.
        """
        for attempt in range(_RETRIES):
            try:
                with self.write() as connection:
                    return act(connection)
            except LostRace:
                if attempt == _RETRIES - 1:
                    raise
                time.sleep(random.uniform(0.001, 0.01) * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def now_answers(self) -> bool:
        """Whether the database answers a query (for ``/readyz``)."""
        try:
            with self.read() as connection:
                connection.execute(text("SELECT 1"))
        except (DBAPIError, Unavailable):
            return False
        return True

    def hold(self, *, alone: bool) -> AbstractContextManager[None]:
        """Have the database in use for this process; ``alone``: with no server beside, in any case.

        Raises ``Conflict`` when another has it: any other server where it cannot be shared or is wanted
        alone, a maintenance that has it alone elsewhere.
        """
        if self.shared:
            return hold_session(self.engine, alone=alone)
        return hold_file(self.engine.url.database)

    @contextmanager
    def one_at_a_time(self, what: str) -> Iterator[None]:
        """Wait for the other servers that do the same: for what each does as it starts."""
        if not self.shared:
            yield
            return
        with _in_our_words(), self.engine.connect() as connection, connection.begin():
            connection.execute(text("SET LOCAL lock_timeout = '60s'"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:what || current_schema(), 0))"),
                {"what": f"starverse {what} "},
            )
            yield

    def close(self) -> None:
        self.engine.dispose()


@contextmanager
def guarded(guard: Guard) -> Iterator[None]:
    """Every write transaction that this thread begins in the block is asked by ``guard`` first."""
    token = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(token)


class database_micros(FunctionElement[int]):  # noqa: N801  # reads as the SQL function that it is
    """The database's own clock, as microseconds since 1970 UTC: the same for every server."""

    type = BigInteger()
    inherit_cache = True


@compiles(database_micros, "sqlite")
def _sqlite_micros(*_: object, **__: object) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"


@compiles(database_micros, "postgresql")
def _postgresql_micros(*_: object, **__: object) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"


@contextmanager
def _in_our_words() -> Iterator[None]:
    """A race that the database saw, and its absence, as errors of ours."""
    try:
        yield
    except NoConnectionFree as error:
        raise DatabaseAway("The server has more to do than it has connections; try again.") from error
    except DBAPIError as error:
        state = str(getattr(error.orig, "sqlstate", None) or "")
        if state in _RACES:
            raise LostRace from error
        told = _SQLITE_AWAY.get(getattr(error.orig, "sqlite_errorcode", 0) & 0xFF)
        if told is not None:
            raise DatabaseAway(told[0], hint=told[1], context={"error": str(error.orig)[:500]}) from error
        if error.connection_invalidated or _is_away(error, state):
            raise DatabaseAway(context={"error": str(error.orig)[:500]}) from error
        raise


def _is_away(error: DBAPIError, state: str) -> bool:
    """By PostgreSQL's state; psycopg's own errors of connecting carry none."""
    if state:
        return state.startswith(_AWAY) or state in _AWAY_TOO
    return isinstance(error, OperationalError) and type(error.orig).__module__.startswith("psycopg")


def _create(url: str, synchronous: str) -> Engine:
    if url.startswith("sqlite"):
        engine = create_engine(
            url,
            pool_size=SQLITE_POOL[0],
            max_overflow=SQLITE_POOL[1],
            connect_args={"timeout": SQLITE_BUSY_SECONDS, "check_same_thread": False},
        )
        event.listen(engine, "connect", partial(_prepare_sqlite, synchronous))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    engine = create_engine(
        url,
        pool_size=POSTGRES_POOL[0],
        max_overflow=POSTGRES_POOL[1],
        pool_pre_ping=True,
        pool_timeout=POOL_WAIT_SECONDS,
        connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "starverse"},
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_sqlite(synchronous: str, connection: Any, _record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        f"synchronous={synchronous}",
        "foreign_keys=ON",
        f"busy_timeout={SQLITE_BUSY_SECONDS * 1000}",
        "cache_size=-32000",
        "temp_store=MEMORY",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """By the driver itself: SQLAlchemy's way costs more than a small statement."""
    writes = connection.get_execution_options().get("starverse_write", False)
    statement, driver = "BEGIN IMMEDIATE" if writes else "BEGIN", connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    for listen in connection.dispatch.before_cursor_execute:
        listen(connection, None, statement, (), None, False)
    try:
        driver.execute(statement)
    except sqlite3.OperationalError as error:
        raise OperationalError(statement, None, error) from error


def _prepare_postgresql(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("; ".join(f"SET {name} = '{value}'" for name, value in POSTGRES_SETTINGS.items()))
    connection.commit()
