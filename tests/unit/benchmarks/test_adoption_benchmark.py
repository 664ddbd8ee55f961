"""Adoption after a restart: nodes for all, what counts as told, and a few allocations with a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import adoption
from benchmarks.adoption import Adoption, Outcome, Settings

from starverse.node.cards.declared import DeclaredCards

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("count", [1, 64, 65, 1000])
def test_each_allocation_has_a_declared_card(count: int) -> None:
    nodes = DeclaredCards(adoption.declared(count)).probe()
    assert sum(len(node.cards) for node in nodes) == count


def test_only_what_was_told_since_the_restart_counts(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    heard.write_text("a 10.0\nb 20.5\na 21.0\nb 22.0\nc 2")
    assert adoption.told_since(heard, 20.0) == {"a", "b"}


def test_an_allocation_that_did_not_outlive_its_server_is_shown() -> None:
    outcome = Outcome(1.0, [Adoption(2.0, 3.0, 4.0, 1.5)], [(1.0, 0.5)], [0.001], running=9, ended=1)
    judged = {f.name: f.reached for f in adoption.figures_of(outcome, 10) if f.target}
    assert judged == {
        "allocations ended or lost by restarts, of 10": False,
        "allocations that run after the last restart, of 10": False,
        "invariants of the ledger broken": True,
    }


@pytest.mark.serial
def test_a_few_allocations_are_adopted_by_a_real_server(tmp_path: Path) -> None:
    outcome = adoption.adopt(tmp_path, Settings(allocations=3, restarts=1))
    assert (outcome.running, outcome.ended, outcome.broken) == (3, 0, 0)
    (found,) = outcome.adoptions
    assert min(found.ready, found.alive, found.heard, found.cpu) > 0


def test_stand_ins_end_with_whoever_started_them(tmp_path: Path) -> None:
    (tmp_path / "allocations").mkdir()
    words = [
        sys.executable,
        "-m",
        "benchmarks.stand_in_launchers",
        str(tmp_path),
        "1",
        str(tmp_path / "heard"),
    ]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, cwd=REPOSITORY)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
