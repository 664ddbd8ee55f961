"""The migrations make exactly the schema that the tables declare, on each database."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from starverse.db import schema
from starverse.db.session import Database
from starverse.db.tables import metadata
from starverse.domain.errors import Unavailable
from starverse.testing.platforms import POSTGRES_VARIABLE


def sqlite_objects(database: Database) -> dict[str, frozenset[str]]:
    """Each object's definition as the set of its clauses, so that their order does not matter."""
    with database.read() as connection:
        rows = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
        ).all()
    return {name: frozenset(clauses(sql)) for name, sql in rows}


def clauses(sql: str) -> list[str]:
    """A CREATE statement cut at the commas of its outermost parentheses."""
    flat = " ".join(sql.replace('"', "").split())
    if not flat.startswith("CREATE TABLE"):
        return [flat]
    body = flat[flat.index("(") + 1 : flat.rindex(")")]
    parts, depth, current = [], 0, ""
    for character in body:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def test_on_sqlite_every_table_index_and_trigger_is_the_same(tmp_path: Path) -> None:
    migrated, declared = (Database(f"sqlite:///{tmp_path / name}.db") for name in ("migrated", "declared"))
    schema.upgrade(migrated)
    metadata.create_all(declared.engine)
    assert sqlite_objects(migrated) == sqlite_objects(declared)
    migrated.close()
    declared.close()


@pytest.fixture
def postgres_schemas() -> Iterator[tuple[str, str]]:
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    names = (f"migrated_{uuid.uuid4().hex}", f"declared_{uuid.uuid4().hex}")
    admin = create_engine(os.environ[POSTGRES_VARIABLE], isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"CREATE SCHEMA {name}"))
    yield names
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    admin.dispose()


def postgres_database(name: str) -> Database:
    url = make_url(os.environ[POSTGRES_VARIABLE]).update_query_dict({"options": f"-csearch_path={name}"})
    return Database(url.render_as_string(hide_password=False))


def postgres_objects(database: Database, name: str) -> set[tuple[str, ...]]:
    queries = (
        "SELECT 'column', table_name, column_name, data_type, is_nullable, "
        "coalesce(character_maximum_length, 0)::text"
        " FROM information_schema.columns WHERE table_schema = :name AND table_name != 'alembic_version'",
        "SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = CAST(:name AS regnamespace) AND conname != 'alembic_version_pkc'",
        "SELECT 'index', tablename, indexdef FROM pg_indexes WHERE schemaname = :name"
        " AND tablename != 'alembic_version'",
        "SELECT 'trigger', event_object_table, trigger_name, event_manipulation, action_statement"
        " FROM information_schema.triggers WHERE trigger_schema = :name",
    )
    found: set[tuple[str, ...]] = set()
    with database.read() as connection:
        for query in queries:
            for row in connection.execute(text(query), {"name": name}):
                found.add(tuple(re.sub(rf"\b{name}\.", "", str(value)) for value in row))
    return found


@pytest.mark.postgres
def test_on_postgresql_every_table_index_and_trigger_is_the_same(postgres_schemas: tuple[str, str]) -> None:
    migrated, declared = (postgres_database(name) for name in postgres_schemas)
    schema.upgrade(migrated)
    metadata.create_all(declared.engine)
    assert postgres_objects(migrated, postgres_schemas[0]) == postgres_objects(declared, postgres_schemas[1])
    migrated.close()
    declared.close()


def test_migrating_twice_changes_nothing_and_a_newer_database_is_refused(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    first = schema.upgrade(database)
    assert schema.upgrade(database) == first
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from-the-future'"))
    with pytest.raises(Unavailable, match="from-the-future"):
        schema.upgrade(database)
    database.close()
