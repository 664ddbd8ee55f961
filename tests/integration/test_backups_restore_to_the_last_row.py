"""A backup brings back every row and folder, on either database; one that is not whole is refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from starverse.app.maintenance.alone import alone_on
from starverse.app.maintenance.backup import Wanted, make_backup
from starverse.app.maintenance.content import digest_of_file, open_backup, rehearse, table_file
from starverse.app.maintenance.manifest import MANIFEST_NAME, BackupRefused, Manifest, read_manifest
from starverse.app.maintenance.restore import NOTE, require_whole, restore
from starverse.app.maintenance.trees import TREES
from starverse.app.servers import Server, require_same_data
from starverse.db import leases, ledger, schema, servers
from starverse.db.maintenance.filling import TargetNotEmpty
from starverse.db.maintenance.rows import digests_of, shapes_of
from starverse.db.server_lock import only_server
from starverse.db.session import Database
from starverse.domain.errors import Conflict, Invalid, InvariantBroken
from starverse.testing.platforms import POSTGRES_VARIABLE, empty_database
from starverse.testing.worlds import World

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[Database]:
    """An empty database without any table."""
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    folder.mkdir(exist_ok=True)
    with empty_database(kind, folder) as database:
        yield database


def live_a_little(database: Database, data: Path) -> World:
    """Rows in most tables: jobs that ended, run and wait, holds, charges; folders and a secret."""
    schema.upgrade(database)
    world = World(database, data)
    who = world.team("ann")
    world.submit(who, name="short")
    world.submit(who, "--array=1-2", name="训练")
    world.run(120, step=10)
    world.submit(who, name="runs")
    world.run(10, step=5)
    world.submit(who, "--begin=2030-01-01", name="waits")
    (data / "operator-token").write_text("sv_secret\n")
    for tree in TREES:
        (data / tree / "team").mkdir(parents=True)
        (data / tree / "team" / "文件").write_text(f"of {tree}")
    return world


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SQLite installation ``data`` and a whole backup of it, for tests that copy from it."""
    place = tmp_path_factory.mktemp("taken")
    data = place / "data"
    with database_of("sqlite", data) as database:
        live_a_little(database, data)
        make_backup(database, data, place / "backup", Wanted(TREES), NOW)
    return place


def rows_of(database: Database) -> dict[str, object]:
    with database.read() as connection:
        return dict(digests_of(connection, shapes_of(connection)))


@pytest.mark.parametrize("into", KINDS)
@pytest.mark.parametrize("origin", KINDS)
def test_every_row_comes_back_on_either_database(origin: str, into: str, tmp_path: Path) -> None:
    data, fresh = tmp_path / "data", tmp_path / "fresh"
    with database_of(origin, data) as database, database_of(into, fresh) as target:
        live_a_little(database, data)
        made = make_backup(database, data, tmp_path / "backup", Wanted(TREES), NOW)
        assert made.manifest.contains == ("database", "secrets", *TREES)
        assert made.manifest.leaves_out == ()
        done = restore(tmp_path / "backup", fresh, target.url, NOW, replace=False)
        assert (done.kept, done.ledger) == (None, ())
        assert rows_of(target) == rows_of(database)
        with target.read() as connection:
            assert ledger.check(connection) == ()
        for tree in TREES:
            assert (fresh / tree / "team" / "文件").read_text() == f"of {tree}"
        assert (fresh / "operator-token").stat().st_mode & 0o777 == 0o600
        goes_on(target, fresh)


def goes_on(database: Database, data: Path) -> None:
    """New numbers follow the old ones: people can work on what was restored."""
    with database.read() as connection:
        highest = connection.execute(text("SELECT max(number) FROM jobs")).scalar_one()
        events = connection.execute(text("SELECT max(id) FROM events")).scalar_one()
    world = World(database, data)
    made = world.submit(world.team("bob"), name="next")
    world.run(90, step=10)
    assert int(made.number) == highest + 1
    world.assert_sound()
    with database.read() as connection:
        assert connection.execute(text("SELECT max(id) FROM events")).scalar_one() > events


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_schema_is_the_declared_one(kind: str, taken: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    with database_of(kind, fresh) as target:
        restore(taken / "backup", fresh, target.url, NOW, replace=False)
        with target.read() as connection:
            assert not schema.plan_of(connection).steps
        with pytest.raises(Exception, match=r"(?i)foreign key"), target.write() as connection:
            connection.execute(
                text("INSERT INTO team_members (team_id, account_id, role) VALUES ('no', 'no', 'owner')")
            )
        with pytest.raises(Exception, match="immutable"), target.write() as connection:
            connection.execute(text("UPDATE transfers SET amount = 1"))


def test_what_is_not_asked_for_stays_out_and_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with database_of("sqlite", data) as database:
        live_a_little(database, data)
        made = make_backup(database, data, tmp_path / "backup", Wanted(("logs",), secrets=False), NOW)
        assert made.manifest.contains == ("database", "logs")
        assert made.manifest.leaves_out == ("secrets", *(tree for tree in TREES if tree != "logs"))
        assert not (tmp_path / "backup" / "secrets").exists()
        with pytest.raises(Invalid, match="--with"):
            make_backup(database, data, tmp_path / "other", Wanted(("everything",)), NOW)
        with pytest.raises(Conflict, match="there already"):
            make_backup(database, data, tmp_path / "backup", Wanted(()), NOW)
        with pytest.raises(Invalid, match="outside of"):
            make_backup(database, data, data / "logs" / "backup", Wanted(()), NOW)


def edit_manifest(place: Path, change: Callable[[Manifest], Manifest]) -> None:
    """A manifest that is whole and says something else."""
    file = place / MANIFEST_NAME
    file.write_text(change(read_manifest(file.read_text("utf-8"))).to_json(), "utf-8")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def lose_a_row(place: Path) -> None:
    """A table's file without its last row, and its file's digest made to fit: only the rows tell."""
    name = table_file("charges")
    lines = gzip.decompress((place / name).read_bytes()).splitlines(keepends=True)
    (place / name).write_bytes(gzip.compress(b"".join(lines[:-1])))
    digest = digest_of_file(place / name)
    edit_manifest(place, lambda m: replace(m, files={**m.files, name: digest}))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file cut short": (lambda p: cut(p / "trees/logs.tar"), r"trees/logs.tar has \d+ bytes, not \d+"),
    "a flipped bit": (lambda p: flip(p / table_file("events")), "events.jsonl.gz is not what was written"),
    "a file that is gone": (lambda p: (p / table_file("teams")).unlink(), "teams.jsonl.gz is missing"),
    "a row that is gone": (
        lose_a_row,
        "what was filled in is not what was read: charges|charge_segments refers to",
    ),
    "a manifest cut short": (lambda p: cut(p / MANIFEST_NAME), "it is not JSON"),
    "an edited manifest": (
        lambda p: (p / MANIFEST_NAME).write_text((p / MANIFEST_NAME).read_text().replace("2026", "2027")),
        "digest is not that of its content",
    ),
    "no manifest": (lambda p: (p / MANIFEST_NAME).unlink(), "is not a backup"),
    "something else's manifest": (lambda p: (p / MANIFEST_NAME).write_text("{}"), "not one of a starverse"),
    "a later format": (
        lambda p: (p / MANIFEST_NAME).write_text('{"format": "starverse-backup", "format_version": 2}'),
        "has format 2; this version reads format 1",
    ),
    "a later schema": (
        lambda p: edit_manifest(p, lambda m: replace(m, revision="9999")),
        "revision 9999 of the database, which this version does not know",
    ),
    "a path that leads out": (
        lambda p: edit_manifest(p, lambda m: replace(m, files={"../x": next(iter(m.files.values()))})),
        "names a file outside",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_backup_that_is_not_whole_is_refused(fault: str, taken: Path, tmp_path: Path) -> None:
    spoil, said = FAULTS[fault]
    fresh = tmp_path / "fresh"
    shutil.copytree(taken / "backup", tmp_path / "backup")
    spoil(tmp_path / "backup")
    with pytest.raises((BackupRefused, InvariantBroken), match=said):
        rehearse(open_backup(tmp_path / "backup"), tmp_path)
    with pytest.raises((BackupRefused, InvariantBroken), match=said):
        restore(tmp_path / "backup", fresh, f"sqlite:///{fresh / 'starverse.db'}", NOW, replace=False)
    assert not (fresh / "starverse.db").exists(), "nothing came of it"
    assert not (fresh / NOTE).exists()
    assert not (fresh / "logs").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_holds_something_stays_unless_told(kind: str, tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    with database_of("sqlite", data) as database, database_of(kind, other) as target:
        live_a_little(database, data)
        make_backup(database, data, tmp_path / "backup", Wanted(("logs",)), NOW)
        live_a_little(target, other).team("carol")
        (other / "logs" / "team" / "mine").write_text("kept")
        before = rows_of(target)
        with pytest.raises(TargetNotEmpty):
            restore(tmp_path / "backup", other, target.url, NOW, replace=False)
        assert rows_of(target) == before
        assert (other / "logs" / "team" / "mine").exists()
        target.close()
        done = restore(tmp_path / "backup", other, target.url, NOW, replace=True)
        assert rows_of(target) == rows_of(database)
        assert done.kept is not None
        assert (done.kept / "logs" / "team" / "mine").read_text() == "kept"
        assert (other / "workspaces" / "team" / "文件").exists(), "what the backup has not is left alone"
        with kept_database(kind, done.kept, tmp_path / "again") as kept:
            assert rows_of(kept) == before


@contextmanager
def kept_database(kind: str, kept: Path, folder: Path) -> Iterator[Database]:
    """What a restore kept of the database that was there before."""
    folder.mkdir()
    if kind == "postgresql":
        restore(kept / "database", folder, f"sqlite:///{folder / 'starverse.db'}", NOW, replace=False)
    else:
        shutil.copy(kept / "starverse.db", folder)
    database = Database(f"sqlite:///{folder / 'starverse.db'}")
    yield database
    database.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_server_is_not_restored_over(kind: str, taken: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    with database_of(kind, fresh) as target:
        with only_server(target), pytest.raises(Conflict, match="server is running"):
            restore(taken / "backup", fresh, target.url, NOW, replace=True)
        elsewhere = f"sqlite:///{tmp_path / 'else.db'}"
        with alone_on(fresh), pytest.raises(Conflict, match="server is running"):
            restore(taken / "backup", fresh, elsewhere, NOW, replace=True)


def test_a_restore_that_was_killed_between_its_renames_keeps_servers_out_and_goes_on(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    with database_of("sqlite", data) as database, database_of("sqlite", other) as target:
        live_a_little(database, data)
        make_backup(database, data, tmp_path / "backup", Wanted(("logs", "folders")), NOW)
        live_a_little(target, other)
        before = rows_of(target)
        target.close()
        keep = other / "before-restore-earlier"
        keep.mkdir()
        (other / "logs").rename(keep / "logs")
        (other / NOTE).write_text(json.dumps({"keep": keep.name}))
        with pytest.raises(Conflict, match="begun and not finished"):
            require_whole(other)
        done = restore(tmp_path / "backup", other, target.url, NOW, replace=False)
        assert done.kept == keep
        assert (keep / "logs" / "team" / "文件").exists()
        assert rows_of(target) == rows_of(database)
        require_whole(other)
        kept = Database(f"sqlite:///{keep / 'starverse.db'}")
        assert rows_of(kept) == before
        kept.close()


def test_a_damaged_database_is_not_backed_up_as_if_it_were_whole(taken: Path, tmp_path: Path) -> None:
    file = tmp_path / "starverse.db"
    content = bytearray((taken / "data" / "starverse.db").read_bytes())
    content[20 * 4096 : 40 * 4096] = os.urandom(20 * 4096)
    file.write_bytes(bytes(content))
    damaged = Database(f"sqlite:///{file}")
    with pytest.raises(InvariantBroken, match="the database is damaged"):
        make_backup(damaged, tmp_path, tmp_path / "backup", Wanted(()), NOW)
    damaged.close()
    assert not (tmp_path / "backup").exists()
    assert not list(tmp_path.glob(".backup*")), "nothing is left lying about"


def test_a_damaged_database_can_be_replaced(taken: Path, tmp_path: Path) -> None:
    (tmp_path / "starverse.db").write_bytes(b"not a database at all" * 500)
    (tmp_path / "starverse.db-wal").write_bytes(b"stale")
    url = f"sqlite:///{tmp_path / 'starverse.db'}"
    with pytest.raises(TargetNotEmpty):
        restore(taken / "backup", tmp_path, url, NOW, replace=False)
    done = restore(taken / "backup", tmp_path, url, NOW, replace=True)
    assert done.kept is not None
    assert (done.kept / "starverse.db").read_bytes().startswith(b"not a database")
    assert not (tmp_path / "starverse.db-wal").exists(), "a stale log never meets the new file"
    restored = Database(url)
    assert rows_of(restored) == open_backup(taken / "backup").manifest.tables
    restored.close()


def test_unsound_books_are_kept_and_named(tmp_path: Path) -> None:
    data, fresh = tmp_path / "data", tmp_path / "fresh"
    with database_of("sqlite", data) as database, database_of("sqlite", fresh) as target:
        live_a_little(database, data)
        with database.write() as connection:
            connection.execute(
                text("UPDATE ledger_accounts SET credits_posted = credits_posted + 1 WHERE kind = 'cash'")
            )
        made = make_backup(database, data, tmp_path / "backup", Wanted(()), NOW)
        assert any("counters_match" in line for line in made.manifest.ledger)
        assert restore(tmp_path / "backup", fresh, target.url, NOW, replace=False).ledger


def test_what_a_killed_backup_left_is_removed_by_the_next(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with database_of("sqlite", data) as database:
        live_a_little(database, data)
        left = tmp_path / ".backup.partial-0123456789abcdef"
        (left / "tables").mkdir(parents=True)
        (left / ".lock").touch()
        make_backup(database, data, tmp_path / "backup", Wanted(()), NOW)
        assert not left.exists()
        assert open_backup(tmp_path / "backup")


@pytest.mark.parametrize("kind", KINDS)
def test_servers_that_ran_during_the_backup_do_not_keep_new_ones_out(kind: str, tmp_path: Path) -> None:
    data, fresh = tmp_path / "data", tmp_path / "fresh"
    with database_of(kind, data) as database, database_of(kind, fresh) as target:
        schema.upgrade(database)
        with database.write() as connection:
            servers.note_alive(connection, Server("old", data_id="another folder"), leases.clock(connection))
        make_backup(database, data, tmp_path / "backup", Wanted(()), NOW)
        restore(tmp_path / "backup", fresh, target.url, NOW, replace=False)
        require_same_data(target, Server("new", data_id="this folder"), 3600)
