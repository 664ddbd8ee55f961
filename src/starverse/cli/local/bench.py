"""``starverse bench``: the measurements of a checkout, by name; a wheel does not carry them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from starverse.domain.errors import NotFound

PACKAGE = Path(__file__).resolve().parents[2]


class PassingOn(click.Command):
    """Leaves options that it does not know to the measurement."""

    ignore_unknown_options = True
    allow_interspersed_args = False


@click.command(
    "bench",
    cls=PassingOn,
    help="Run a measurement by NAME with its own options (--json, --help); without a name, list them.",
)
@click.argument("name", required=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, name: str | None, options: tuple[str, ...]) -> None:
    if name is None or name.startswith("-"):
        words = ["--list", *(() if name is None else (name,)), *options]
    else:
        words = [name, *options]
    ctx.exit(run(words, [Path.cwd(), PACKAGE.parents[1]]))


def run(words: Sequence[str], places: Sequence[Path]) -> int:
    """``python -m benchmarks`` in the first of ``places`` that has it; its exit code.

    Raises :class:`NotFound` where none has.
    """
    checkout = find_checkout(places)
    if checkout is None:
        raise NotFound(
            "the measurements are not part of the installed package",
            hint="run this in a checkout or an unpacked source archive (pip download --no-binary :all: "
            "starverse), which has the folder benchmarks/",
        )
    path = os.pathsep.join([str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], env=environment, check=False
    ).returncode


def find_checkout(places: Sequence[Path]) -> Path | None:
    """The first place with our ``benchmarks`` folder beside the sources."""
    for place in places:
        if (place / "benchmarks" / "report.py").is_file() and (place / "src" / "starverse").is_dir():
            return place
    return None
