"""Bringing a database to the schema of this version, by Alembic. All or nothing, on both databases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from starverse.db.maintenance.dialects import rebuilding
from starverse.db.session import Database
from starverse.domain.errors import Unavailable

VERSION_TABLE = "alembic_version"
MOVED = "moved-"
"""What the revision of a database whose content was moved to another one begins with."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema: its revision and what it is for."""

    revision: str
    title: str


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """``present`` ``None``: the database is empty. ``steps`` lead from there to ``newest``, oldest first."""

    present: str | None
    newest: str
    steps: tuple[Migration, ...]


def upgrade(database: Database) -> str:
    """Migrate to the newest revision, which is returned; a database that is there already is left alone.

    Raises ``Unavailable`` for a database that a newer version of starverse made, or whose content was moved
    away.
    """
    with rebuilding(database) as connection:
        return upgrade_to(connection)


def upgrade_to(connection: Connection, revision: str = "head") -> str:
    """:func:`upgrade` in a transaction of ``rebuilding`` that may do more, up to ``revision``."""
    plan = plan_of(connection)
    if revision != "head" and revision not in {migration.revision for migration in _migrations()}:
        raise Unavailable(f"this version does not know revision {revision} of the database")
    if not plan.steps:  # Alembic would load every migration once more to find nothing to do
        return plan.newest
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    return str(revision_of(connection))


def revision_of(connection: Connection) -> str | None:
    """The revision that the database says it has; ``None``: it was never migrated."""
    return MigrationContext.configure(connection).get_current_revision()


def plan_of(connection: Connection) -> MigrationPlan:
    """What :func:`upgrade` would run; raises what it raises."""
    in_order = _migrations()
    present = revision_of(connection)
    known = [migration.revision for migration in in_order]
    if was_moved(connection):
        raise Unavailable(
            "the content of this database was moved to another one, which goes on",
            hint="set server.db (or --db) to the database that it was moved to",
        )
    if present is not None and present not in known:
        raise Unavailable(
            f"the database is at revision {present}, which this version does not know",
            hint="start the version of starverse that made it, or a newer one",
        )
    done = 0 if present is None else known.index(present) + 1
    return MigrationPlan(present, known[-1], in_order[done:])


@cache
def _migrations() -> tuple[Migration, ...]:
    """Every migration of this version, the oldest first."""
    scripts = ScriptDirectory.from_config(alembic_config())
    return tuple(Migration(script.revision, script.doc) for script in scripts.walk_revisions())[::-1]


def newest() -> str:
    """The revision that this version migrates to."""
    return _migrations()[-1].revision


def mark_moved(connection: Connection) -> None:
    """Leave the content where it is, and have every version refuse to work on it."""
    revision = revision_of(connection)
    connection.execute(
        text(f"UPDATE {VERSION_TABLE} SET version_num = :moved"), {"moved": f"{MOVED}{revision}"}
    )


def was_moved(connection: Connection) -> bool:
    """Whether its content was moved to another database."""
    return (revision_of(connection) or "").startswith(MOVED)


def is_empty(connection: Connection) -> bool:
    """Whether there is no table at all."""
    return not inspect(connection).get_table_names()


def alembic_config() -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def write_migration(database: Database, message: str, revision: str) -> None:
    """For developers (``make migration``): write the migration from the present schema to ``tables.py``."""
    config = alembic_config()
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.revision(config, message, autogenerate=True, rev_id=revision)
