"""``shims install DIR``: Slurm's commands as small scripts in a folder of the path."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from starverse.cli.remote.commands import Group, command
from starverse.cli.remote.session import Session

NAMES = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "salloc")
_MARK = "# a starverse shim"


def shim_text(name: str, python: str) -> str:
    """The script of one shim: this interpreter, kept from the caller's folder and PYTHON* variables (-I)."""
    call = f"from starverse.cli.slurm.shims import main; raise SystemExit(main({name!r}))"
    return f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(python)} -I -c {shlex.quote(call)} "$@"\n'


def install_shims(folder: Path, python: str) -> list[Path]:
    """Write all shims; a file of the same name that is no shim of ours is left alone and refused."""
    foreign = [name for name in NAMES if (folder / name).exists() and not _ours(folder / name)]
    if foreign:
        raise click.UsageError(
            f"{folder} already has {', '.join(foreign)}, which starverse did not write; choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in NAMES:
        place = folder / name
        place.write_text(shim_text(name, python), encoding="utf-8")
        place.chmod(0o755)
        written.append(place)
    return written


def _ours(place: Path) -> bool:
    with place.open("rb") as file:
        return _MARK.encode() in file.read(400)


@click.group("shims", cls=Group, help="Slurm's commands, for machines outside the platform.")
def group() -> None:
    """Slurm's commands, for machines outside the platform."""


@command("Write sbatch, squeue, scancel, sinfo, sacct, srun and salloc into a folder.")
@click.argument("folder", metavar="DIR")
def install(session: Session, folder: str) -> None:
    place = (session.folder / folder).resolve()
    written = install_shims(place, sys.executable)
    session.emit({"items": [str(path) for path in written]}, lambda: "\n".join(map(str, written)))
    session.note(f'put them first on the path: export PATH="{place}:$PATH"')


group.add_command(install)
