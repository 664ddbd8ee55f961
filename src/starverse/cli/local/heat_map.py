"""``starverse heatmap``: when N cards will be free together, and what they will cost.

The domain is imported when a trace is read, so that ``--help`` stays quick; without one the server is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from starverse.cli.remote.commands import command as remote_command
from starverse.cli.remote.session import Session
from starverse.domain.errors import NotFound

SHADES = ((0.8, 32), (0.5, 33), (0.0, 31))
"""From which probability on a row is green, yellow, red."""
FILE = click.Path(dir_okay=False, path_type=Path)


@remote_command("Show when cards will be free together, at what price, and how sure that is.", name="heatmap")
@click.option("--card", metavar="MODEL", help="Such as rtx4090; several pools may be like this.")
@click.option("--fabric", type=click.Choice(("ib", "roce", "eth")))
@click.option("--cards", default=1, show_default=True, type=click.IntRange(1), help="How many together.")
@click.option(
    "--hours", default=1, show_default=True, type=click.IntRange(1, 72), help="Length of the job to place."
)
@click.option(
    "--from-trace",
    "trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='Of a trace, without a server: {"metadata": {"gap_seconds": N}, "data": [free, ...]} in JSON.',
)
@click.option("--svg", type=FILE, metavar="FILE", help="Draw the first pool.")
@click.option("--png", type=FILE, metavar="FILE", help="Draw the first pool.")
def command(session: Session, trace: Path | None, svg: Path | None, png: Path | None, **asked: Any) -> None:
    from starverse.cli.local import heat_map_pictures as pictures

    found = (
        of_trace(trace, asked["cards"], asked["hours"])
        if trace
        else session.client().cards.heat_maps(**asked)
    )
    if not found:
        raise NotFound(
            "no pool like this has an hour on record yet",
            hint="a server keeps the first one within a minute; all pools: starverse offers",
        )
    first = found[0]
    cells = [(datetime.fromisoformat(hour["at"]), hour["probability"]) for hour in first["hours"]]
    if svg is not None:
        svg.write_text(
            pictures.svg(f"{first['cards']} free together, in percent: {first['pool']}", cells), "utf-8"
        )
    if png is not None:
        png.write_bytes(pictures.png(cells))
    coloured = session.stdout is sys.stdout and sys.stdout.isatty()
    session.emit({"items": found}, lambda: "\n\n".join(render(told, coloured) for told in found))


def of_trace(trace: Path, cards: int, hours: int) -> list[dict[str, Any]]:
    """The heat map of a trace. Raises ``Invalid`` for what is no trace."""
    from starverse.domain.forecasting.heat_map import heat_map
    from starverse.domain.forecasting.traces import read_trace

    free, prices = read_trace(trace.read_text("utf-8"))
    return [{"pool": trace.name, **heat_map(free, cards, hours, prices).to_json()}]


def render(told: Mapping[str, Any], coloured: bool) -> str:
    """The heat map as text: a row for each hour, then windows and how good the forecast has been."""
    title = f"{told['cards']} free together in {told['pool']}"
    lines = [title, "", f"{'HOUR':<16}  {'P':>4}  {'':<20}  {'FREE':>6}  {'PRICE':>8}  90 % BAND"]
    for hour in told["hours"]:
        chance, price = hour["probability"], hour["price"]
        cost = "-" if price is None else f"{price:.3f}"
        band = "-" if price is None else f"{hour['price_low']:.3f} to {hour['price_high']:.3f}"
        line = (
            f"{_when(hour['at'])}  {100 * chance:3.0f}%  {'#' * round(20 * chance):<20}  {hour['free']:6.1f}"
            f"  {cost:>8}  {band}"
        )
        shade = next((code for least, code in SHADES if chance >= least), SHADES[-1][1])
        lines.append(f"\x1b[{shade}m{line}\x1b[0m" if coloured else line)
    lines.append("")
    for window in told["windows"]:
        cost = "" if window["price"] is None else f", about {window['price']:.3f} per card-hour"
        lines.append(
            f"window of {window['hours']} h from {_when(window['start'])}: "
            f"{100 * window['probability']:.0f}% in its least likely hour{cost}"
        )
    if not told["windows"]:
        lines.append("no window of that length is likelier than not")
    lines += [
        f"low hours of the week: {low['text']}, {100 * low['saving']:.0f}% below its mean"
        for low in told["low_windows"]
    ]
    return "\n".join([*lines, "", *_trust(told)])


def _when(text: str) -> str:
    return f"{datetime.fromisoformat(text):%a %d %b %H:%M}"


def _trust(told: Mapping[str, Any]) -> list[str]:
    if not told["enough_history"]:
        return [
            f"Not enough history: {told['history_hours']} h are known, a week is needed. "
            "Until then this is a simple chain of what was seen."
        ]
    lines = []
    for row in told["record"]:
        hidden = f"; so {row['best_naive']} is told instead" if row["skill"] < 0 else ""
        lines.append(
            f"{row['ahead_hours']} h ahead, on {row['outcomes']} past hours: "
            f"skill {row['skill']:+.2f} against the best naive method ({row['best_naive']}), "
            f"calibration error {row['calibration_error']:.3f}{hidden}"
        )
    return lines or ["Too little history to tell the past again; not judged yet."]
