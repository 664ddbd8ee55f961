"""What ``submit --lint`` says about a script, as text and as JSON; the caller adds the price lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from starverse.domain.sbatch.origins import Origin
from starverse.domain.sbatch.submission import Submission

LINT_VERSION = 1
_VALUE_WIDTH_MAX = 48


def lint_text(submission: Submission) -> str:
    """Sections for people: effective options, ignored lines, refused, notices; empty ones are left out."""
    rows = [(option.name, option.value, str(option.origin)) for option in submission.options]
    sections = [("Effective options", _table(rows))]
    if submission.ignored_lines:
        lines = [(f"line {line.line}", line.text.strip(), line.reason) for line in submission.ignored_lines]
        sections.append(("Ignored lines", _table(lines)))
    if submission.faults:
        sections.append(("Refused", [str(fault) for fault in submission.faults]))
    if submission.notices:
        sections.append(("Notices", [str(notice) for notice in submission.notices]))
    return (
        "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in sections) + "\n"
    )


def lint_document(submission: Submission) -> dict[str, object]:
    """The same for programs; stable, versioned. ``line`` is ``null`` away from the script."""
    return {
        "version": LINT_VERSION,
        "ok": submission.spec is not None,
        "options": [
            {"name": option.name, "value": option.value, **_origin(option.origin)}
            for option in submission.options
        ],
        "ignored_lines": [
            {"line": line.line, "text": line.text, "reason": line.reason} for line in submission.ignored_lines
        ],
        "faults": [
            {
                "option": fault.option,
                "value": fault.value,
                "expected": fault.expected,
                **_origin(fault.origin),
            }
            for fault in submission.faults
        ],
        "notices": [
            {"text": notice.text, **(_origin(notice.origin) if notice.origin else {"source": None})}
            for notice in submission.notices
        ],
    }


def display_width(text: str) -> int:
    """Columns of a terminal: two for wide characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _origin(origin: Origin) -> dict[str, object]:
    return {"source": origin.source.value, "variable": origin.variable or None, "line": origin.line}


def _table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    first = max((display_width(row[0]) for row in rows), default=0)
    second = min(_VALUE_WIDTH_MAX, max((display_width(row[1]) for row in rows), default=0))
    return [f"{_padded(a, first)}  {_padded(b, second)}  {c}" for a, b, c in rows]


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - display_width(text))
