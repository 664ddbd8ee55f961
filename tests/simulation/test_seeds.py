"""Worlds from seeds: random moves, rounds in random order, servers that die between any two steps.

A seed that fails prints the one line that reproduces it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from starverse.testing.platforms import POSTGRES_VARIABLE
from starverse.testing.simulation import simulate

SEEDS = range(int(os.environ.get("STARVERSE_SIMULATION_SEEDS", "24")))
STEPS = 100
POSTGRES_STEPS = 40


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.xdist_group(f"seed-{seed}")) for seed in SEEDS]
)
def test_a_world_keeps_every_invariant(seed: int) -> None:
    outcome = simulate(seed, STEPS)
    assert outcome.allocations > 0
    assert outcome.crashes > 0


@pytest.mark.postgres
@pytest.mark.xdist_group("seed-postgresql")
@pytest.mark.parametrize("seed", range(3))
def test_a_world_on_postgresql_keeps_every_invariant(seed: int) -> None:
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    outcome = simulate(seed, POSTGRES_STEPS, kind="postgresql")
    assert outcome.allocations > 0
    assert outcome.crashes > 0


@pytest.mark.xdist_group("seed-repeated")
def test_a_seed_is_the_same_world_in_every_process() -> None:
    """Whatever the order in which a process hashes: the history of a seed is told by the seed alone."""
    told = set()
    for hashing in ("1", "2"):
        command = [sys.executable, "-m", "starverse.testing.simulation", "--seed", "5", "--steps", "25"]
        environment = {**os.environ, "PYTHONHASHSEED": hashing}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.add(done.stdout)
    assert len(told) == 1
    assert "digest=" in told.pop()
