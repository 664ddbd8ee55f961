"""Indexes so that what is asked in every round does not grow with the history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_team_members_account_id", "team_members", ["account_id"])
    op.create_index("ix_jobs_team_id_state", "jobs", ["team_id", "state"])
    op.create_index("ix_allocations_closed_at", "allocations", ["closed_at"])
    op.create_index(
        "ix_allocations_without_cards",
        "allocations",
        ["state"],
        sqlite_where=sa.text("card_count = 0"),
        postgresql_where=sa.text("card_count = 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_allocations_without_cards", "allocations")
    op.drop_index("ix_allocations_closed_at", "allocations")
    op.drop_index("ix_jobs_team_id_state", "jobs")
    op.drop_index("ix_team_members_account_id", "team_members")
