"""Statements that are needed in several places: lists too long for one IN, rows that may be there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Table

from starverse.db.prepared import Prepared
from starverse.db.session import Traits, traits_of

T = TypeVar("T")

IN_LIST_MAX = 5_000
"""Both databases bound the parameters of a statement (SQLite 32,766, PostgreSQL 65,535)."""


def in_chunks(items: Iterable[T], size: int = IN_LIST_MAX) -> Iterator[list[T]]:
    """Lists short enough for an IN, in order; nothing for no items."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def insert_new(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless a unique constraint says that it is there; whether it was inserted.

    On PostgreSQL a rival's uncommitted row is waited for, so of two that add the same one, one does.
    """
    return _inserting(traits_of(connection), table, *values).first(connection, **values) is not None


@cache
def _inserting(traits: Traits, table: Table, *columns: str) -> Prepared:
    return Prepared(traits.insert(table).on_conflict_do_nothing().returning(*table.primary_key), columns)
