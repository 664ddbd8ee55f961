"""``salloc``: refused in plain words; there is no allocation without a script in this version."""

from __future__ import annotations

from collections.abc import Sequence

from starverse.cli.remote.session import Session


def main(arguments: Sequence[str], session: Session) -> int:
    session.note(
        "salloc: error: interactive allocations come with instances in a later version\n"
        "salloc: error: use: sbatch --wait --wrap 'COMMAND', or sbatch SCRIPT and `starverse job logs -f JOB`"
    )
    return 1
