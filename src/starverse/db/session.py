"""Engines and transactions: deferred reads, immediate writes, the same on SQLite and PostgreSQL.

SQLite: WAL, ``synchronous=FULL`` for the ledger's sake, and two ways to begin, since ``BEGIN IMMEDIATE``
on every begin would block readers (stack.md). Python 3.11's driver has no ``autocommit``, so it is kept
in ``isolation_level=None`` and the ``begin`` event says which kind of transaction starts. PostgreSQL:
reads in REPEATABLE READ (one snapshot), writes in READ COMMITTED with row locks and conditional updates.
A write that lost a race (one that the database saw, or a conditional update that changed nothing) is run
again here and nowhere else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError

from starverse.domain.errors import Conflict

T = TypeVar("T")

SQLITE_BUSY_SECONDS = 30
POOL_SIZE = 10
POOL_OVERFLOW = 40
_RETRIES = 5
_RETRYABLE_SQLSTATES = {"40001", "40P01"}
"""PostgreSQL: serialization_failure, deadlock_detected."""


class LostRace(Conflict):
    """Someone changed it at the same moment; look at it and try again."""

    code = "lost_race"


class Database:
    """One database: ``read()`` and ``write()`` give a connection inside its own transaction.

    ``write`` commits at the end of the block, rolls back on any exception. Never keep either open across
    an engine, a file tree or the network. ``durable`` false leaves out SQLite's flushes to disk: for the
    throw-away worlds of simulations, where processes die and machines do not.
    """

    def __init__(self, url: str, *, durable: bool = True) -> None:
        self.url = url
        self.engine = _create(url, "FULL" if durable else "OFF")
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._reader = self.engine.execution_options(
            **({} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"})
        )
        self._writer = self.engine.execution_options(starverse_write=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot; never blocks a writer and is never blocked by one."""
        with self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction. On SQLite it holds the one write lock from its first moment."""
        with self._writer.connect() as connection, connection.begin():
            yield connection

    def write_retrying(self, act: Callable[[Connection], T]) -> T:
        """Run ``act`` in a write transaction, again (at most 5 times) when it lost a race.

        So ``act`` reads what it changes itself: what was read before it is as old the next time.
        """
        for attempt in range(_RETRIES):
            try:
                with self.write() as connection:
                    return act(connection)
            except (LostRace, OperationalError) as error:
                if attempt == _RETRIES - 1 or not _is_lost_race(error):
                    raise
                time.sleep(random.uniform(0.001, 0.01) * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def now_answers(self) -> bool:
        """Whether the database answers a query (for ``/readyz``)."""
        try:
            with self.read() as connection:
                connection.execute(text("SELECT 1"))
        except OperationalError:
            return False
        return True

    def close(self) -> None:
        self.engine.dispose()


def _is_lost_race(error: LostRace | OperationalError) -> bool:
    if isinstance(error, LostRace):
        return True
    state = getattr(error.orig, "sqlstate", None)
    return state in _RETRYABLE_SQLSTATES or "database is locked" in str(error.orig)


def _create(url: str, synchronous: str) -> Engine:
    if url.startswith("sqlite"):
        engine = create_engine(
            url,
            pool_size=POOL_SIZE,
            max_overflow=POOL_OVERFLOW,
            connect_args={"timeout": SQLITE_BUSY_SECONDS, "check_same_thread": False},
        )
        event.listen(engine, "connect", partial(_prepare_sqlite, synchronous))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(
        url, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW, pool_pre_ping=True, pool_timeout=30
    )


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
    writes = connection.get_execution_options().get("starverse_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
