"""Servers of a database, and the leases of their loops."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.CheckConstraint("token >= 0", name=op.f("ck_leases_token_counts")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
        comment="Who runs a loop; token grows with every taking: writes under an older one are refused",
    )
    op.create_table(
        "servers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("alive_at", sa.BigInteger(), nullable=False),
        sa.Column("api_url", sa.String(length=255), nullable=False),
        sa.Column("channel_address", sa.String(length=255), nullable=False),
        sa.Column("data_id", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_servers")),
        comment="Control planes by their own word; alive_at by the database's clock",
    )
