"""Instances, what their owners want of them, what was seen of them; keys and secrets of people and teams."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from starverse.db.metadata import EnumText, IdText, UtcTime, metadata, one_of
from starverse.domain.workloads.states import InstanceState

instances = Table(
    "instances",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("workspace_id", IdText, ForeignKey("workspaces.id"), nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", EnumText(InstanceState), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("run_id", IdText),
    Column("starts", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("first_ready_at", UtcTime),
    Column("stopped_at", UtcTime),
    Column("release_at", UtcTime),
    Column("release_warned_at", UtcTime),
    Column("released_at", UtcTime),
    Column("afterwards", Text, comment="What follows once its present run is over, as JSON; NULL: nothing"),
    Column("removed_at", UtcTime, comment="Released, and its files are gone"),
    one_of("state", InstanceState),
    CheckConstraint("(state = 'released') = (released_at IS NOT NULL)", name="released_has_time"),
    Index(
        "uq_instances_team_id_name",
        "team_id",
        "name",
        unique=True,
        sqlite_where=text("released_at IS NULL"),
        postgresql_where=text("released_at IS NULL"),
    ),
    Index("ix_instances_state", "state"),
    Index("ix_instances_workspace_id", "workspace_id"),
    comment="run_id: the job that runs it now, or ran it last; each start is another job of kind instance",
)

instance_policies = Table(
    "instance_policies",
    metadata,
    Column("instance_id", IdText, ForeignKey("instances.id"), primary_key=True),
    Column("idle_stop", String(8), nullable=False),
    Column("idle_seconds", Integer),
    Column("ttl_seconds", Integer),
    Column("restart", String(10), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    CheckConstraint("idle_stop IN ('unset', 'off', 'default', 'after')", name="idle_stop_known"),
    CheckConstraint("(idle_stop = 'after') = (idle_seconds IS NOT NULL)", name="after_has_seconds"),
    CheckConstraint("restart IN ('elsewhere', 'stay')", name="restart_known"),
    comment="What the owner wants, in a row of its own that no refresh of what was seen touches",
)

instance_idleness = Table(
    "instance_idleness",
    metadata,
    Column("instance_id", IdText, ForeignKey("instances.id"), primary_key=True),
    Column("allocation_id", IdText, nullable=False),
    Column("counts_from", UtcTime, nullable=False),
    Column("seen_at", UtcTime),
    Column("warned_at", UtcTime),
    comment="The idle clock of the present run; begun anew with every assignment, in its transaction",
)

instance_activity = Table(
    "instance_activity",
    metadata,
    Column("allocation_id", IdText, ForeignKey("allocations.id"), primary_key=True),
    Column("source", String(16), primary_key=True),
    Column("last_at", UtcTime),
    Column("detail", Text, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    comment="Evidence: when each source (cards, cpu, disk, network, ssh, jupyter) last showed activity",
)

ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("public_key", Text, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_used_at", UtcTime),
    UniqueConstraint("account_id", "fingerprint"),
    UniqueConstraint("account_id", "name"),
    Index("ix_ssh_keys_fingerprint", "fingerprint"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("sealed", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    UniqueConstraint("team_id", "name"),
    comment="sealed: encrypted with a key that lies in the data folder, not in the database",
)
