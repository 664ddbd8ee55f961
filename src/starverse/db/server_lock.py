"""Who has a database: one server alone where it cannot be shared, or several and nobody's maintenance."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from starverse.domain.errors import Conflict

if TYPE_CHECKING:
    from starverse.db.session import Database

_KEY = "hashtextextended('starverse server ' || current_schema(), 0)"
_HINT = "stop it first, or use another database"


def only_server(database: Database) -> AbstractContextManager[None]:
    """Hold the database with no server beside; ``Conflict`` while one has it. Goes with the process."""
    return database.hold(alone=True)


@contextmanager
def hold_file(name: str | None) -> Iterator[None]:
    """A lock on a file beside the database of this name; ``None``: it lives in memory, and is one's own."""
    if not name or name == ":memory:":
        yield
        return
    path = Path(name).resolve()
    with path.with_name(f"{path.name}.lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(f"another starverse server is running on {path}", hint=_HINT) from error
        yield


@contextmanager
def hold_session(engine: Engine, *, alone: bool) -> Iterator[None]:
    """An advisory lock of a session that is kept open: servers share it, maintenance has it alone."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not take(connection, alone=alone):
            where = engine.url.render_as_string(hide_password=True)
            said = "another starverse server" if alone else "a backup's restore or a move"
            raise Conflict(f"{said} is running on {where}", hint=_HINT)
        try:
            yield
        finally:
            with suppress(DBAPIError):  # the session is gone already, and its locks with it
                connection.execute(text(f"SELECT pg_advisory_unlock{'' if alone else '_shared'}({_KEY})"))


def take(connection: Connection, *, alone: bool) -> bool:
    """Take PostgreSQL's advisory lock for this session, if it is free."""
    lock = f"pg_try_advisory_lock{'' if alone else '_shared'}"
    return bool(connection.execute(text(f"SELECT {lock}({_KEY})")).scalar_one())
