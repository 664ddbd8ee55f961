"""The folder that becomes ``/run/starverse/bin``: Slurm's commands and ours, for scripts in a sandbox."""

from __future__ import annotations

import shlex
from pathlib import Path

SLURM_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "salloc")


def write_shims(folder: Path, python: str) -> Path:
    """Write one small executable for each command; answers the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    calls = {
        name: f"from starverse.cli.slurm.shims import main; raise SystemExit(main({name!r}))"
        for name in SLURM_COMMANDS
    }
    calls["starverse"] = "from starverse.cli.remote.entry import main; raise SystemExit(main())"
    for name, call in calls.items():
        aside = folder / f".{name}.new"
        aside.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} -I -c {shlex.quote(call)} "$@"\n')
        aside.chmod(0o755)
        aside.rename(folder / name)
    return folder
