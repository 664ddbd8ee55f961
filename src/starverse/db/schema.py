"""Bringing a database to the schema of this version, by Alembic."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from starverse.db.session import Database
from starverse.domain.errors import Unavailable


def upgrade(database: Database) -> str:
    """Migrate to the newest revision, which is returned; a database that is there already is left alone.

    Raises ``Unavailable`` for a database that a newer version of starverse made.
    """
    config = alembic_config()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    with database.write() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
        if present is not None and present not in known:
            raise Unavailable(
                f"the database is at revision {present}, which this version does not know",
                hint="start the version of starverse that made it, or a newer one",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return str(MigrationContext.configure(connection).get_current_revision())


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
