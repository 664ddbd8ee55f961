"""A platform on a fresh database with a clock that tests set: no time passes by itself."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from argon2.profiles import CHEAPEST
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from starverse.app.bootstrap import prepare
from starverse.app.passwords import Passwords
from starverse.app.platform import Platform, Settings
from starverse.app.ports import Clock, Ids, RandomIds, Wakeups
from starverse.db.session import Database
from starverse.engines.base import Engine
from starverse.node.disk_trees import copy_tree
from starverse.testing import templates

START = datetime(2026, 3, 10, 2, tzinfo=UTC)
"""2026-03-10 10:00 in Shanghai: by day, the shipped price book in effect."""

POSTGRES_VARIABLE = "STARVERSE_TEST_POSTGRES"


class SetClock:
    """Stands still until a test moves it."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def advance(self, **length: float) -> datetime:
        """Move on by a ``timedelta`` given by its keywords; the new time."""
        self.at += timedelta(**length)
        return self.at


@contextmanager
def fresh_database(kind: str, folder: Path, *, durable: bool = True) -> Iterator[Database]:
    """A database with all tables and no row: ``sqlite`` in ``folder``, or ``postgresql`` beside the one that
    ``STARVERSE_TEST_POSTGRES`` names. It is a copy of one that this process made once."""
    if kind == "sqlite":
        with templates.sqlite_copy(folder / "starverse.db", durable=durable) as database:
            yield database
        return
    with templates.postgresql_copy(os.environ[POSTGRES_VARIABLE]) as database:
        yield database


@contextmanager
def empty_database(kind: str, folder: Path) -> Iterator[Database]:
    """One without any table: ``sqlite`` in ``folder``, or ``postgresql`` in a schema of its own."""
    if kind == "sqlite":
        database = Database(f"sqlite:///{folder / 'starverse.db'}")
        try:
            yield database
        finally:
            database.close()
        return
    url = os.environ[POSTGRES_VARIABLE]
    schema = f"test_{uuid.uuid4().hex}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    inside = make_url(url).update_query_dict({"options": f"-csearch_path={schema}"})
    database = Database(inside.render_as_string(hide_password=False))
    try:
        yield database
    finally:
        database.close()
        with admin.connect() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        admin.dispose()


def make_platform(
    database: Database,
    data: Path,
    engine: Engine,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    **settings: object,
) -> Platform:
    """A prepared platform: ledger accounts and the shipped price book are there, and passwords cost next to
    nothing. ``settings`` override."""
    platform = Platform(
        database=database,
        engine=engine,
        clock=clock or SetClock(),
        ids=ids or RandomIds(),
        wakeups=Wakeups(),
        settings=replace(Settings(data=data), **settings),  # type: ignore[arg-type]
        copy_tree=copy_tree,
        passwords=Passwords(CHEAPEST),
    )
    prepare(platform)
    return platform
