"""The output language that Slurm's commands share: columns, widths, times, folded lists.

Pure: rows in, text out. squeue and sinfo read ``%[[.]size]type[suffix]`` (``-o``) and
``type[:[.][size][suffix]]`` (``-O``); see their manual pages. Widths count terminal columns, so that
Chinese names stay aligned.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Generic, TypeVar

Row = TypeVar("Row")

_PERCENT = re.compile(r"%(\.?)(#|\d*)([A-Za-z@?])([^%]*)", re.ASCII)
_LONG_WIDTH_DEFAULT = 20
_MEASURED_WIDTH_MIN = 9
_WIDTH_MAX = 1000


@dataclass(frozen=True, slots=True)
class Field(Generic[Row]):
    """What a type letter or name stands for; ``many`` fields sum over grouped rows (sinfo).

    ``cut`` false: a text wider than its column is printed whole, as Slurm does with spans of time.
    """

    header: str
    text: Callable[[Row], str]
    many: bool = False
    cut: bool = True


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A field with its place: ``width`` ``None``: as wide as the text; else padded and cut.

    ``measured``: as wide as the longest text of all rows, at least 9 (sinfo's ``%#``).
    """

    field: Field[Row]
    width: int | None = None
    right: bool = False
    suffix: str = ""
    measured: bool = False

    def cell(self, text: str) -> str:
        width = self.width
        if width is not None and not self.field.cut and text != self.field.header:
            width = max(width, display_width(text))
        return fit(text, width, right=self.right) + self.suffix


@dataclass(frozen=True, slots=True)
class Layout(Generic[Row]):
    """A read format: text before the first column, the columns, and types that do not exist."""

    prefix: str
    columns: tuple[Column[Row], ...]
    unknown: tuple[str, ...] = ()

    def lines(self, rows: Iterable[Row], *, header: bool = True) -> list[str]:
        cells = [[column.field.text(row) for column in self.columns] for row in rows]
        if header:
            cells.insert(0, [column.field.header for column in self.columns])
        columns = [
            replace(column, width=max([_MEASURED_WIDTH_MIN, *(display_width(line[at]) for line in cells)]))
            if column.measured
            else column
            for at, column in enumerate(self.columns)
        ]
        return [
            self.prefix + "".join(c.cell(text) for c, text in zip(columns, line, strict=True))
            for line in cells
        ]


def read_percent_format(text: str, fields: Mapping[str, Field[Row]]) -> Layout[Row]:
    """``-o``: ``"%.18i %.9P %j"``. ``%all`` prints every field with ``|`` between.

    An unknown type is printed as it stands, as squeue does, and named in the layout.
    """
    if text.strip() in {"%all", "all"}:
        every = list(dict.fromkeys(fields.values()))
        return Layout("", tuple(Column(field, suffix="" if field is every[-1] else "|") for field in every))
    columns: list[Column[Row]] = []
    unknown: list[str] = []
    prefix = text[: text.find("%")] if "%" in text else text
    for found in _PERCENT.finditer(text):
        dot, size, letter, suffix = found.groups()
        field = fields.get(letter)
        if field is None:
            unknown.append(letter)
            if columns:
                columns[-1] = replace(columns[-1], suffix=columns[-1].suffix + found[0])
            else:
                prefix += found[0]
            continue
        width = min(int(size), _WIDTH_MAX) if size.isdigit() else None
        columns.append(Column(field, width, bool(dot), suffix, measured=size == "#"))
    return Layout(prefix, tuple(columns), tuple(unknown))


def read_long_format(text: str, fields: Mapping[str, Field[Row]]) -> Layout[Row]:
    """``-O``: ``"JobID:10,Name:.8"``; names in any case; 20 columns wide without a size."""
    by_name = {name.lower(): field for name, field in fields.items()}
    columns: list[Column[Row]] = []
    unknown: list[str] = []
    for part in filter(None, (piece.strip(" ") for piece in text.split(","))):
        name, _, rest = part.partition(":")
        field = by_name.get(name.strip().lower())
        found = re.fullmatch(r"(\.?)(\d*)(.*)", rest, re.ASCII | re.DOTALL)
        if field is None or found is None:
            unknown.append(name)
            continue
        width = min(int(found[2]), _WIDTH_MAX) if found[2] else _LONG_WIDTH_DEFAULT
        columns.append(Column(field, width, bool(found[1]), found[3]))
    return Layout("", tuple(columns), tuple(unknown))


def fit(text: str, width: int | None, *, right: bool = False, mark: str = "") -> str:
    """Padded and cut to ``width`` columns; ``mark`` replaces the end of what was cut (sacct's ``+``)."""
    if width is None:
        return text
    have = display_width(text)
    if have > width:
        text = _cut(text, max(0, width - len(mark))) + mark[:width]
        have = display_width(text)
    padding = " " * (width - have)
    return padding + text if right else text + padding


def display_width(text: str) -> int:
    """Columns of a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def one_line(text: str) -> str:
    """Control characters replaced, so that a name cannot break a table or move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def short_span(seconds: int | None) -> str:
    """squeue and sinfo: ``0:05``, ``12:00:00``, ``1-00:00:00``; ``None``: ``UNLIMITED``."""
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    days, hours, minutes, rest = _parts(seconds)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def full_span(seconds: int | None) -> str:
    """sacct: ``00:00:05``, ``1-00:00:00``; ``None``: ``UNLIMITED``."""
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    days, hours, minutes, rest = _parts(seconds)
    clock = f"{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{days}-{clock}" if days else clock


def moment(instant: datetime | None, zone: tzinfo, missing: str) -> str:
    """``2026-03-10T10:00:00`` on the clocks of ``zone``; ``missing`` for ``None``."""
    return missing if instant is None else instant.astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")


def memory(mebibytes: int) -> str:
    """``4G``, ``2500M``, ``1T``: the largest unit that keeps it exact, as squeue prints it."""
    size, units = mebibytes, ["M", "G", "T"]
    while size and size % 1024 == 0 and len(units) > 1:
        size //= 1024
        units.pop(0)
    return f"{size}{units[0]}"


def fold_indices(indices: Sequence[int]) -> str:
    """``4-7,9`` from ascending numbers."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def fold_nodes(names: Iterable[str]) -> str:
    """``gpu[001-003,007],head``: names with the same prefix and number of digits in one bracket."""
    groups: dict[tuple[str, int], list[int]] = {}
    order: list[str | tuple[str, int]] = []
    for name in dict.fromkeys(names):
        found = re.fullmatch(r"(.*?)(\d{1,9})", name, re.ASCII)
        if found is None:
            order.append(name)
            continue
        key = (found[1], len(found[2]))
        if key not in groups:
            groups[key] = []
            order.append(key)
        groups[key].append(int(found[2]))
    return ",".join(key if isinstance(key, str) else _bracket(key, sorted(groups[key])) for key in order)


def _bracket(key: tuple[str, int], numbers: list[int]) -> str:
    prefix, width = key
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}"
    padded = re.sub(r"\d+", lambda found: found[0].zfill(width), fold_indices(numbers))
    return f"{prefix}[{padded}]"


def _parts(seconds: int) -> tuple[int, int, int, int]:
    return seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cut(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return text[:index]
    return text
