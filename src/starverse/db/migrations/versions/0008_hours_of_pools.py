"""Free cards and spot prices of each hour are kept, for forecasts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pool_hours",
        sa.Column("zone", sa.String(length=100), nullable=False),
        sa.Column("card_model", sa.String(length=100), nullable=False),
        sa.Column("fabric", sa.String(length=20), nullable=False),
        sa.Column("hour_at", sa.BigInteger(), nullable=False),
        sa.Column("cards_total", sa.Integer(), nullable=False),
        sa.Column("cards_free", sa.Integer(), nullable=False),
        sa.Column("spot_micro_per_card_hour", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "cards_free >= 0 AND cards_free <= cards_total", name=op.f("ck_pool_hours_free_of_total")
        ),
        sa.PrimaryKeyConstraint("zone", "card_model", "fabric", "hour_at", name=op.f("pk_pool_hours")),
        comment="What a pool had at the beginning of an hour; spot price to the nearest micro-yuan, NULL: none",
    )
