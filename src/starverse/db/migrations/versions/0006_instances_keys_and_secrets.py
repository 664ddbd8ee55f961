"""Instances, SSH keys and secrets; the driver of a node; why a card is out of use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_secrets()
    _make_ssh_keys()
    _make_instances()
    _make_instance_idleness()
    _make_instance_policies()
    _make_instance_activity()
    op.add_column("jobs", sa.Column("instance_id", sa.String(length=64), nullable=True))
    op.create_index("ix_jobs_instance_id", "jobs", ["instance_id"])
    op.add_column("nodes", sa.Column("driver", sa.String(length=32), server_default="", nullable=False))
    op.add_column("cards", sa.Column("quarantined_because", sa.Text(), server_default="", nullable=False))


def _make_secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_secrets_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint("team_id", "name", name=op.f("uq_secrets_team_id_name")),
        comment="sealed: encrypted with a key that lies in the data folder, not in the database",
    )


def _make_ssh_keys() -> None:
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_ssh_keys_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint("account_id", "fingerprint", name=op.f("uq_ssh_keys_account_id_fingerprint")),
        sa.UniqueConstraint("account_id", "name", name=op.f("uq_ssh_keys_account_id_name")),
    )
    op.create_index("ix_ssh_keys_fingerprint", "ssh_keys", ["fingerprint"])


def _make_instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("team_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("first_ready_at", sa.BigInteger(), nullable=True),
        sa.Column("stopped_at", sa.BigInteger(), nullable=True),
        sa.Column("release_at", sa.BigInteger(), nullable=True),
        sa.Column("release_warned_at", sa.BigInteger(), nullable=True),
        sa.Column("released_at", sa.BigInteger(), nullable=True),
        sa.Column(
            "afterwards",
            sa.Text(),
            nullable=True,
            comment="What follows once its present run is over, as JSON; NULL: nothing",
        ),
        sa.Column("removed_at", sa.BigInteger(), nullable=True, comment="Released, and its files are gone"),
        sa.CheckConstraint(
            "(state = 'released') = (released_at IS NOT NULL)", name=op.f("ck_instances_released_has_time")
        ),
        sa.CheckConstraint(
            "state IN ('stopped', 'queued', 'running', 'released')", name=op.f("ck_instances_state_known")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_instances_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_instances_team_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_instances_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("number", name=op.f("uq_instances_number")),
        comment="run_id: the job that runs it now, or ran it last; each start is another job of kind instance",
    )
    op.create_index("ix_instances_state", "instances", ["state"])
    op.create_index("ix_instances_workspace_id", "instances", ["workspace_id"])
    op.create_index(
        "uq_instances_team_id_name",
        "instances",
        ["team_id", "name"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )


def _make_instance_idleness() -> None:
    op.create_table(
        "instance_idleness",
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("counts_from", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=True),
        sa.Column("warned_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_instance_idleness_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_instance_idleness")),
        comment="The idle clock of the present run; begun anew with every assignment, in its transaction",
    )


def _make_instance_policies() -> None:
    op.create_table(
        "instance_policies",
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("idle_stop", sa.String(length=8), nullable=False),
        sa.Column("idle_seconds", sa.Integer(), nullable=True),
        sa.Column("ttl_seconds", sa.Integer(), nullable=True),
        sa.Column("restart", sa.String(length=10), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(idle_stop = 'after') = (idle_seconds IS NOT NULL)",
            name=op.f("ck_instance_policies_after_has_seconds"),
        ),
        sa.CheckConstraint(
            "idle_stop IN ('unset', 'off', 'default', 'after')",
            name=op.f("ck_instance_policies_idle_stop_known"),
        ),
        sa.CheckConstraint(
            "restart IN ('elsewhere', 'stay')", name=op.f("ck_instance_policies_restart_known")
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_instance_policies_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_instance_policies")),
        comment="What the owner wants, in a row of its own that no refresh of what was seen touches",
    )


def _make_instance_activity() -> None:
    op.create_table(
        "instance_activity",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_instance_activity_allocation_id")
        ),
        sa.PrimaryKeyConstraint("allocation_id", "source", name=op.f("pk_instance_activity")),
        comment="Evidence: when each source (cards, cpu, disk, network, ssh, jupyter) last showed activity",
    )
