"""A backup on disk: looked over before it is believed, and filled into a database."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from starverse.app.maintenance.manifest import (
    MANIFEST_NAME,
    BackupRefused,
    FileDigest,
    Manifest,
    read_manifest,
)
from starverse.db import ledger, schema
from starverse.db.maintenance.dialects import dialect_of, rebuilding
from starverse.db.maintenance.filling import first_line
from starverse.db.maintenance.rows import TableDigest, digests_of, load, shapes_of
from starverse.db.session import Database
from starverse.db.tables import metadata
from starverse.domain.errors import StarverseError, Unavailable

READ_BYTES = 1 << 20
FAULTS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup whose files were looked over; ``place`` is its folder."""

    place: Path
    manifest: Manifest

    def table_lines(self, name: str) -> Iterator[bytes]:
        """The lines of a table; raises :class:`BackupRefused` where they are damaged."""
        try:
            with gzip.open(self.place / table_file(name)) as file:
                yield from file
        except (OSError, EOFError, zlib.error) as error:
            raise BackupRefused(f"{table_file(name)} is damaged: {error}") from error


def table_file(name: str) -> str:
    """Where a table's lines lie in a backup."""
    return f"tables/{name}.jsonl.gz"


def open_backup(place: Path) -> Backup:
    """Read the manifest and every file that it names. Raises :class:`BackupRefused` with what is wrong."""
    try:
        manifest = read_manifest((place / MANIFEST_NAME).read_text("utf-8"))
    except FileNotFoundError as error:
        raise BackupRefused(
            f"{place} is not a backup: it has no {MANIFEST_NAME}",
            hint="name the folder that `starverse admin backup` made",
        ) from error
    except (UnicodeDecodeError, KeyError, TypeError, AttributeError, NotADirectoryError) as error:
        raise BackupRefused(f"{place / MANIFEST_NAME} is damaged") from error
    faults = []
    for name, told in manifest.files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BackupRefused(f"{MANIFEST_NAME} names a file outside of the backup: {name}")
        try:
            found = digest_of_file(place / name)
        except FileNotFoundError:
            faults.append(f"{name} is missing")
            continue
        if found.bytes != told.bytes:
            faults.append(f"{name} has {found.bytes} bytes, not {told.bytes}")
        elif found != told:
            faults.append(f"{name} is not what was written (SHA-256)")
    if faults:
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise BackupRefused(f"the backup is damaged: {'; '.join(faults[:FAULTS_SHOWN])}{more}")
    return Backup(place, manifest)


def digest_of_file(file: Path) -> FileDigest:
    """Length and SHA-256 of a file's bytes."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as bytes_of:
        while piece := bytes_of.read(READ_BYTES):
            digest.update(piece)
            size += len(piece)
    return FileDigest(size, digest.hexdigest())


def tables_of_revision(revision: str, folder: Path) -> frozenset[str]:
    """The tables that a revision of the schema has: what else lies in the database is not ours.

    Those of the newest one are this version's; for another one a scratch database is migrated to it.
    """
    if revision == schema.newest():
        return frozenset(metadata.tables)
    url = f"sqlite:///{folder / 'empty.db'}"
    with closing(Database(url, durable=False)) as scratch, rebuilding(scratch) as connection:
        schema.upgrade_to(connection, revision)
        return frozenset(shapes_of(connection))


def fill(connection: Connection, backup: Backup) -> tuple[str, ...]:
    """Fill an empty database in a transaction of ``rebuilding``, compare it row by row, migrate it.

    Answers the ledger's broken invariants in words. Raises what :func:`fill_as_it_was` does.
    """
    fill_as_it_was(connection, backup)
    schema.upgrade_to(connection)
    return broken_invariants(connection)


def fill_as_it_was(connection: Connection, backup: Backup) -> None:
    """The same at the revision of the backup. Raises :class:`BackupRefused` for a backup of a newer version,
    or when what was filled in is not what the manifest says."""
    told = backup.manifest
    try:
        schema.upgrade_to(connection, told.revision)
    except Unavailable as error:
        raise BackupRefused(
            f"the backup has revision {told.revision} of the database, which this version does not know",
            hint=f"restore it with starverse {told.starverse} or a newer one",
        ) from error
    shapes = shapes_of(connection)
    if shapes.keys() != told.tables.keys():
        odd = ", ".join(sorted(shapes.keys() ^ told.tables.keys()))
        raise BackupRefused(f"the backup has not the tables of revision {told.revision}: {odd}")
    dialect = dialect_of(connection)
    dialect.defer(connection)
    for name, shape in shapes.items():
        load(connection, shape, backup.table_lines(name))
    dialect.settle(connection)
    _require_equal(digests_of(connection, shapes), told.tables)


def _require_equal(found: Mapping[str, TableDigest], told: Mapping[str, TableDigest]) -> None:
    wrong = [name for name in told if found.get(name) != told[name]]
    if wrong:
        raise BackupRefused(f"what was filled in is not what was read: {', '.join(wrong)}")


def broken_invariants(connection: Connection) -> tuple[str, ...]:
    """The ledger check, in words; nothing when the books are sound."""
    return tuple(f"{b.name}: {b.subject}: {b.detail}" for b in ledger.check(connection))


def rehearse(backup: Backup, folder: Path) -> tuple[str, ...]:
    """Restore into a throw-away database in ``folder``; answers and raises what :func:`fill` does."""
    url = f"sqlite:///{folder / 'rehearsal.db'}"
    try:
        with closing(Database(url, durable=False)) as scratch, rebuilding(scratch) as connection:
            return fill(connection, backup)
    except StarverseError:
        raise
    except DBAPIError as error:
        raise Unavailable(f"the backup could not be restored on trial: {first_line(error)}") from error
    except ValueError as error:
        raise BackupRefused(f"the backup cannot be read: {error}") from error
