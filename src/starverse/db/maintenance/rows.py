"""A table as lines of text, the same for the same rows on every database: backups hold it, moves compare it.

The first line names the columns, each following one is a row: JSON arrays, columns by name, rows by primary
key (text by code points). So equal content has equal bytes, whatever order columns were added in, and a
SHA-256 over the lines says whether two databases hold the same. Values are numbers, text, truth values and
null; nothing else is stored (``db/metadata.py``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, String, TableClause, column, delete, insert, inspect, select, table
from sqlalchemy.exc import DataError, IntegrityError

from starverse.db.maintenance.dialects import dialect_of
from starverse.domain.errors import StarverseError

CHUNK_ROWS = 1000


class RowRefused(StarverseError):
    """A row does not fit into the database that it should go into; nothing was changed there."""

    code = "row_refused"


@dataclass(frozen=True, slots=True)
class TableDigest:
    """How many rows a table has, and the SHA-256 of its lines."""

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table's columns by name, and its primary key."""

    clause: TableClause
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.clause.name

    @property
    def columns(self) -> list[str]:
        return [c.name for c in self.clause.columns]


def shapes_of(connection: Connection) -> dict[str, TableShape]:
    """Every table of a database but Alembic's own, by name, as the database itself describes it."""
    found = {}
    looking = inspect(connection)
    for name in sorted(looking.get_table_names()):
        if name != "alembic_version":
            columns = sorted(looking.get_columns(name), key=lambda c: str(c["name"]))
            clause = table(name, *(column(str(c["name"]), c["type"]) for c in columns))
            key = tuple(looking.get_pk_constraint(name)["constrained_columns"])
            found[name] = TableShape(clause, key)
    return found


def lines_of(connection: Connection, shape: TableShape) -> Iterator[bytes]:
    """The table's lines, streamed; the rows are those of the transaction's one instant."""
    order = dialect_of(connection).order
    keys = [shape.clause.c[name] for name in shape.key]
    query = select(*shape.clause.columns).order_by(
        *(order(key) if isinstance(key.type, String) else key for key in keys)
    )
    yield _line(shape.columns)
    for row in connection.execute(query, execution_options={"yield_per": CHUNK_ROWS}):
        yield _line(list(row))


def digest_of(lines: Iterable[bytes]) -> TableDigest:
    """The digest of a table's lines."""
    counted, digest = -1, hashlib.sha256()
    for line in lines:
        counted += 1
        digest.update(line)
    return TableDigest(counted, digest.hexdigest())


def digests_of(connection: Connection, names: Iterable[str]) -> dict[str, TableDigest]:
    """The digests of the tables named: read whole."""
    shapes = shapes_of(connection)
    return {name: digest_of(lines_of(connection, shapes[name])) for name in names if name in shapes}


def load(connection: Connection, shape: TableShape, lines: Iterator[bytes]) -> None:
    """Insert a table's lines. Raises :class:`RowRefused` naming the first row that does not fit.

    In a transaction of ``rebuilding`` after ``defer``: rows may refer to ones that come later. What a
    migration had put into the table gives way.
    """
    names = json.loads(next(lines))
    if names != shape.columns:
        raise RowRefused(
            f"table {shape.name} has the columns {', '.join(shape.columns)}, not {', '.join(names)}"
        )
    if connection.execute(select(shape.clause).limit(1)).first() is not None:
        connection.execute(delete(shape.clause))
    statement = insert(shape.clause)
    rows = (dict(zip(names, json.loads(line), strict=True)) for line in lines)
    for chunk in _batched(rows):
        try:
            with connection.begin_nested():
                connection.execute(statement, chunk)
        except (DataError, IntegrityError, UnicodeError, ValueError):
            _name_the_row(connection, shape, chunk)
            raise
    dialect_of(connection).count_on(connection, shape.name)


def _name_the_row(connection: Connection, shape: TableShape, chunk: Iterable[Mapping[str, Any]]) -> None:
    """One by one, to find which it was."""
    for row in chunk:
        try:
            with connection.begin_nested():
                connection.execute(insert(shape.clause), row)
        except (DataError, IntegrityError, UnicodeError, ValueError) as error:
            key = ", ".join(f"{name} {row[name]!r}" for name in shape.key)
            said = str(getattr(error, "orig", error)).strip().splitlines()[0]
            raise RowRefused(f"the row of {shape.name} with {key} does not fit: {said}") from error


def _batched(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield chunk


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
