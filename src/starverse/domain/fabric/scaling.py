"""Scaling efficiency of a run: the same work on one node and on N, by the wall times that were recorded.

The work is the same where script (without its ``#SBATCH`` lines), arguments, folder, datasets and environment
are, and cards per node and their model. Efficiency is ``T1 / (N x TN)``: 1.0 says that N nodes took an N-th
of the time (strong scaling). A script that does more work on more nodes is not compared by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Run:
    """A run that succeeded at its first start. ``wall_seconds`` is from ready to the end."""

    job_number: str
    nodes: int
    wall_seconds: float
    fabric: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """``efficiency`` ``None``: there is nothing to compare with, ``what`` says so.

    ``baseline_seconds`` is the median over the runs on one node that ``compared_with`` names.
    """

    nodes: int
    wall_seconds: float | None
    baseline_seconds: float | None
    compared_with: tuple[str, ...]
    efficiency: float | None
    what: str


def scaling_of(run: Run | None, nodes: int, others: Sequence[Run]) -> Scaling:
    """Compare a run with those of the same work on one node; ``run`` ``None``: it has no whole wall time."""
    if nodes == 1:
        return Scaling(1, run.wall_seconds if run else None, None, (), None, "one node: nothing to compare")
    if run is None:
        what = "only a run that succeeded without being stopped in between has a time to compare"
        return Scaling(nodes, None, None, (), None, what)
    base = [other for other in others if other.nodes == 1]
    if not base or run.wall_seconds <= 0:
        what = "no run of the same work on one node is known; submit it once with --nodes=1"
        return Scaling(nodes, run.wall_seconds, None, (), None, what)
    baseline = float(median(other.wall_seconds for other in base))
    efficiency = baseline / (nodes * run.wall_seconds)
    names = tuple(other.job_number for other in base)
    of = f"job {names[0]}" if len(names) == 1 else f"{len(names)} jobs (median)"
    what = (
        f"{baseline:.1f} s on one node ({of}), {run.wall_seconds:.1f} s on {nodes} nodes over {run.fabric}: "
        f"{efficiency:.0%} of {nodes} times the speed"
    )
    return Scaling(nodes, run.wall_seconds, baseline, names, efficiency, what)


def work_digest(script: str, arguments: Sequence[str], further: Sequence[str]) -> str:
    """What makes two runs the same work: the script without its directives, arguments, and further names."""
    lines = [line for line in script.splitlines() if not line.startswith("#SBATCH")]
    digest = hashlib.sha256()
    for part in ("\n".join(lines), *arguments, "", *further):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()
