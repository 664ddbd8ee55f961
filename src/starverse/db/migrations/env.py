"""Run by Alembic: migrates over the connection that ``db/schema.py`` hands in."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

from starverse.db.tables import metadata


def _as_stored(kind: str, thing: Any, _autogenerate: object) -> str | Literal[False]:
    """Migrations name the types that are stored, not those of the code, which may change later."""
    if kind == "type" and isinstance(thing, TypeDecorator):
        return f"sa.{thing.impl_instance!r}"
    return False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    render_item=_as_stored,
)
with context.begin_transaction():
    context.run_migrations()
