"""``starverse config show``: every setting, its value and where it came from."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group("config")
def command() -> None:
    """Look at the server's settings."""


@command.command("show")
@click.option("--origin", is_flag=True, help="Also say where each value came from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--config", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Settings file."
)
def show(origin: bool, as_json: bool, file: Path | None) -> None:
    """Print every setting that `starverse up` would use now."""
    from starverse.config import load

    loaded = load(file)
    values = {
        f"{section}.{name}": value
        for section, settings in loaded.config.model_dump(mode="json").items()
        for name, value in settings.items()
    }
    if as_json:
        document = {key: {"value": value, "origin": loaded.origins[key]} for key, value in values.items()}
        click.echo(json.dumps({"version": 1, "settings": document}, indent=2))
        return
    width = max(map(len, values))
    for key, value in values.items():
        shown = "-" if value is None or value == "" else str(value)
        click.echo(f"{key:<{width}}  {shown}" + (f"  ({loaded.origins[key]})" if origin else ""))
