"""``kill -9`` of a backup, a restore or a move before any change of the file system: nothing is ever half."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from starverse.app.maintenance.backup import Wanted, make_backup
from starverse.app.maintenance.content import fill, open_backup
from starverse.app.maintenance.moving import move
from starverse.app.maintenance.restore import NOTE, require_whole, restore
from starverse.db import schema
from starverse.db.maintenance.dialects import dialect_of, rebuilding
from starverse.db.maintenance.rows import TableDigest, digests_of, shapes_of
from starverse.db.session import Database
from starverse.domain.errors import Conflict
from starverse.testing.kill_points import killed_before
from starverse.testing.platforms import POSTGRES_VARIABLE, empty_database

RELEASE = max((Path(__file__).resolve().parents[1] / "data/releases").iterdir())
NOW = datetime(2026, 12, 1, tzinfo=UTC)
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
RENAMES = frozenset({"os.rename", "os.link"})
"""Where a restore or a move takes effect; what it removes is its own scratch."""


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[Database]:
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with empty_database(kind, folder) as database:
        yield database


def fill_with_release(database: Database, data: Path) -> None:
    with rebuilding(database) as connection:
        fill(connection, open_backup(RELEASE))
    (data / "operator-token").write_text("old secret\n")
    for tree in ("logs", "folders"):
        (data / tree).mkdir()
        (data / tree / "file").write_text("old")
    database.close()


def rows_of(url: str) -> dict[str, TableDigest]:
    with closing(Database(url)) as database, database.read() as connection:
        return digests_of(connection, shapes_of(connection))


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup that differs from what a test's target holds, in rows and in files."""
    place = tmp_path_factory.mktemp("taken")
    with closing(Database(f"sqlite:///{place / 'starverse.db'}")) as database:
        fill_with_release(database, place)
        with database.write() as connection:
            connection.execute(text("UPDATE jobs SET name = 'newer'"))
        for file in ("logs/file", "folders/file", "operator-token"):
            (place / file).write_text("new")
        make_backup(database, place, place / "backup", Wanted(("logs", "folders")), NOW)
    return place / "backup"


def every_point(act: Callable[[], object], prepare: Callable[[], None], step: int = 1) -> Iterator[int]:
    """Kill ``act`` before its first rename, its second, and so on, each time on what ``prepare`` made."""
    for point in range(1, 60, step):
        prepare()
        if not killed_before(point, act, RENAMES):
            return
        yield point
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_is_whole_or_goes_on(
    kind: str, taken: Path, released: dict[str, TableDigest], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    wanted = open_backup(taken).manifest.tables
    with database_of(kind, data) as target:

        def prepare() -> None:
            shutil.rmtree(data)
            data.mkdir()
            if kind == "postgresql":
                empty(target)
            fill_with_release(target, data)

        def act() -> object:
            return restore(taken, data, target.url, NOW, replace=True)

        points = 0
        for points in every_point(act, prepare, step=1 if kind == "sqlite" else 3):
            noted, now = (data / NOTE).exists(), rows_of(target.url)
            if not noted:
                assert now in (released, wanted)
                assert {read(data, name) for name in ("logs/file", "folders/file")} in ({"old"}, {"new"})
            else:
                with pytest.raises(Conflict, match="begun and not finished"):
                    require_whole(data)
            done = restore(taken, data, target.url, NOW, replace=True)
            require_whole(data)
            assert rows_of(target.url) == wanted, points
            assert {read(data, name) for name in ("logs/file", "folders/file", "operator-token")} == {"new"}
            assert done.kept is not None
            olds = [read(data, f"{kept.name}/logs/file") for kept in data.glob("before-restore-*")]
            assert "old" in olds, "what was there before is kept"
        assert points >= 6, "note, two trees, a secret and the database each change places"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableDigest]:
    """The rows of the release, as ``prepare`` filled them in."""
    scratch = Database(f"sqlite:///{tmp_path_factory.mktemp('released') / 'compare.db'}")
    with closing(scratch), rebuilding(scratch) as connection:
        fill(connection, open_backup(RELEASE))
        return digests_of(connection, shapes_of(connection))


def read(data: Path, name: str) -> str:
    return (data / name).read_text("utf-8")


def empty(database: Database) -> None:
    with rebuilding(database) as connection:
        if not schema.is_empty(connection):
            dialect_of(connection).clear(connection)


def test_a_backup_that_has_its_name_is_whole(taken: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{taken.parent / 'starverse.db'}"

    def act() -> object:
        with closing(Database(url)) as database:
            return make_backup(database, taken.parent, tmp_path / "backup", Wanted(("logs",)), NOW)

    for point in range(1, 60):
        killed = killed_before(point, act)
        assert (tmp_path / "backup").exists() is not killed
        if not killed:
            break
    assert point > 4
    assert open_backup(tmp_path / "backup").manifest.tables == open_backup(taken).manifest.tables
    assert [left.name for left in tmp_path.iterdir()] == ["backup"], "the killed ones are cleaned up after"


def test_a_move_is_done_or_can_be_done_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    source, target = f"sqlite:///{data / 'starverse.db'}", f"sqlite:///{data / 'target.db'}"

    def prepare() -> None:
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        with closing(Database(source)) as database:
            fill_with_release(database, data)

    def act() -> object:
        return move(data, source, target, NOW, replace=False)

    killed_at = 0
    for point in every_point(act, prepare):
        killed_at = point
        expected = rows_of(source)
        assert move(data, source, target, NOW, replace=False).tables == expected
        assert rows_of(target) == expected
    assert killed_at >= 1
    assert rows_of(target) == rows_of(source)
