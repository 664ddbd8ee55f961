"""``starverse admin move``: every row of one database into another, SQLite or PostgreSQL, all or nothing.

The target is filled in one transaction (SQLite: a file aside), compared table by table with what was read,
and has its ledger checked before it is committed. Then the source is marked, so that no server starts on it
by mistake: two databases that both went on could never be joined again. Killed between the two, the same
command compares both, finds them equal, and marks the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from starverse.app.maintenance.alone import alone_on
from starverse.app.maintenance.backup import check_sound, damage_told, save_before_replacing
from starverse.app.maintenance.content import broken_invariants
from starverse.db import schema
from starverse.db.maintenance.dialects import dialect_of, reading
from starverse.db.maintenance.filling import TargetNotEmpty, filling
from starverse.db.maintenance.rows import TableDigest, digests_of, lines_of, load, shapes_of
from starverse.db.session import Database
from starverse.domain.errors import Conflict, InvariantBroken, NotFound


@dataclass(frozen=True, slots=True)
class Moved:
    """``tables`` as they are in both. ``was_there``: an earlier try had filled the target already. ``kept``:
    what the target held before, ``None`` for nothing."""

    tables: dict[str, TableDigest]
    was_there: bool
    kept: Path | None


def move(data: Path, source: str, target: str, now: datetime, *, replace: bool) -> Moved:
    """Move the database at the URL ``source`` to the URL ``target``; the data folder stays where it is.

    Raises ``Conflict`` while a server runs, for a source that has to be migrated first, or for a target that
    is not empty (unless ``replace``); ``RowRefused`` naming a row that does not fit into the target;
    ``InvariantBroken`` where the books are not sound. In each case nothing was changed.
    """
    if source == target:
        raise Conflict("the database is there already")
    keep = data / f"before-move-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    with alone_on(data, source, target), closing(Database(source)) as origin:
        with damage_told(), reading(origin) as connection:
            _check_source(connection)
            if replace:
                save_before_replacing(target, data, keep, now)
            try:
                with filling(target, keep=keep if replace else None) as into:
                    tables = _copy(connection, into)
                was_there = False
            except TargetNotEmpty:
                equal = _digests_of_both(connection, target)
                if equal is None:
                    raise
                tables, was_there = equal, True
        with origin.write() as connection:
            schema.mark_moved(connection)
    return Moved(tables, was_there, keep if keep.exists() else None)


def _check_source(connection: Connection) -> None:
    check_sound(connection)
    plan = schema.plan_of(connection)
    if plan.present is None:
        raise NotFound(
            "there is no starverse database to move", hint="`starverse up --db URL` makes a new one"
        )
    if plan.steps:
        raise Conflict(
            f"the database is at revision {plan.present}, older than {plan.newest}",
            hint="migrate it first: `starverse admin migrate`",
        )
    broken = broken_invariants(connection)
    if broken:
        raise InvariantBroken(f"the ledger is not sound: {'; '.join(broken[:3])}")


def _copy(connection: Connection, into: Connection) -> dict[str, TableDigest]:
    schema.upgrade_to(into)
    sources, read = shapes_of(connection), {}
    dialect = dialect_of(into)
    dialect.defer(into)
    for name, shape in shapes_of(into).items():
        counting = _Counting(lines_of(connection, sources[name]))
        load(into, shape, iter(counting))
        read[name] = counting.digest
    dialect.settle(into)
    written = digests_of(into, read)
    wrong = [name for name in read if written.get(name) != read[name]]
    if wrong:
        raise InvariantBroken(f"the target holds other rows than were read: {', '.join(wrong)}")
    broken = broken_invariants(into)
    if broken:
        raise InvariantBroken(f"the ledger is not sound in the target: {'; '.join(broken[:3])}")
    return read


def _digests_of_both(connection: Connection, target: str) -> dict[str, TableDigest] | None:
    """The target's tables, when it holds exactly the rows of the source."""
    with closing(Database(target)) as database, reading(database) as there:
        if schema.revision_of(there) != schema.revision_of(connection):
            return None
        names = shapes_of(there).keys() & shapes_of(connection).keys()
        found = digests_of(there, names)
        return found if found == digests_of(connection, names) else None


class _Counting:
    """Lines that are counted and hashed on their way."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._counted, self._hash = -1, hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self._counted += 1
            self._hash.update(line)
            yield line

    @property
    def digest(self) -> TableDigest:
        return TableDigest(self._counted, self._hash.hexdigest())
