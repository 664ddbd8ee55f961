"""The last progress line of a log: the newest complete line that shows a share done.

A line counts when it holds a percentage (``37%``) or ``N/M`` with N not above M, as most training loops
print; carriage returns (tqdm) part lines as newlines do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

TAIL_BYTES = 8192
LINE_CHARACTERS_MAX = 200

_SHARE = re.compile(r"(?<![\w/.])(\d{1,9})\s*/\s*(\d{1,9})(?![\w/])|(?<!\d)(\d{1,3})(?:\.\d+)?\s?%")


def last_progress(logs: Path, attempt: int) -> str | None:
    """The last progress line of this attempt's output; ``None`` when there is none or no log."""
    try:
        with (logs / f"{attempt}.out").open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            tail = log.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    return progress_of(tail)


def progress_of(text: str) -> str | None:
    """The last complete line of ``text`` that shows a share done."""
    lines = re.split(r"[\r\n]+", text)
    for line in reversed(lines[:-1] if text[-1:] not in "\r\n" else lines):
        if any(_is_share(found) for found in _SHARE.finditer(line)):
            return line.strip()[:LINE_CHARACTERS_MAX]
    return None


def _is_share(found: re.Match[str]) -> bool:
    if found[3] is not None:
        return int(found[3]) <= 100
    return int(found[2]) > 0 and int(found[1]) <= int(found[2])
