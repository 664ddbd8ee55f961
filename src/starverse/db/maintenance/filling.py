"""A database filled as a whole, or not at all: nobody ever sees half of it, whenever the process dies.

PostgreSQL: one transaction. SQLite: a file aside, flushed to the disk and renamed over the one that is there;
what was there is kept in a folder that the caller names.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError

from starverse.db import schema
from starverse.db.maintenance.dialects import dialect_of, file_of, is_usable, rebuilding
from starverse.db.session import Database, DatabaseAway
from starverse.domain.errors import Conflict, FieldFault, Invalid, Unavailable

ASIDE = ".filling"
BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a database file that was not closed in order."""


class TargetNotEmpty(Conflict):
    """The target is not empty; nothing was changed."""

    code = "target_not_empty"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, hint="name another one, or say --replace: what is there is kept aside")


def nothing() -> None:
    """What happens last where nothing else has to."""


@contextmanager
def filling(url: str, *, keep: Path | None, last: Callable[[], None] = nothing) -> Iterator[Connection]:
    """A transaction on an empty database at ``url``; what it wrote is there once the block has ended.

    ``last`` is called when all is written, just before it counts: a full disk has shown itself by then.

    ``keep``: a folder for what was there before (SQLite's file is moved there; PostgreSQL's tables are
    dropped, so save them first). ``None``: raises :class:`TargetNotEmpty` when there is any table.
    """
    try:
        with _filling(url, keep, last) as connection:
            yield connection
    except DBAPIError as error:  # a full disk, a server that went away, a right that is missing
        raise Unavailable(f"the database could not be filled: {first_line(error)}") from error


@contextmanager
def _filling(url: str, keep: Path | None, last: Callable[[], None]) -> Iterator[Connection]:
    file = file_of(url)
    if file is None:
        with closing(Database(url)) as database, rebuilding(database) as connection:
            if not schema.is_empty(connection):
                if keep is None:
                    raise TargetNotEmpty
                dialect_of(connection).clear(connection)
            yield connection
            last()
        return
    if keep is None and not _is_empty_file(file):
        raise TargetNotEmpty
    aside = file.with_name(f".{file.name}{ASIDE}")
    _remove(aside)
    try:
        with closing(Database(f"sqlite:///{aside}", durable=False)) as database:
            with rebuilding(database) as connection:
                yield connection
            _make_one_file(database)
        aside.chmod(0o600)
        own_like_folder(aside, file.parent)
        flush(aside)
        last()
        _retire(file, keep)
        aside.rename(file)
        flush(file.parent)
    finally:
        _remove(aside)


def shown_url(url: str, option: str) -> str:
    """The URL without its password; raises ``Invalid`` for one that is not of a database we can use."""
    expected = "sqlite:///FILE or postgresql+psycopg://HOST/DATABASE"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise Invalid(faults=[FieldFault(option, url, expected)]) from error
    shown = parsed.render_as_string(hide_password=True)
    if not is_usable(parsed):
        raise Invalid(faults=[FieldFault(option, shown, expected)])
    return shown


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """The database at ``url``; raises ``Unavailable`` with the reason for a server that lets nobody in."""
    with closing(Database(url)) as database:
        if database.shared:
            try:
                with database.read():
                    pass
            except (DatabaseAway, DatabaseError) as error:
                cause = error.__cause__ if isinstance(error, DatabaseAway) else error
                raise Unavailable(f"cannot use {shown_url(url, 'server.db')}: {first_line(cause)}") from error
        yield database


def first_line(error: BaseException | None) -> str:
    """What the database said, without its statement and its details."""
    lines = str(getattr(error, "orig", error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def flush(path: Path) -> None:
    """A file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_empty_file(file: Path) -> bool:
    if not file.exists() or file.stat().st_size == 0:
        return True
    try:
        with closing(Database(f"sqlite:///{file}")) as database, database.read() as connection:
            return schema.is_empty(connection)
    except (DatabaseError, sqlite3.Error):  # something else, or damaged: not to be written over unasked
        return False


def _make_one_file(database: Database) -> None:
    """Everything is in the file itself, so that it can be renamed. Nobody else may have it open."""
    with database.engine.connect() as connection:
        mode = connection.connection.cursor().execute("PRAGMA journal_mode=DELETE").fetchone()
    if mode is None or mode[0] != "delete":
        raise Conflict(f"something else has {database.engine.url.database} open", hint="end it first")


def _retire(file: Path, keep: Path | None) -> None:
    """Keep what was there: a stale write-ahead log must never meet the new file."""
    if not file.exists():
        for suffix in BESIDE:
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        return
    with suppress(DatabaseError, sqlite3.Error), closing(Database(f"sqlite:///{file}")) as old:
        _make_one_file(old)
    kept = None if keep is None else keep / file.name
    for suffix in BESIDE:  # still there: what was there is damaged, or was left open
        left = file.with_name(file.name + suffix)
        if left.exists() and keep is not None:
            keep.mkdir(mode=0o700, parents=True, exist_ok=True)
            left.replace(keep / left.name)
    if kept is not None and not kept.exists():  # or a try that was killed has kept what was there
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _keep_copy(file, kept)


def _keep_copy(file: Path, kept: Path) -> None:
    try:
        os.link(file, kept)
    except OSError:  # another file system, or one without links
        aside = kept.with_name(f".{kept.name}")
        shutil.copy2(file, aside)
        flush(aside)
        aside.rename(kept)
    flush(kept.parent)


def own_like_folder(file: Path, folder: Path) -> None:
    """What root makes in a folder belongs to whoever the folder belongs to."""
    owner = folder.stat()
    if os.geteuid() == 0:
        os.chown(file, owner.st_uid, owner.st_gid)


def _remove(aside: Path) -> None:
    for suffix in ("", *BESIDE):
        aside.with_name(aside.name + suffix).unlink(missing_ok=True)
