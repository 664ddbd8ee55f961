"""The platform's own past that forecasts are made from."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, String, Table

from starverse.db.metadata import UtcTime, metadata

pool_hours = Table(
    "pool_hours",
    metadata,
    Column("zone", String(100), primary_key=True),
    Column("card_model", String(100), primary_key=True),
    Column("fabric", String(20), primary_key=True),
    Column("hour_at", UtcTime, primary_key=True),
    Column("cards_total", Integer, nullable=False),
    Column("cards_free", Integer, nullable=False),
    Column("spot_micro_per_card_hour", BigInteger),
    CheckConstraint("cards_free >= 0 AND cards_free <= cards_total", name="free_of_total"),
    comment="What a pool had at the beginning of an hour; spot price to the nearest micro-yuan, NULL: none",
)
