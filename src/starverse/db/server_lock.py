"""One server per database, whatever data folder each was started with."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from starverse.db.session import Database
from starverse.domain.errors import Conflict

_KEY = "hashtextextended('starverse server ' || current_schema(), 0)"
_TAKE = text(f"SELECT pg_try_advisory_lock({_KEY})")
_GIVE = text(f"SELECT pg_advisory_unlock({_KEY})")


@contextmanager
def only_server(database: Database) -> Iterator[None]:
    """Hold the database for this process; raises ``Conflict`` when another server has it.

    PostgreSQL: an advisory lock of a session that is kept open. SQLite: a lock on a file beside the database.
    Either goes with the process, however it ends.
    """
    if database.is_sqlite:
        with _beside(database.engine.url.database):
            yield
        return
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.execute(_TAKE).scalar_one():
            raise _taken(database)
        try:
            yield
        finally:
            with suppress(DBAPIError):  # the session is gone already, and its locks with it
                connection.execute(_GIVE)


@contextmanager
def _beside(file: str | None) -> Iterator[None]:
    if not file or file == ":memory:":
        yield
        return
    path = Path(file).resolve()
    with path.with_name(f"{path.name}.lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(
                f"another starverse server is running on {path}",
                hint="stop it first, or use another database",
            ) from error
        yield


def _taken(database: Database) -> Conflict:
    where = database.engine.url.render_as_string(hide_password=True)
    return Conflict(
        f"another starverse server is running on {where}", hint="stop it first, or use another database"
    )
