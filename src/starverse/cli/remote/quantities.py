"""Lengths of time, sizes and rates as people type them: ``2h``, ``90m``, ``100GiB``, ``20MB``."""

from __future__ import annotations

import re
from typing import Any

import click

_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_LENGTH_PART = re.compile(r"([0-9]{1,9})(s|min|m|h|d)")
_GIB = re.compile(r"([0-9]{1,9})\s*(|g|gb|gib|t|tb|tib)", re.IGNORECASE)
_BYTES = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)\s*(|k|m|g)(i?)b?(?:/s)?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3}
IDLE_WORDS = ("unset", "off", "default")


def read_length(text: str) -> int | None:
    """Seconds of ``90s``, ``30m``, ``2h``, ``1d12h``; ``0`` is no time; ``None``: not a length."""
    if text == "0":
        return 0
    parts = _LENGTH_PART.findall(text)
    if not parts or "".join(count + unit for count, unit in parts) != text:
        return None
    return sum(int(count) * _UNIT_SECONDS[unit] for count, unit in parts)


class Length(click.ParamType[int]):
    """A length of time in whole seconds."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        seconds = value if isinstance(value, int) else read_length(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a length such as 90s, 30m, 2h or 1d12h", param, ctx)
        return seconds


class IdleStop(click.ParamType["str | int"]):
    """Four values that differ: ``unset``, ``off``, ``default``, or a length, of which ``0`` is one."""

    name = "idle"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        if value in IDLE_WORDS or isinstance(value, int):
            return str(value) if isinstance(value, str) else value
        seconds = read_length(str(value))
        if seconds is None:
            self.fail(f"{value!r} is none of unset, off, default, nor a length such as 30m or 0", param, ctx)
        return seconds


class Gib(click.ParamType[int]):
    """A size in whole GiB: ``100``, ``100GiB``, ``2TiB``; ``G`` and ``GB`` mean GiB too."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _GIB.fullmatch(str(value))
        count = int(found[1]) * (1024 if found[2].lower().startswith("t") else 1) if found else 0
        if count < 1:
            self.fail(f"{value!r} is not a size of whole GiB such as 100GiB or 2TiB", param, ctx)
        return count


class BytesPerSecond(click.ParamType[int]):
    """A rate: ``20MB`` (decimal), ``512KiB`` (binary), a plain number of bytes."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _BYTES.fullmatch(str(value))
        power = _POWER[found[2].lower()] if found else 0
        whole, _, places = found[1].partition(".") if found else ("0", "", "")
        step: int = (1024 if found and found[3] else 1000) ** power
        rate = (int(whole) * 1000 + int(places.ljust(3, "0"))) * step // 1000
        if rate < 1:
            self.fail(f"{value!r} is not a rate such as 20MB or 512KiB a second", param, ctx)
        return rate
