"""How every benchmark prints: each figure beside its peer or bound measured in the same run.

A benchmark builds one :class:`Report` and calls :func:`emit`; the table and the JSON say the same.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

REPORT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, with the peer or bound that it is judged by.

    ``measured`` and ``peer_measured`` are in ``unit``; ``peer_measured`` is ``None`` where there is no peer
    or the machine lacks it (then ``note`` says why). What is judged is the ratio measured / peer, or
    ``measured`` itself without a peer: it has to be ``at_most`` or ``at_least`` the number given; with
    neither, the figure is shown for comparison only.
    """

    name: str
    measured: float
    unit: str
    peer: str = ""
    peer_measured: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """measured / peer; ``None`` without a peer, or where the peer took no time at all."""
        return self.measured / self.peer_measured if self.peer_measured else None

    @property
    def target(self) -> str:
        """The target as text, such as ``<= 1.3x`` or ``>= 5000``; empty when there is none."""
        times = "x" if self.peer else ""
        if self.at_most is not None:
            return f"<= {self.at_most:g}{times}"
        return f">= {self.at_least:g}{times}" if self.at_least is not None else ""

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; ``None`` without a target, or without the peer it needs."""
        judged = self.ratio if self.peer else self.measured
        if judged is None or (self.at_most is None and self.at_least is None):
            return None
        below = self.at_most is None or judged <= self.at_most
        return below and (self.at_least is None or judged >= self.at_least)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one benchmark: ``number`` is its row in the design's table (5, 13, ...)."""

    number: int
    name: str
    figures: Sequence[Figure]
    conditions: Mapping[str, object] = field(default_factory=dict)
    """Seeds, sizes, repeats, flush p50: whatever someone needs to make the figures again."""
    missing: Sequence[str] = ()
    """Peers that could not be measured here, each with its reason."""

    def as_json(self) -> dict[str, object]:
        """The report as plain JSON values."""
        return {
            "version": REPORT_VERSION,
            "number": self.number,
            "name": self.name,
            "figures": [_figure_as_json(figure) for figure in self.figures],
            "conditions": {**machine(), **self.conditions},
            "missing": list(self.missing),
        }


def emit(report: Report, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Print the report to ``stream`` (default: standard output), as JSON or as a table."""
    out = stream or sys.stdout
    out.write(json.dumps(report.as_json(), indent=2) + "\n" if as_json else render(report))


def render(report: Report) -> str:
    """The table: figure, measured, peer, ratio, target, reached; then the conditions and missing peers."""
    head = ("figure", "measured", "peer or bound", "ratio", "target", "reached")
    rows = [head, *(_row(figure) for figure in report.figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [f"benchmark {report.number}: {report.name}", ""]
    for index, row in enumerate(rows):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if index == 0:
            lines.append("  ".join("-" * width for width in widths))
    lines.append("")
    lines += [f"note: {figure.name}: {figure.note}" for figure in report.figures if figure.note]
    lines += [f"{name}: {value}" for name, value in {**machine(), **report.conditions}.items()]
    lines += [f"not measured: {reason}" for reason in report.missing]
    return "\n".join(lines) + "\n"


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def flush_p50_seconds(folder: Path, *, rounds: int = 50) -> float:
    """Median time of a 4 KiB write and fsync in ``folder``: the bound of everything durable there."""
    samples = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(rounds):
            file.write(b"\0" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            samples.append(time.perf_counter() - begun)
    return statistics.median(samples)


def _figure_as_json(figure: Figure) -> dict[str, object]:
    return {
        "name": figure.name,
        "measured": figure.measured,
        "unit": figure.unit,
        "peer": figure.peer or None,
        "peer_measured": figure.peer_measured,
        "ratio": figure.ratio,
        "target": figure.target or None,
        "reached": figure.reached,
        "note": figure.note or None,
    }


def _row(figure: Figure) -> tuple[str, ...]:
    peer = figure.peer
    if figure.peer and figure.peer_measured is not None:
        peer = f"{figure.peer} {_number(figure.peer_measured)} {figure.unit}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
    reached = {True: "yes", False: "NO", None: ""}[figure.reached]
    return (figure.name, f"{_number(figure.measured)} {figure.unit}", peer, ratio, figure.target, reached)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
