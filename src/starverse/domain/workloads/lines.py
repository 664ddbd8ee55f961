"""Lines of JSON that launchers and the platform tell each other, read as what they have to be or not at all.

A line comes from a stranger until it is read: whatever it holds, reading it answers values of the declared
types and ranges or raises ``ValueError``. Read by launchers: standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

INSTANT_MAX = 1e11
"""Seconds since the epoch; beyond every calendar that has to show one."""

_WHOLE_MAX = 2**31 - 1
_INDEX_MAX = 2**16


def read_fields(cls: type, text: str) -> dict[str, Any]:
    """The fields of a dataclass that the line holds, by its annotations; unknown keys are passed over.

    Raises ``ValueError``, and nothing else, where the line is none or a field is missing or wrong.
    """
    try:
        raw = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return _fields(cls, raw)


def _fields(cls: type, raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"not a {cls.__name__}: {str(raw)[:80]!r}")
    found: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in raw:
            try:
                found[field.name] = _read(cls, str(field.type), raw[field.name])
            except ValueError as error:
                raise ValueError(f"{cls.__name__}.{field.name}: {error}") from error
        elif field.default is MISSING:
            raise ValueError(f"{cls.__name__} without {field.name}")
    return found


def _read(cls: type, declared: str, value: object) -> Any:
    """A value of a declared type; a tuple of dataclasses is looked up where ``cls`` was written."""
    reader = _READERS.get(declared)
    if reader is not None:
        return reader(value)
    optional = declared.endswith(" | None")
    if optional and value is None:
        return None
    name = declared.removesuffix(" | None").removeprefix("tuple[").removesuffix(", ...]")
    row: type = getattr(sys.modules[cls.__module__], name)
    return tuple(row(**_fields(row, entry)) for entry in _rows(value))


def _text(value: object) -> str:
    """What no database and no terminal takes is replaced."""
    if not isinstance(value, str):
        raise ValueError("no text")
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _WHOLE_MAX:
        raise ValueError("no whole number that fits")
    return value


def _index(value: object) -> int:
    number = _whole(value)
    if not 0 <= number <= _INDEX_MAX:
        raise ValueError("no index")
    return number


def _instant(value: object) -> float:
    """Money may last longer than any calendar: that is as good as for ever."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError("no instant")
    return INSTANT_MAX if value > INSTANT_MAX else float(value)


def _rows(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return value


def _pairs(value: object, second: Callable[[object], Any]) -> tuple[tuple[str, Any], ...]:
    found = []
    for row in map(_rows, _rows(value)):
        if len(row) != 2:
            raise ValueError("no pair")
        found.append((_text(row[0]), second(row[1])))
    return tuple(found)


def _or_none(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else read(value)


def _bound(value: object) -> Any:
    return _pairs(value, lambda indices: tuple(map(_index, _rows(indices))))


_READERS: Mapping[str, Callable[[object], Any]] = {
    "str": _text,
    "bool": _flag,
    "int": _whole,
    "int | None": _or_none(_whole),
    "float": _instant,
    "float | None": _or_none(_instant),
    "tuple[str, ...]": lambda value: tuple(map(_text, _rows(value))),
    "tuple[tuple[str, str], ...]": lambda value: _pairs(value, _text),
    "tuple[tuple[str, tuple[int, ...]], ...] | None": _or_none(_bound),
}
