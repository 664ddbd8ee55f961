"""What SQLite and PostgreSQL do differently where whole databases are read, rebuilt and filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, MetaData, inspect, text
from sqlalchemy.dialects.postgresql import dialect as postgresql_dialect
from sqlalchemy.engine import URL, make_url

from starverse.db.session import Database
from starverse.domain.errors import InvariantBroken

_quote = postgresql_dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]

_DRIVERS = frozenset({"sqlite", "sqlite+pysqlite", "postgresql+psycopg"})
_NO_LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


@dataclass(frozen=True, slots=True)
class Dialect:
    """``order``: text by its code points, as both databases can. ``sound``: what is damaged, in words.

    ``reading`` and ``rebuilding`` are transactions that may take long; in the latter tables may be made anew.
    Between ``defer`` and ``settle`` rows come in any order; whatever they refer to has to be there at the
    latter. ``count_on``: a table's own numbers go on after the highest. ``clear`` drops everything.
    """

    order: Callable[[ColumnElement[str]], ColumnElement[str]]
    reading: Callable[[Database], AbstractContextManager[Connection]]
    rebuilding: Callable[[Database], AbstractContextManager[Connection]]
    defer: Callable[[Connection], None]
    settle: Callable[[Connection], None]
    sound: Callable[[Connection], str | None]
    count_on: Callable[[Connection, str], None]
    clear: Callable[[Connection], None]


def dialect_of(connection: Connection) -> Dialect:
    """What to use for a connection's database."""
    return _DIALECTS[connection.dialect.name]


def reading(database: Database) -> AbstractContextManager[Connection]:
    """One instant of the whole database, for as long as reading it takes; holds nobody up."""
    return _DIALECTS[database.engine.dialect.name].reading(database)


def rebuilding(database: Database) -> AbstractContextManager[Connection]:
    """A write transaction for migrating and filling: all of it or nothing."""
    return _DIALECTS[database.engine.dialect.name].rebuilding(database)


def file_of(url: str) -> Path | None:
    """The file that a database is; ``None`` where it is on a server."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def is_usable(url: URL) -> bool:
    """Whether a database of this kind can be ours; one in memory would be gone with the process."""
    in_memory = url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:"
    return url.drivername in _DRIVERS and not in_memory


# --- SQLite -------------------------------------------------------------------------------------------


@contextmanager
def _rebuilding_sqlite(database: Database) -> Iterator[Connection]:
    """References are off, or a table that others refer to could not be made anew; checked before the end."""
    with database.engine.connect() as plain:
        connection = plain.execution_options(starverse_write=True)
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("PRAGMA foreign_keys=OFF")  # has no effect within a transaction, so before it begins
        try:
            with connection.begin():
                yield connection
                _check_references(connection)
        finally:
            raw.execute("PRAGMA foreign_keys=ON")


def _check_references(connection: Connection) -> None:
    dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if dangling is not None:
        raise InvariantBroken(f"a row of {dangling[0]} refers to a row of {dangling[2]} that is not there")


def _sound_sqlite(connection: Connection) -> str | None:
    found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(3)")]
    return None if found == ["ok"] else "; ".join(found)


def _clear_sqlite(connection: Connection) -> None:
    for (name,) in connection.exec_driver_sql(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).all():
        connection.exec_driver_sql(f'DROP TABLE "{name}"')


# --- PostgreSQL ---------------------------------------------------------------------------------------


@contextmanager
def _reading_postgresql(database: Database) -> Iterator[Connection]:
    with database.read() as connection:
        _take_long(connection)
        yield connection


@contextmanager
def _rebuilding_postgresql(database: Database) -> Iterator[Connection]:
    with database.engine.connect() as connection, connection.begin():
        _take_long(connection)
        yield connection


def _take_long(connection: Connection) -> None:
    for name in _NO_LIMITS:
        connection.execute(text(f"SET LOCAL {name} = 0"))


def _defer_references(connection: Connection, *, deferred: bool) -> None:
    """Within this transaction alone: the constraints are as they were when it commits."""
    connection.execute(text(f"SET CONSTRAINTS ALL {'DEFERRED' if deferred else 'IMMEDIATE'}"))
    query = text(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype = 'f'"
        " AND connamespace = CAST(current_schema() AS regnamespace) AND condeferrable <> :deferred"
    )
    kind = "DEFERRABLE INITIALLY DEFERRED" if deferred else "NOT DEFERRABLE"
    for table, constraint in connection.execute(query, {"deferred": deferred}).all():
        connection.execute(text(f"ALTER TABLE {table} ALTER CONSTRAINT {_quote(constraint)} {kind}"))


def _count_on_postgresql(connection: Connection, table: str) -> None:
    """Set the counters of a table's own numbers to go on after the highest one."""
    for column in inspect(connection).get_columns(table):
        name = str(column["name"])
        counter = connection.execute(
            text("SELECT pg_get_serial_sequence(:table, :column)"), {"table": _quote(table), "column": name}
        ).scalar()
        if counter is not None:
            highest = f"max({_quote(name)})"
            connection.execute(
                text(
                    f"SELECT setval(:counter, coalesce({highest}, 1), {highest} IS NOT NULL)"
                    f" FROM {_quote(table)}"
                ),
                {"counter": counter},
            )


def _clear_postgresql(connection: Connection) -> None:
    found = MetaData()
    found.reflect(connection)
    found.drop_all(connection)
    connection.execute(text("DROP FUNCTION IF EXISTS transfers_are_immutable()"))


_DIALECTS: Mapping[str, Dialect] = {
    "sqlite": Dialect(
        order=lambda column: column,
        reading=lambda database: database.read(),
        rebuilding=_rebuilding_sqlite,
        defer=lambda _connection: None,
        settle=_check_references,
        sound=_sound_sqlite,
        count_on=lambda _connection, _table: None,
        clear=_clear_sqlite,
    ),
    "postgresql": Dialect(
        order=lambda column: column.collate("C"),
        reading=_reading_postgresql,
        rebuilding=_rebuilding_postgresql,
        defer=partial(_defer_references, deferred=True),
        settle=partial(_defer_references, deferred=False),
        sound=lambda _connection: None,
        count_on=_count_on_postgresql,
        clear=_clear_postgresql,
    ),
}
