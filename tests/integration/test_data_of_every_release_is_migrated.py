"""The data of every released version, kept from a real run, comes to this schema whole and sound."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, column, table, text

from starverse.app.maintenance.alone import alone_on
from starverse.app.maintenance.content import Backup, fill_as_it_was, open_backup
from starverse.app.maintenance.migrating import migrate
from starverse.app.maintenance.restore import restore
from starverse.db import ledger, schema
from starverse.db.maintenance.dialects import rebuilding
from starverse.db.maintenance.rows import TableDigest, digest_of, digests_of, lines_of, shapes_of
from starverse.db.session import Database
from starverse.domain.errors import Conflict, InvariantBroken, Unavailable
from starverse.testing.platforms import POSTGRES_VARIABLE, empty_database
from starverse.testing.worlds import World

RELEASES = sorted((Path(__file__).resolve().parents[1] / "data/releases").iterdir())
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
NOW = datetime(2026, 12, 1, tzinfo=UTC)
IMMUTABLE = ("transfers", "charges", "charge_segments", "price_books")
"""Whatever a migration does, these rows say what they said."""

pytestmark = pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[Database]:
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with empty_database(kind, folder) as database:
        yield database


def as_released(database: Database, release: Path) -> Backup:
    """The database as the released version left it."""
    backup = open_backup(release)
    with rebuilding(database) as connection:
        fill_as_it_was(connection, backup)
    return backup


def keys_of(database: Database, name: str) -> list[tuple[object, ...]]:
    with database.read() as connection:
        shape = shapes_of(connection)[name]
        columns = ", ".join(f'"{key}"' for key in shape.key)
        return sorted(tuple(row) for row in connection.execute(text(f"SELECT {columns} FROM {name}")))


def digest_in_old_columns(connection: Connection, backup: Backup, name: str) -> TableDigest:
    """The digest of a table's lines, without the columns that it has got since the backup."""
    shape = shapes_of(connection)[name]
    old = json.loads(next(backup.table_lines(name)))
    clause = table(name, *(column(each, shape.clause.c[each].type) for each in old))
    return digest_of(lines_of(connection, replace(shape, clause=clause)))


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_and_the_books_are_sound(kind: str, release: Path, tmp_path: Path) -> None:
    with database_of(kind, tmp_path) as database:
        backup = as_released(database, release)
        told = backup.manifest
        before = {name: keys_of(database, name) for name in told.tables}
        assert sum(map(len, before.values())) == told.rows
        schema.upgrade(database)
        assert {name: keys_of(database, name) for name in told.tables} == before
        with database.read() as connection:
            assert not schema.plan_of(connection).steps
            assert ledger.check(connection) == ()
            kept = {name: digest_in_old_columns(connection, backup, name) for name in IMMUTABLE}
        assert kept == {name: told.tables[name] for name in IMMUTABLE}
        world = World(database, tmp_path)
        world.submit(world.team("newcomer"), name="next")
        world.run(90, step=10)
        world.assert_sound()


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_of_it_is_restored_into_this_version(kind: str, release: Path, tmp_path: Path) -> None:
    with database_of(kind, tmp_path) as database:
        assert restore(release, tmp_path, database.url, NOW, replace=False).ledger == ()
        with database.read() as connection:
            assert not schema.plan_of(connection).steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_shows_and_tries_every_step_and_keeps_nothing(
    kind: str, release: Path, tmp_path: Path
) -> None:
    with database_of(kind, tmp_path) as database:
        told = as_released(database, release).manifest
        tried = migrate(tmp_path, database.url, dry_run=True)
        assert tried.plan.present == told.revision
        assert (tried.tried, tried.done) == (bool(tried.plan.steps), False)
        with database.read() as connection:
            assert schema.revision_of(connection) == told.revision
            assert digests_of(connection, told.tables) == told.tables
        done = migrate(tmp_path, database.url, dry_run=False)
        assert (done.plan, done.done) == (tried.plan, bool(tried.plan.steps))
        again = migrate(tmp_path, database.url, dry_run=False)
        assert (again.plan.present, again.plan.steps) == (tried.plan.newest, ())


def test_while_a_server_runs_it_is_only_shown(release: Path, tmp_path: Path) -> None:
    with database_of("sqlite", tmp_path) as database:
        as_released(database, release)
        with alone_on(tmp_path):
            shown = migrate(tmp_path, database.url, dry_run=True)
            if not shown.plan.steps:
                pytest.skip("no migration has been added since this release")
            assert not shown.tried
            with pytest.raises(Conflict, match="server is running"):
                migrate(tmp_path, database.url, dry_run=False)


def test_unsound_books_are_not_migrated(release: Path, tmp_path: Path) -> None:
    with database_of("sqlite", tmp_path) as database:
        told = as_released(database, release).manifest
        with database.write() as connection:
            connection.execute(
                text("UPDATE ledger_accounts SET credits_posted = credits_posted + 1 WHERE kind = 'cash'")
            )
            if not schema.plan_of(connection).steps:
                pytest.skip("no migration has been added since this release")
        with pytest.raises(InvariantBroken, match="counters_match"):
            migrate(tmp_path, database.url, dry_run=False)
        with database.read() as connection:
            assert schema.revision_of(connection) == told.revision


@pytest.mark.parametrize(
    ("revision", "said"),
    [("9999", "revision 9999, which this version does not know"), ("moved-0001", "moved")],
)
def test_what_this_version_must_not_touch_is_refused(
    revision: str, said: str, release: Path, tmp_path: Path
) -> None:
    with database_of("sqlite", tmp_path) as database:
        as_released(database, release)
        with database.write() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :r"), {"r": revision})
        with pytest.raises(Unavailable, match=said):
            migrate(tmp_path, database.url, dry_run=True)
        with pytest.raises(Unavailable, match=said):
            schema.upgrade(database)


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")  # an index over an expression
@pytest.mark.parametrize("name", ["accounts", "teams", "jobs", "allocations", "ledger_accounts"])
def test_a_table_that_others_refer_to_can_be_rebuilt_with_its_rows(
    name: str, release: Path, tmp_path: Path
) -> None:
    """As a migration does that SQLite has no ALTER for."""
    with database_of("sqlite", tmp_path) as database:
        as_released(database, release)
        before = table_digest(database, name)
        with rebuilding(database) as connection:
            operations = Operations(MigrationContext.configure(connection))
            with operations.batch_alter_table(name, recreate="always"):
                pass
        assert table_digest(database, name) == before


def table_digest(database: Database, name: str) -> TableDigest:
    with database.read() as connection:
        return digests_of(connection, [name])[name]


def test_the_kept_data_has_rows_of_every_kind(release: Path, tmp_path: Path) -> None:
    told = open_backup(release).manifest
    empty = {name for name, table in told.tables.items() if not table.rows}
    assert empty <= {"credit_backs"}, "a release's data shows every table at work"
    shutil.copytree(release, tmp_path / "copy")
    with closing(Database(f"sqlite:///{tmp_path / 'scratch.db'}")) as database:
        as_released(database, tmp_path / "copy")
        with database.read() as connection:
            lines = list(lines_of(connection, shapes_of(connection)["jobs"]))
        assert any("训练".encode() in line for line in lines)
