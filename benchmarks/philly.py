"""Arrivals of the Philly trace: when a job came, how long it ran, on how many cards."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """``at_seconds`` since the first arrival that was read; ``group`` is the trace's virtual cluster."""

    at_seconds: float
    run_seconds: float
    cards: int
    group: str


def read_arrivals(jobs_file: Path, count: int | None = None, *, since: str = "") -> list[Arrival]:
    """The first ``count`` arrivals by time (``None``: all), from ``since`` (``"2017-10-03"``) on."""
    rows = sorted(row for row in _rows(jobs_file) if row[0] >= since)[:count]
    if not rows:
        return []
    first = datetime.fromisoformat(rows[0][0])
    return [
        Arrival((datetime.fromisoformat(at) - first).total_seconds(), run, cards, group)
        for at, run, cards, group in rows
    ]


def _rows(jobs_file: Path) -> Iterator[tuple[str, float, int, str]]:
    with gzip.open(jobs_file, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            yield row["timestamp"], float(row["duration"]), int(row["num_gpus"]), row["cluster"]
