"""A database moves between SQLite and PostgreSQL with every row; killed or refused, it stays whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from starverse.app.maintenance.alone import alone_on
from starverse.app.maintenance.backup import Wanted, make_backup
from starverse.app.maintenance.content import fill, open_backup
from starverse.app.maintenance.moving import move
from starverse.db import schema
from starverse.db.maintenance.dialects import rebuilding
from starverse.db.maintenance.filling import TargetNotEmpty
from starverse.db.maintenance.rows import RowRefused, TableDigest, digests_of, shapes_of
from starverse.db.server_lock import only_server
from starverse.db.session import Database
from starverse.domain.errors import Conflict, InvariantBroken, NotFound, Unavailable
from starverse.testing.platforms import POSTGRES_VARIABLE, empty_database
from starverse.testing.worlds import World

RELEASE = max((Path(__file__).resolve().parents[1] / "data/releases").iterdir())
NOW = datetime(2026, 12, 1, tzinfo=UTC)
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[Database]:
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    folder.mkdir(exist_ok=True)
    with empty_database(kind, folder) as database:
        yield database


@contextmanager
def filled(kind: str, folder: Path) -> Iterator[Database]:
    """With the rows of a real run."""
    with database_of(kind, folder) as database:
        with rebuilding(database) as connection:
            fill(connection, open_backup(RELEASE))
        yield database


def rows_of(database: Database) -> dict[str, TableDigest]:
    with database.read() as connection:
        return digests_of(connection, shapes_of(connection))


def assert_sends_away(database: Database) -> None:
    """No server starts on what was moved away, and no backup is taken of it."""
    with pytest.raises(Unavailable, match="was moved to another one"):
        schema.upgrade(database)


@pytest.mark.postgres
def test_there_and_back_again(tmp_path: Path) -> None:
    with (
        filled("sqlite", tmp_path / "data") as here,
        database_of("postgresql", tmp_path / "other") as there,
    ):
        data, before = tmp_path / "data", rows_of(here)
        moved = move(data, here.url, there.url, NOW, replace=False)
        assert rows_of(there) == before == moved.tables
        assert (moved.was_there, moved.kept) == (False, None)
        assert_sends_away(here)
        work_on(there, data)
        after = rows_of(there)
        here.close()
        back = move(data, there.url, here.url, NOW, replace=True)
        assert rows_of(here) == after
        assert_sends_away(there)
        assert back.kept is not None
        kept = Database(f"sqlite:///{back.kept / 'starverse.db'}")
        assert rows_of(kept) == before, "the file that was moved away before is kept"
        kept.close()
        work_on(here, data)


def work_on(database: Database, data: Path) -> None:
    """New rows take the next numbers, and the books stay sound."""
    with database.read() as connection:
        number, event, transfer = (
            connection.execute(text(f"SELECT max({column}) FROM {table}")).scalar_one()
            for column, table in (
                ("coalesce(task_number, number)", "jobs"),
                ("id", "events"),
                ("sequence", "transfers"),
            )
        )
    world = World(database, data)
    made = world.submit(world.team(f"team-{number}"), name="next")
    world.run(90, step=10)
    world.assert_sound()
    assert int(made.number) == number + 1
    with database.read() as connection:
        for before, column, table in ((event, "id", "events"), (transfer, "sequence", "transfers")):
            assert connection.execute(text(f"SELECT max({column}) FROM {table}")).scalar_one() > before


@pytest.mark.parametrize("into", KINDS)
def test_killed_between_commit_and_mark_the_same_command_ends_it(into: str, tmp_path: Path) -> None:
    with filled("sqlite", tmp_path / "data") as here, filled(into, tmp_path / "other") as there:
        moved = move(tmp_path / "data", here.url, there.url, NOW, replace=False)
        assert moved.was_there
        assert moved.tables == rows_of(there)
        assert_sends_away(here)


@pytest.mark.parametrize("into", KINDS)
def test_a_target_with_other_rows_stays_unless_told(into: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with filled("sqlite", data) as here, filled(into, tmp_path / "other") as there:
        with there.write() as connection:
            connection.execute(text("UPDATE jobs SET name = 'mine'"))
        before = rows_of(there)
        with pytest.raises(TargetNotEmpty):
            move(data, here.url, there.url, NOW, replace=False)
        assert rows_of(there) == before
        schema.upgrade(here)
        there.close()
        moved = move(data, here.url, there.url, NOW, replace=True)
        assert rows_of(there) == rows_of(here)
        assert moved.kept is not None
        assert list(moved.kept.iterdir())


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            "UPDATE jobs SET name = 'a' || char(0) || 'b' WHERE number = 1",
            "row of jobs with id '.*' does not",
        ),
        (
            "UPDATE cards SET card_index = 3000000000 WHERE card_index = 7",
            "row of cards with id '.*' does not",
        ),
        ("UPDATE teams SET name = printf('%0100d', 1) WHERE name = 'vision'", "row of teams with id"),
    ],
    ids=["a zero byte", "a number too large", "a text too long"],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_moved(spoil: str, said: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with filled("sqlite", data) as here, database_of("postgresql", tmp_path / "other") as there:
        with here.write() as connection:
            connection.execute(text(spoil))
        with pytest.raises(RowRefused, match=said):
            move(data, here.url, there.url, NOW, replace=False)
        with there.read() as connection:
            assert schema.is_empty(connection)
        schema.upgrade(here)


def test_what_must_not_be_moved_is_refused(tmp_path: Path) -> None:
    data, target = tmp_path / "data", f"sqlite:///{tmp_path / 'target.db'}"
    with filled("sqlite", data) as here:
        with alone_on(data), pytest.raises(Conflict, match="server is running"):
            move(data, here.url, target, NOW, replace=False)
        with only_server(here), pytest.raises(Conflict, match="server is running"):
            move(data, here.url, target, NOW, replace=False)
        with pytest.raises(Conflict, match="there already"):
            move(data, here.url, here.url, NOW, replace=True)
        with here.write() as connection:
            connection.execute(
                text("UPDATE ledger_accounts SET credits_posted = credits_posted + 1 WHERE kind = 'cash'")
            )
        with pytest.raises(InvariantBroken, match="the ledger is not sound"):
            move(data, here.url, target, NOW, replace=False)
    (tmp_path / "empty").mkdir()
    with database_of("sqlite", tmp_path / "empty") as empty, pytest.raises(NotFound):
        move(tmp_path / "empty", empty.url, target, NOW, replace=False)
    assert not (tmp_path / "target.db").exists()


def test_no_backup_is_taken_of_what_was_moved_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with filled("sqlite", data) as here:
        move(data, here.url, f"sqlite:///{tmp_path / 'target.db'}", NOW, replace=False)
        with pytest.raises(Unavailable, match="was moved to another one"):
            make_backup(here, data, tmp_path / "backup", Wanted(()), NOW)
