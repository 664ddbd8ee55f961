"""The one ``MetaData`` of all tables, and the column types that carry domain values.

Every type stores the same thing on SQLite and PostgreSQL, so that comparisons, indexes and constraints
behave the same: instants and money are 64-bit integers, enums and ids are text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

from sqlalchemy import BigInteger, CheckConstraint, Dialect, Integer, MetaData, String, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from starverse.domain.money import Money

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""All tables register here; migrations and ``create_all`` read it."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

E = TypeVar("E", bound=Enum)


def to_micros(instant: datetime) -> int:
    """Whole microseconds from 1970 UTC to ``instant``, exact; raises ``ValueError`` without a time zone."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone; the database takes aware instants only")
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The UTC instant ``micros`` microseconds after 1970; the inverse of :func:`to_micros`."""
    return EPOCH + timedelta(microseconds=micros)


class UtcTime(TypeDecorator[datetime]):
    """An aware instant as BIGINT microseconds since 1970 UTC: exact, sortable, the same everywhere."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_micros(value)


class MicroYuan(TypeDecorator[Money]):
    """:class:`Money` as BIGINT micro-yuan; a bare number is refused, so ``float`` cannot slip in.

    Also reads sums of it, which PostgreSQL answers as exact NUMERIC.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Money | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if not isinstance(value, Money):
            raise TypeError(f"a money column takes Money, not {type(value).__name__}")
        return value.micro

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Money | None:
        return None if value is None else Money(int(value))


class EnumText(TypeDecorator[E]):
    """A string-valued enum as TEXT of its value; pair it with :func:`one_of` so a CHECK repeats the enum."""

    impl = Text
    cache_ok = True

    def __init__(self, enum_class: type[E]) -> None:
        self.enum_class = enum_class
        super().__init__()

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        return None if value is None else str(self.enum_class(value).value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        return None if value is None else self.enum_class(value)


def one_of(column_name: str, enum_class: type[Enum]) -> CheckConstraint:
    """The CHECK, named ``<column>_known``, that a text column holds one of the enum's values or NULL."""
    values = ", ".join("'" + str(member.value).replace("'", "''") + "'" for member in enum_class)
    return CheckConstraint(f"{column_name} IN ({values})", name=f"{column_name}_known")


IdText = String(64)
"""Ids made by the platform: uuid7 text (36 characters), or a named one such as ``revenue``."""

SerialKey: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
"""An integer primary key that the database counts up, on both databases."""
