"""Checks of the network between two nodes, and what they measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fabric_checks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=100), nullable=False),
        sa.Column("card_model", sa.String(length=100), nullable=False),
        sa.Column("fabric", sa.String(length=20), nullable=False),
        sa.Column("first_node", sa.String(length=255), nullable=False),
        sa.Column("second_node", sa.String(length=255), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=True),
        sa.Column("measured_at", sa.BigInteger(), nullable=True),
        sa.Column("same_machine", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "(state = 'measured') = (measured_at IS NOT NULL)",
            name=op.f("ck_fabric_checks_measured_has_date"),
        ),
        sa.CheckConstraint(
            "state IN ('asked', 'running', 'measured', 'failed')", name=op.f("ck_fabric_checks_state_known")
        ),
        sa.CheckConstraint("first_node <> second_node", name=op.f("ck_fabric_checks_two_nodes")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_fabric_checks_account_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_fabric_checks_job_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_fabric_checks_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fabric_checks")),
        comment="One measurement between two nodes of a pool, by a job of its own",
    )
    op.create_index("ix_fabric_checks_batch_id", "fabric_checks", ["batch_id"])
    op.create_index("ix_fabric_checks_state", "fabric_checks", ["state"])
    op.create_index(
        "ix_fabric_checks_pair",
        "fabric_checks",
        ["zone", "card_model", "fabric", "first_node", "second_node", "measured_at"],
    )
    op.create_table(
        "fabric_figures",
        sa.Column("check_id", sa.String(length=64), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("p50_nanoseconds", sa.BigInteger(), nullable=True),
        sa.Column("p99_nanoseconds", sa.BigInteger(), nullable=True),
        sa.Column("bytes_per_second", sa.BigInteger(), nullable=True),
        sa.Column("message_bytes", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "method IN ('tcp', 'gloo', 'nccl', 'ib_write_bw', 'nccl-tests')",
            name=op.f("ck_fabric_figures_method_known"),
        ),
        sa.CheckConstraint(
            "what IN ('round_trip', 'bandwidth', 'all_reduce')", name=op.f("ck_fabric_figures_what_known")
        ),
        sa.ForeignKeyConstraint(["check_id"], ["fabric_checks.id"], name=op.f("fk_fabric_figures_check_id")),
        sa.PrimaryKeyConstraint("check_id", "what", "method", name=op.f("pk_fabric_figures")),
        comment="What was measured; a method that was not there has no row",
    )
