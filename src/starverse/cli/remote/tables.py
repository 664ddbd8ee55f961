"""Plain tables in columns, with the widths that Chinese characters really take on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """``right``: numbers, aligned at the right edge."""

    title: str
    right: bool = False


def columns(*titles: str) -> list[Column]:
    """Columns by title; one that starts with ``>`` is aligned right."""
    return [Column(title.removeprefix(">"), title.startswith(">")) for title in titles]


def width(text: str) -> int:
    """Terminal cells: wide and full-width characters take two, combining and invisible ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def visible(text: str) -> str:
    """The text on one line without control characters, which a terminal could obey: they show as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Fill up with spaces to a width in cells."""
    space = " " * max(0, cells - width(text))
    return space + text if right else text + space


def render_table(titles: Sequence[Column], rows: Sequence[Sequence[object]]) -> str:
    """The table with its titles; ``None`` cells show as ``-``. No trailing spaces, no newline at the end."""
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [[column.title for column in titles], *cells]
    widths = [max(width(line[index]) for line in lines) for index in range(len(titles))]
    return "\n".join(
        GAP.join(
            pad(text, cells, right=column.right)
            for text, cells, column in zip(line, widths, titles, strict=True)
        ).rstrip()
        for line in lines
    )


def render_fields(fields: Sequence[tuple[str, object]]) -> str:
    """``name  value`` lines, values aligned; fields without a value are left out."""
    shown = [(name, _cell(value)) for name, value in fields if value not in (None, "", [], ())]
    longest = max((width(name) for name, _ in shown), default=0)
    return "\n".join(f"{pad(name, longest)}{GAP}{text}".rstrip() for name, text in shown)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value) or "-"
    return visible(str(value))
