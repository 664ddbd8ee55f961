"""How views become JSON: times as RFC 3339 UTC, money as ``x_micro`` and ``x``, enums by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any, Generic, Self, TypeVar

from fastapi import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from starverse.app.views import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Page
from starverse.domain.money import Money, decimal_string
from starverse.domain.timespan import format_instant, parse_instant

T = TypeVar("T")

InstantText = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""An RFC 3339 instant in UTC, in answers."""


def _read_instant(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError("a time such as 2026-03-10T10:00:00+08:00, in quotes")
    try:
        return parse_instant(value)
    except OverflowError as error:
        raise ValueError("a time within the calendar") from error


Instant = Annotated[
    datetime,
    BeforeValidator(_read_instant),
    PlainSerializer(format_instant),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-03-10T10:00:00+08:00"]}),
]
"""An instant with its offset, in requests."""


def _read_money(value: object) -> Money:
    try:
        if isinstance(value, str):
            return Money.parse(value)
    except ValueError:
        pass
    raise ValueError('an amount of yuan in quotes, such as "50.00", with at most 6 places')


Amount = Annotated[
    Money,
    BeforeValidator(_read_money),
    PlainSerializer(lambda amount: amount.decimal()),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d{1,15}(\.\d{1,6})?$", "examples": ["50.00"]},
    ),
]
"""An amount of yuan as a decimal string, in requests."""

LimitParam = Annotated[int, Field(ge=1, le=PAGE_ITEMS_MAX)]
LIMIT_DEFAULT = PAGE_ITEMS_DEFAULT


class In(BaseModel):
    """A request body: unknown fields, NUL and broken text are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _sound_text(cls, value: object) -> object:
        place = _unsound_place(value)
        if place is not None:
            raise PydanticCustomError(
                "unsound_text", "{found} in {place}", {"place": place[0], "found": place[1]}
            )
        return value


def _unsound_place(value: object, place: str = "") -> tuple[str, str] | None:
    """Where the first text lies that is refused (``script, line 2``), and what is wrong there."""
    if isinstance(value, str):
        at, what = value.find("\0"), "a NUL"
        if at < 0:
            try:
                value.encode()
            except UnicodeEncodeError as error:
                at, what = error.start, "half of a character"
        line = f", line {value.count(chr(10), 0, at) + 1}" if "\n" in value else ""
        return None if at < 0 else (f"{place or 'body'}{line}", what)
    items: Iterable[tuple[str, object]] = ()
    if isinstance(value, Mapping):
        wrong = next((found for key in value if (found := _unsound_place(key))), None)
        if wrong is not None:
            return f"a name in {place or 'the body'}", wrong[1]
        items = ((f"{place}.{key}" if place else str(key), item) for key, item in value.items())
    elif isinstance(value, list):
        items = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    return next((found for inner, item in items if (found := _unsound_place(item, inner))), None)


class Out(BaseModel):
    """An answer, made from a frozen view by name; what the model does not name stays inside."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def of(cls, view: object, **more: object) -> Self:
        """The answer for a view; ``more`` adds or replaces fields."""
        return cls.model_validate({**shown_fields(view), **{key: shown(v) for key, v in more.items()}})


OutT = TypeVar("OutT", bound=Out)


class Items(BaseModel, Generic[T]):
    """A part of a list; ``next_cursor`` null: the last part."""

    items: list[T]
    next_cursor: str | None = None


def items_of(model: type[OutT], page: Page[Any]) -> Items[OutT]:
    """A page of views as a page of answers."""
    return Items[model](  # type: ignore[valid-type]
        items=[model.of(view) for view in page.items], next_cursor=page.next_cursor
    )


def written(answer: Out, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """An answer as bytes, in the thread that made it. A model FastAPI would check once more, in yet another
    thread, while what was just asked for wants to begin."""
    return Response(
        answer.model_dump_json(), status_code=status, headers=headers, media_type="application/json"
    )


def shown(value: object) -> Any:
    """A value of a view as JSON data; ``Money`` inside a list or mapping reads ``{micro, amount}``."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Money):
        return {"micro": value.micro, "amount": value.decimal()}
    if isinstance(value, Fraction):
        return decimal_string(value, places=24)
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return shown_fields(value)
    if isinstance(value, Mapping):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [shown(item) for item in value]
    return value


def shown_fields(view: object) -> dict[str, Any]:
    """The fields of a frozen dataclass as JSON data, each amount as ``name_micro`` and ``name``."""
    assert is_dataclass(view) and not isinstance(view, type)
    data: dict[str, Any] = {}
    for field in fields(view):
        value = getattr(view, field.name)
        if isinstance(value, Money):
            data[_micro_name(field.name)] = value.micro
            data[field.name] = value.decimal()
        else:
            data[field.name] = shown(value)
    return data


def _micro_name(name: str) -> str:
    """``cash`` -> ``cash_micro``; ``burn_per_hour`` -> ``burn_micro_per_hour``."""
    stem, per, rest = name.partition("_per_")
    return f"{stem}_micro{per}{rest}"
