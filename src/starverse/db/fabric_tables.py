"""Checks of the network between two nodes, and the figures that they measured."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, ForeignKey, Index, String, Table, Text

from starverse.db.metadata import EnumText, IdText, UtcTime, metadata, one_of
from starverse.domain.fabric.measured import CheckState, Method, What

fabric_checks = Table(
    "fabric_checks",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("batch_id", IdText, nullable=False),
    Column("team_id", IdText, ForeignKey("teams.id"), nullable=False),
    Column("account_id", IdText, ForeignKey("accounts.id"), nullable=False),
    Column("zone", String(100), nullable=False),
    Column("card_model", String(100), nullable=False),
    Column("fabric", String(20), nullable=False),
    Column("first_node", String(255), nullable=False),
    Column("second_node", String(255), nullable=False),
    Column("state", EnumText(CheckState), nullable=False),
    Column("message", Text, nullable=False),
    Column("asked_at", UtcTime, nullable=False),
    Column("job_id", IdText, ForeignKey("jobs.id")),
    Column("measured_at", UtcTime),
    Column("same_machine", Boolean, nullable=False),
    one_of("state", CheckState),
    CheckConstraint("first_node <> second_node", name="two_nodes"),
    CheckConstraint("(state = 'measured') = (measured_at IS NOT NULL)", name="measured_has_date"),
    Index("ix_fabric_checks_batch_id", "batch_id"),
    Index("ix_fabric_checks_state", "state"),
    Index(
        "ix_fabric_checks_pair", "zone", "card_model", "fabric", "first_node", "second_node", "measured_at"
    ),
    comment="One measurement between two nodes of a pool, by a job of its own",
)

fabric_figures = Table(
    "fabric_figures",
    metadata,
    Column("check_id", IdText, ForeignKey("fabric_checks.id"), primary_key=True),
    Column("what", EnumText(What), primary_key=True),
    Column("method", EnumText(Method), primary_key=True),
    Column("p50_nanoseconds", BigInteger),
    Column("p99_nanoseconds", BigInteger),
    Column("bytes_per_second", BigInteger),
    Column("message_bytes", BigInteger),
    one_of("what", What),
    one_of("method", Method),
    comment="What was measured; a method that was not there has no row",
)
