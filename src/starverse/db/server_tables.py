"""The servers of a database, and which of them runs which loop. Constraints repeat the rules."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, String, Table, Text

from starverse.db.metadata import IdText, UtcTime, metadata

servers = Table(
    "servers",
    metadata,
    Column("id", IdText, primary_key=True),
    Column("started_at", UtcTime, nullable=False),
    Column("alive_at", UtcTime, nullable=False),
    Column("api_url", String(255), nullable=False),
    Column("channel_address", String(255), nullable=False),
    Column("data_id", String(64), nullable=False),
    comment="Control planes by their own word; alive_at by the database's clock",
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("holder", IdText, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("report", Text, nullable=False),
    CheckConstraint("token >= 0", name="token_counts"),
    comment="Who runs a loop; token grows with every taking: writes under an older one are refused",
)
