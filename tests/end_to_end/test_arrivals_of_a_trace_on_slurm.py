"""A small replay of arrivals on a real Slurm of eight nodes: every invariant of the replay holds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from benchmarks.philly import Arrival
from benchmarks.slurm_replay import Settings, replay

from starverse.testing.slurm_lab import SlurmLab

SIZES = (1, 1, 1, 1, 1, 2, 4, 8, 16)
"""As in the trace most jobs are small; what is larger than a node gets a whole one."""


def arrivals(count: int, seed: int) -> list[Arrival]:
    """Bursts of arrivals with gaps between them."""
    chance, at, made = random.Random(seed), 0.0, []
    for _ in range(count):
        at += chance.choice((0.0, 0.0, 0.1, 5.0))
        made.append(Arrival(at, 1.0, chance.choice(SIZES), "vc"))
    return made


def test_two_dozen_arrivals_on_eight_nodes_break_no_invariant() -> None:
    if why := SlurmLab.missing():
        pytest.skip(why)
    with SlurmLab(nodes=8) as lab:
        outcome = replay(
            lab, arrivals(24, 7), Settings(Path(), rate=10.0, open_most=16, patience_seconds=240)
        )
    assert outcome.broken == ()
    assert outcome.cards > 64, "more than all nodes have at once"
