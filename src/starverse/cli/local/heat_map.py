"""``starverse heatmap``: when N cards will be free together, and what they will cost.

The domain is imported when the command runs, so that ``--help`` stays quick.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from starverse.domain.forecasting.heat_map import HeatMap

SHADES = ((0.8, 32), (0.5, 33), (0.0, 31))
"""From which probability on a row is green, yellow, red."""


@click.command("heatmap")
@click.option(
    "--from-trace",
    "trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help='A trace in JSON: {"metadata": {"gap_seconds": N}, "data": [free, ...], "prices": [...]}.',
)
@click.option("--cards", default=1, show_default=True, type=click.IntRange(1), help="How many together.")
@click.option(
    "--hours", default=1, show_default=True, type=click.IntRange(1, 72), help="Length of the job to place."
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw it.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(trace: Path, cards: int, hours: int, svg: Path | None, png: Path | None, as_json: bool) -> None:
    """Show the next 72 hours: how likely cards are free together, at what price, how sure that is."""
    from starverse.cli.local import heat_map_pictures as pictures
    from starverse.domain.forecasting.heat_map import heat_map
    from starverse.domain.forecasting.traces import read_trace

    free, prices = read_trace(trace.read_text("utf-8"))
    told = heat_map(free, cards, hours, prices)
    cells = [(hour.at, hour.probability) for hour in told.hours]
    if svg is not None:
        svg.write_text(pictures.svg(f"{cards} free together, in percent", cells), "utf-8")
    if png is not None:
        png.write_bytes(pictures.png(cells))
    click.echo(json.dumps(as_plain(told), indent=2) if as_json else render(told, sys.stdout.isatty()))


def as_plain(told: HeatMap) -> dict[str, Any]:
    """Plain JSON values; instants in ISO 8601."""
    return {
        "version": 1,
        "cards": told.cards,
        "history_hours": told.history_hours,
        "enough_history": told.enough,
        "hours": [
            {
                "at": hour.at.isoformat(),
                "probability": round(hour.probability, 4),
                "method": hour.method,
                "free": round(hour.free, 2),
                "price": hour.price,
                "price_low": hour.price_low,
                "price_high": hour.price_high,
            }
            for hour in told.hours
        ],
        "record": [
            {
                "ahead_hours": row.ahead,
                "skill": round(row.skill, 4),
                "calibration_error": round(row.calibration_error, 4),
                "best_naive": row.best_naive,
                "outcomes": row.outcomes,
            }
            for row in told.record
        ],
        "windows": [
            {
                "start": told.start_of(window).isoformat(),
                "hours": window.hours,
                "price": None if told.hours[0].price is None else window.price,
                "probability": round(window.probability, 4),
            }
            for window in told.windows
        ],
        "low_windows": [
            {"week_hour": low.first, "hours": low.hours, "text": low.text, "saving": round(low.saving, 4)}
            for low in told.low
        ],
    }


def render(told: HeatMap, coloured: bool) -> str:
    """The heat map as text: a row for each hour, then windows and how good the forecast has been."""
    lines = [f"{'HOUR':<16}  {'P':>4}  {'':<20}  {'FREE':>6}  {'PRICE':>8}  90 % BAND"]
    for hour in told.hours:
        bar = "#" * round(20 * hour.probability)
        price = "-" if hour.price is None else f"{hour.price:.3f}"
        band = "-" if hour.price is None else f"{hour.price_low:.3f} to {hour.price_high:.3f}"
        line = (
            f"{hour.at:%a %d %b %H:%M}  {100 * hour.probability:3.0f}%  {bar:<20}  {hour.free:6.1f}"
            f"  {price:>8}  {band}"
        )
        shade = next((code for least, code in SHADES if hour.probability >= least), SHADES[-1][1])
        lines.append(f"\x1b[{shade}m{line}\x1b[0m" if coloured else line)
    lines.append("")
    for window in told.windows:
        cost = "" if told.hours[0].price is None else f", about {window.price:.3f} per card-hour"
        lines.append(
            f"window of {window.hours} h from {told.start_of(window):%a %d %b %H:%M}: "
            f"{100 * window.probability:.0f}% in its least likely hour{cost}"
        )
    if not told.windows:
        lines.append("no window of that length is likelier than not")
    lines += [
        f"low hours of the week: {low.text}, {100 * low.saving:.0f}% below its mean" for low in told.low
    ]
    lines += ["", *_trust(told)]
    return "\n".join(lines)


def _trust(told: HeatMap) -> list[str]:
    if not told.enough:
        return [
            f"Not enough history: {told.history_hours} h are known, a week is needed. "
            "Until then this is a simple chain of what was seen."
        ]
    lines = []
    for row in told.record:
        hidden = "; so the usual of that hour of the week is told instead" if row.skill < 0 else ""
        lines.append(
            f"{row.ahead} h ahead, on {row.outcomes} past hours: skill {row.skill:+.2f} against the best "
            f"naive method ({row.best_naive}), calibration error {row.calibration_error:.3f}{hidden}"
        )
    return lines or ["Too little history to tell the past again; not judged yet."]
