"""Run by Alembic: migrates over the connection that ``db/schema.py`` hands in."""

from __future__ import annotations

from alembic import context

from starverse.db.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
