"""Write measured reports into the page of results: the part of ``docs/benchmarks.md`` between two marks.

    python -m benchmarks.results_page docs/benchmarks.md REPORT.json [REPORT.json ...]

A file holds one report or ``{"reports": [...]}``, as ``python -m benchmarks --json`` prints them. What is
written by hand around the marks stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN = "<!-- results: written by python -m benchmarks.results_page -->"
END = "<!-- end of results -->"
EVERYWHERE = ("python", "machine", "cores")
"""Conditions that are the same for all reports of a session: they are said once."""
LEFT_OUT = (*EVERYWHERE, "kernel")


def main(arguments: Sequence[str]) -> int:
    """Exit code 2 when the page or the marks are missing."""
    if len(arguments) < 2:
        sys.stderr.write(__doc__ or "")
        return 2
    page, files = Path(arguments[0]), [Path(name) for name in arguments[1:]]
    text = page.read_text("utf-8")
    if BEGIN not in text or END not in text:
        sys.stderr.write(f"{page} has no marks; add these lines where the results go:\n{BEGIN}\n{END}\n")
        return 2
    reports = [report for file in files for report in read_reports(file)]
    before, after = text.split(BEGIN)[0], text.split(END, 1)[1]
    page.write_text(f"{before}{BEGIN}\n\n{render(reports)}\n{END}{after}", "utf-8")
    return 0


def read_reports(file: Path) -> list[dict[str, Any]]:
    found = json.loads(file.read_text("utf-8"))
    reports: list[dict[str, Any]] = found.get("reports", [found])
    return reports


def render(reports: Sequence[Mapping[str, Any]]) -> str:
    """The table of all figures by row of the design, then the conditions of each report."""
    ordered = sorted(reports, key=lambda report: report["number"])
    lines = ["| # | figure | measured | peer or bound of the same run | ratio | to reach | reached |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for report in ordered:
        lines += [_row(report["number"], figure) for figure in report["figures"]]
    lines += ["", "Conditions:", ""]
    if ordered:
        shared = ordered[0]["conditions"]
        lines.append("- all: " + "; ".join(f"{name} {shared[name]}" for name in EVERYWHERE if name in shared))
    for report in ordered:
        own = {key: value for key, value in report["conditions"].items() if key not in LEFT_OUT}
        said = "; ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in own.items())
        lines.append(f"- {report['number']}, {report['name']}: {said}")
        lines += [f"- {report['number']}, {report['name']}, not measured: {why}" for why in report["missing"]]
    return "\n".join(lines) + "\n"


def _row(number: int, figure: Mapping[str, Any]) -> str:
    peer = figure["peer"] or "-"
    if figure["peer_measured"] is not None:
        peer = f"{peer}: {_number(figure['peer_measured'])} {figure['unit']}"
    ratio = "-" if figure["ratio"] is None else f"{figure['ratio']:.2f}x"
    reached = {True: "yes", False: "**no**", None: "-"}[figure["reached"]]
    measured = f"{_number(figure['measured'])} {figure['unit']}"
    cells = (str(number), figure["name"], measured, peer, ratio, figure["target"] or "-", reached)
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
