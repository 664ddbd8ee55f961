"""How an allocation is priced (glossary: tariff)."""

from __future__ import annotations

from enum import StrEnum


class Tariff(StrEnum):
    """The tariffs of a price book; the value is what people type after ``--tariff``."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"
    IDLE = "idle"
    NO_GPU = "no_gpu"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"
