"""The report of replays side by side, as Markdown or as one HTML page with its plots inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from starverse.sim.figures import Figures, waits_of
from starverse.sim.replay import Outcome

TEAMS_SHOWN = 12
WIDTH, HEIGHT, LEFT = 720, 200, 50
COLOURS = ("#1f6feb", "#d1562b", "#2da44e", "#8250df")
POINTS = 360


def markdown(found: Sequence[Figures], notes: Sequence[str]) -> str:
    """A table with a column per replay, then what each team pays."""
    lines = ["# What would have happened", "", *_table(_rows(found)), "", "## Cost per team", ""]
    lines += _table(_teams(found))
    if notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def html(outcomes: Sequence[Outcome], found: Sequence[Figures], notes: Sequence[str]) -> str:
    """Needs nothing beside itself: no script, no font, no picture from elsewhere."""
    busy = [
        (o.rules.name, [(s.at.timestamp(), s.busy_cards / max(1, o.cards)) for s in o.samples])
        for o in outcomes
    ]
    waits = [(o.rules.name, _shares(waits_of(o.fates))) for o in outcomes]
    body = [
        "<h1>What would have happened</h1>",
        _html_table(_rows(found)),
        "<h2>Cards in use, share of all, over time</h2>",
        plot(busy, 1.0),
        "<h2>Hours waited (up) by share of the jobs (across)</h2>",
        plot(waits, None),
        "<h2>Cost per team</h2>",
        _html_table(_teams(found)),
    ]
    body += [f"<p>{escape(note)}</p>" for note in notes]
    style = (
        "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:2px 12px;text-align:right}"
    )
    return f'<!doctype html><meta charset="utf-8"><title>Replay</title><style>{style}</style>' + "\n".join(
        body
    )


def plot(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], top: float | None) -> str:
    """Lines in one SVG; ``top`` ``None``: the greatest value is the top of the axis."""
    xs = [x for _, points in series for x, _ in points]
    first, last = (min(xs), max(xs)) if xs else (0.0, 1.0)
    highest = top or max((y for _, points in series for _, y in points), default=1.0) or 1.0
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 40}" width="{WIDTH}" role="img">']
    for mark in (0.0, 0.5, 1.0):
        y = HEIGHT - mark * (HEIGHT - 10)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" font-size="11">'
            f"{mark * highest:.3g}</text>"
        )
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        thinned = points[:: max(1, len(points) // POINTS)]
        path = " ".join(
            f"{LEFT + (x - first) / ((last - first) or 1) * (WIDTH - LEFT):.1f},"
            f"{HEIGHT - min(1.0, y / highest) * (HEIGHT - 10):.1f}"
            for x, y in thinned
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{LEFT + 170 * number}" y="{HEIGHT + 28}" fill="{colour}" font-size="13">'
            f"{escape(name)}</text>"
        )
    return "".join(parts) + "</svg>"


def _shares(waits: Sequence[int]) -> list[tuple[float, float]]:
    return [(rank / max(1, len(waits) - 1), seconds / 3600) for rank, seconds in enumerate(waits)]


def _rows(found: Sequence[Figures]) -> list[tuple[str, ...]]:
    def hours(seconds: float) -> str:
        return f"{seconds / 3600:,.2f} h"

    return [
        ("", *(f.name for f in found)),
        ("jobs", *(f"{f.jobs:,}" for f in found)),
        ("never placed", *(f"{f.not_placed:,}" for f in found)),
        ("cards in use", *(f"{100 * f.utilisation:.1f} %" for f in found)),
        ("wait, mean", *(hours(f.wait_mean_seconds) for f in found)),
        ("wait, median", *(hours(f.wait_p50_seconds) for f in found)),
        ("wait, nine in ten within", *(hours(f.wait_p90_seconds) for f in found)),
        ("wait, longest", *(hours(f.wait_longest_seconds) for f in found)),
        ("revenue", *(f.revenue.decimal() for f in found)),
        ("reclaims", *(f"{f.reclaims:,}" for f in found)),
        ("lost card-hours", *(f"{f.lost_card_hours:,.1f}" for f in found)),
        ("a decision, median", *(f"{f.decide_p50_ms:.1f} ms" for f in found)),
        ("a decision, longest", *(f"{f.decide_longest_ms:.1f} ms" for f in found)),
    ]


def _teams(found: Sequence[Figures]) -> list[tuple[str, ...]]:
    costs = [dict(f.cost_by_team) for f in found]
    teams = [team for team, _ in found[0].cost_by_team]
    rows = [("team", *(f.name for f in found))]
    rows += [(team, *(c[team].decimal() for c in costs)) for team in teams[:TEAMS_SHOWN]]
    if len(teams) > TEAMS_SHOWN:
        rows.append((f"and {len(teams) - TEAMS_SHOWN} more", *("" for _ in found)))
    return rows


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return [lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:]]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _html_table(rows: Sequence[tuple[str, ...]]) -> str:
    cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
