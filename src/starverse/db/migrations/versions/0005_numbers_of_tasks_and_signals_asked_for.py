"""Every array task has an integer of its own; an allocation keeps the newest signal that was asked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("task_number", sa.BigInteger(), nullable=True))
    _number_tasks(op.get_bind())
    op.create_index("uq_jobs_task_number", "jobs", ["task_number"], unique=True)
    op.add_column("allocations", sa.Column("signal_count", sa.BigInteger(), nullable=True))
    op.add_column("allocations", sa.Column("signal_name", sa.String(length=16), nullable=True))
    op.add_column("allocations", sa.Column("signal_to", sa.String(length=8), nullable=True))


def _number_tasks(connection: sa.Connection) -> None:
    """Tasks of before get numbers after all that were given; new jobs go on from there."""
    rows = sa.text("SELECT id FROM jobs WHERE array_index IS NOT NULL ORDER BY number, array_index")
    tasks = [row.id for row in connection.execute(rows)]
    if not tasks:
        return
    given = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'job'")).scalar_one()
    connection.execute(
        sa.text("UPDATE jobs SET task_number = :number WHERE id = :id"),
        [{"id": task, "number": number} for number, task in enumerate(tasks, given + 1)],
    )
    connection.execute(
        sa.text("UPDATE counters SET value = :last WHERE name = 'job'"), {"last": given + len(tasks)}
    )
