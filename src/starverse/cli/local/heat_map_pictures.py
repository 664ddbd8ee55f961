"""The heat map as an SVG or a PNG: a row for each day, a cell for each hour, darker where it is likelier."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from datetime import datetime
from html import escape

CELL = 24
LABEL = 96
TITLE = 32
AXIS = 20
PALE, DEEP = (247, 244, 236), (12, 96, 84)

Cell = tuple[datetime, float]


def colour(probability: float) -> tuple[int, int, int]:
    """From pale (never) to deep (surely)."""
    share = min(1.0, max(0.0, probability))
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(PALE, DEEP, strict=True))
    return red, green, blue


def by_day(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells of each day, in order."""
    days: dict[str, list[Cell]] = {}
    for cell in cells:
        days.setdefault(cell[0].date().isoformat(), []).append(cell)
    return list(days.values())


def svg(title: str, cells: Sequence[Cell]) -> str:
    """A picture that stands alone, with the percentage in each cell."""
    days = by_day(cells)
    wide, high = LABEL + 24 * CELL, TITLE + len(days) * CELL + AXIS
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
        f'<text x="4" y="20" font-size="14">{escape(title)}</text>',
    ]
    for row, day in enumerate(days):
        top = TITLE + row * CELL
        lines.append(f'<text x="4" y="{top + 16}">{day[0][0]:%a %d %b}</text>')
        for at, chance in day:
            left, fill = LABEL + at.hour * CELL, "#{:02x}{:02x}{:02x}".format(*colour(chance))
            ink = "#fff" if chance > 0.5 else "#333"
            lines.append(
                f'<rect x="{left}" y="{top}" width="{CELL - 1}" height="{CELL - 1}" fill="{fill}"/>'
                f'<text x="{left + 11}" y="{top + 15}" text-anchor="middle" fill="{ink}">'
                f"{100 * chance:.0f}</text>"
            )
    for hour in range(0, 24, 3):
        lines.append(f'<text x="{LABEL + hour * CELL}" y="{high - 6}">{hour:02d}</text>')
    return "\n".join([*lines, "</svg>\n"])


def png(cells: Sequence[Cell]) -> bytes:
    """The same cells without text, 8 bits a channel."""
    days = by_day(cells)
    white = (255, 255, 255)
    rows = []
    for day in days:
        fills = {at.hour: colour(chance) for at, chance in day}
        line = bytes(
            value
            for hour in range(24)
            for pixel in [fills.get(hour, white)] * (CELL - 1) + [white]
            for value in pixel
        )
        rows += [line] * (CELL - 1) + [bytes([255]) * len(line)]
    return encode_png(24 * CELL, rows)


def encode_png(width: int, rows: Sequence[bytes]) -> bytes:
    """A true-colour PNG of rows of ``3 * width`` bytes (W3C PNG, third edition: IHDR, IDAT, IEND)."""
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    parts = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
