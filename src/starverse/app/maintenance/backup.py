"""``starverse admin backup``: a folder that holds a whole installation as it was at one instant.

::

    DEST/manifest.json          what is in it, every file's SHA-256, the schema's revision, the ledger check
    DEST/tables/NAME.jsonl.gz   each table (db/maintenance/rows.py), the same from SQLite and PostgreSQL
    DEST/secrets/...            operator-token and the like, unless left out
    DEST/trees/NAME.tar         folders of the data folder that were asked for

The server may run: the database is read in one transaction that sees one instant and holds nobody up, and
the folders after it, so that what its rows name was there. (That transaction is open while files are
written: it only reads, and a table need not fit into memory.) Everything is written aside, flushed, restored
into a database that is thrown away, and given its name by one rename: a backup that has its name is whole.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import gzip
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import IO

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError

from starverse import __version__
from starverse.app.maintenance.content import (
    Backup,
    digest_of_file,
    open_backup,
    rehearse,
    table_file,
    tables_of_revision,
)
from starverse.app.maintenance.manifest import MANIFEST_NAME, FileDigest, Manifest
from starverse.app.maintenance.trees import TREES, pack
from starverse.db import schema
from starverse.db.maintenance.dialects import dialect_of, file_of, reading
from starverse.db.maintenance.filling import first_line, flush
from starverse.db.maintenance.rows import TableDigest, lines_of, shapes_of
from starverse.db.session import Database
from starverse.domain.errors import Conflict, FieldFault, Invalid, InvariantBroken, NotFound, Unavailable

SECRETS = ("operator-token", "gateway-mock.secret", "tls", "secrets.key", "gateway")
"""Secrets of the data folder, files and folders of files."""

COMPRESSION = 4
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
PARTIAL = ".partial-"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What goes into a backup beside the database."""

    trees: Collection[str] = ("folders",)
    secrets: bool = True


def make_backup(database: Database, data: Path, dest: Path, wanted: Wanted, now: datetime) -> Backup:
    """Write a backup of the database and of what of the data folder is wanted; answers it, verified.

    The manifest's ``ledger`` names what the ledger check found: a backup of unsound books is kept, too.
    Raises ``Conflict`` when ``dest`` is there already, ``InvariantBroken`` when the database is damaged.
    """
    _check_place(data, dest, wanted)
    with _written_aside(dest) as aside:
        (aside / "tables").mkdir(mode=0o700)
        with damage_told(), reading(database) as connection:
            check_sound(connection)
            revision = _revision(connection)
            tables = _write_tables(connection, aside, revision)
        shutil.rmtree(_scratch(aside))
        secrets = _copy_secrets(data, aside) if wanted.secrets else []
        trees, unread = _pack_trees(data, aside, wanted.trees)
        kept = [*(["secrets"] if secrets else []), *trees]
        manifest = Manifest(
            made_at=now.astimezone(UTC).isoformat(),
            starverse=__version__,
            revision=revision,
            database=database.kind,
            tables=tables,
            files=_digests(aside),
            contains=("database", *kept),
            leaves_out=(
                *(() if wanted.secrets else ("secrets",)),
                *(t for t in TREES if t not in wanted.trees),
            ),
            ledger=(),
            unread=tuple(unread),
        )
        _write(aside / MANIFEST_NAME, manifest.to_json().encode())
        broken = rehearse(open_backup(aside), _scratch(aside))
        shutil.rmtree(_scratch(aside))
        manifest = replace(manifest, ledger=broken)
        _write(aside / MANIFEST_NAME, manifest.to_json().encode())
    return Backup(dest, manifest)


def save_before_replacing(url: str, data: Path, keep: Path, now: datetime) -> None:
    """A backup ``keep/database`` of a database that is no file, which would be kept as it is.

    Nothing where one is there already (of a try that was killed), or where there is nothing to save.
    """
    place = keep / "database"
    if file_of(url) is not None or place.exists():
        return
    with closing(Database(url)) as database:
        with database.read() as connection:
            if schema.is_empty(connection) or schema.was_moved(connection):
                return
        keep.mkdir(mode=0o700, exist_ok=True)
        try:
            make_backup(database, data, place, Wanted(trees=(), secrets=False), now)
        except (Unavailable, NotFound) as error:
            raise Conflict(
                f"what is in the database cannot be saved before it is replaced: {error.detail}",
                hint="drop its tables yourself if they may go",
            ) from error


def _check_place(data: Path, dest: Path, wanted: Wanted) -> None:
    unknown = [tree for tree in wanted.trees if tree not in TREES]
    if unknown:
        raise Invalid(faults=[FieldFault("--with", name, f"one of {', '.join(TREES)}") for name in unknown])
    if dest.exists() and not (dest.is_dir() and not any(dest.iterdir())):
        raise Conflict(f"{dest} is there already; a backup is never written over", hint="name a new folder")
    if not dest.parent.is_dir():
        fault = FieldFault("DEST", str(dest), "a new folder in one that exists")
        raise Invalid(faults=[fault])
    for tree in TREES:
        if dest.resolve().is_relative_to((data / tree).resolve()):
            raise Invalid(faults=[FieldFault("DEST", str(dest), f"a folder outside of {data / tree}")])


@contextmanager
def _written_aside(dest: Path) -> Iterator[Path]:
    """A folder that becomes ``dest`` at the end of the block, whole and flushed, or vanishes.

    One that is being written holds a lock; what a killed backup left does not, and is removed by the next.
    """
    _remove_dead(dest)
    aside = dest.with_name(f".{dest.name}{PARTIAL}{token_hex(8)}")
    aside.mkdir(mode=0o700)
    try:
        with (aside / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield aside
            (aside / LOCK).unlink()
            for folder, _, files in os.walk(aside, topdown=False):
                for name in files:
                    flush(Path(folder, name))
                flush(Path(folder))
            _take_name(aside, dest)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _take_name(aside: Path, dest: Path) -> None:
    try:
        aside.rename(dest)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise Conflict(f"another backup took the name {dest} meanwhile") from error
        raise
    flush(dest.parent)


def _remove_dead(dest: Path) -> None:
    for left in dest.parent.glob(f".{glob.escape(dest.name)}{PARTIAL}*"):
        with suppress(OSError), (left / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def damage_told() -> Iterator[None]:
    """A damaged SQLite file, as ``InvariantBroken``; a full disk or a missing right, as it is."""
    try:
        yield
    except DatabaseError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in DAMAGE:
            raise _damaged(str(error.orig)) from error
        raise Unavailable(f"the database cannot be read: {first_line(error)}") from error


def check_sound(connection: Connection) -> None:
    """Raises ``InvariantBroken`` for a database file that is damaged."""
    damage = dialect_of(connection).sound(connection)
    if damage:
        raise _damaged(damage)


def _damaged(what: str) -> InvariantBroken:
    return InvariantBroken(
        f"the database is damaged: {what}",
        hint="restore the newest backup: `starverse admin restore SRC --replace`",
    )


def _revision(connection: Connection) -> str:
    plan = schema.plan_of(connection)
    if plan.present is None:
        raise NotFound("there is no starverse database yet", hint="`starverse up` makes it")
    return plan.present


def _write_tables(connection: Connection, aside: Path, revision: str) -> dict[str, TableDigest]:
    shapes = shapes_of(connection)
    ours = sorted(tables_of_revision(revision, _scratch(aside)))
    missing = [name for name in ours if name not in shapes]
    if missing:
        raise InvariantBroken(f"the database has no table {', '.join(missing)}")
    return {name: _write_table(lines_of(connection, shapes[name]), aside / table_file(name)) for name in ours}


def _write_table(lines: Iterator[bytes], file: Path) -> TableDigest:
    digest, counted = hashlib.sha256(), -1
    with _create(file) as raw, gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as packed:
        for line in lines:
            packed.write(line)
            digest.update(line)
            counted += 1
    return TableDigest(counted, digest.hexdigest())


def _copy_secrets(data: Path, aside: Path) -> list[Path]:
    copied = []
    for name in SECRETS:
        found = data / name
        files = sorted(file for file in found.rglob("*") if file.is_file()) if found.is_dir() else [found]
        for file in files:
            if file.is_file():
                target = aside / "secrets" / file.relative_to(data)
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(target, file.read_bytes())
                copied.append(target)
    return copied


def _pack_trees(data: Path, aside: Path, wanted: Collection[str]) -> tuple[list[str], list[str]]:
    packed, unread = [], []
    for tree in TREES:
        if tree in wanted and (data / tree).is_dir():
            (aside / "trees").mkdir(mode=0o700, exist_ok=True)
            with _create(aside / "trees" / f"{tree}.tar") as out:
                _, missed = pack(data, tree, out)
            packed.append(tree)
            unread += missed
    return packed, unread


def _digests(aside: Path) -> dict[str, FileDigest]:
    files = sorted(file for file in aside.glob("*/**/*") if file.is_file())
    return {str(file.relative_to(aside)): digest_of_file(file) for file in files}


def _scratch(aside: Path) -> Path:
    place = aside / "scratch"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def _create(file: Path) -> IO[bytes]:
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb")


def _write(file: Path, content: bytes) -> None:
    with _create(file) as out:
        out.write(content)
