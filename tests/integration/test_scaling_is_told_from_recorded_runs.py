"""A run on several nodes is compared with runs of the same work on one, by their recorded times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.app import jobs as job_cases
from starverse.app.identity import Identity
from starverse.engines.fake.run import FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

SCRIPT = "#!/bin/bash\n#SBATCH --nodes={nodes}\nsrun python train.py\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        nodes = tuple(node_report(f"gpu00{number}", fabric="ib") for number in (1, 2))
        yield World(database, tmp_path / "data", nodes=nodes)


def run(
    world: World, who: Identity, nodes: int, seconds: float, *argv: str, script: str = SCRIPT, code: int = 0
) -> dict[str, Any]:
    """Run to the end; the job's scaling on its record."""
    name = f"train{nodes}"
    world.plan(name, FakeRun(run_seconds=seconds, exit_code=code))
    job = world.submit(who, *argv, name=name, script=script.format(nodes=nodes))
    world.run(seconds + 20)
    found: dict[str, Any] = job_cases.record(world.platform, who, job.number)["scaling"]
    return found


def test_the_same_work_on_one_node_and_on_two_is_compared(world: World) -> None:
    lab = world.team("lab")
    alone = run(world, lab, 1, 120)
    assert (alone["efficiency"], alone["what"]) == (None, "one node: nothing to compare")
    both = run(world, lab, 2, 75)
    assert both["efficiency"] == pytest.approx(
        both["one_node_seconds"] / (2 * both["wall_seconds"]), abs=1e-3
    )
    assert both["efficiency"] == pytest.approx(0.8, abs=0.03)
    assert len(both["compared_with"]) == 1
    assert "over ib" in both["what"]


@pytest.mark.parametrize(
    ("story", "argv", "script"),
    [
        ("another script", (), SCRIPT.replace("train.py", "test.py")),
        ("more cards on the node", ("--gres=gpu:rtx4090:4",), SCRIPT),
        ("another environment", ("--export=NONE,BATCH=64",), SCRIPT),
    ],
)
def test_other_work_is_not_compared(world: World, story: str, argv: tuple[str, ...], script: str) -> None:
    lab = world.team("lab")
    run(world, lab, 1, 60, *argv, script=script)
    found = run(world, lab, 2, 30)
    assert found["efficiency"] is None, story
    assert "--nodes=1" in found["what"]


def test_runs_of_others_and_runs_that_failed_count_for_nothing(world: World) -> None:
    lab, other = world.team("lab"), world.team("other")
    run(world, other, 1, 60)
    run(world, lab, 1, 60, code=1)
    assert run(world, lab, 2, 30)["efficiency"] is None
    failed = run(world, lab, 2, 30, code=1)
    assert (failed["efficiency"], failed["wall_seconds"]) == (None, None)
    assert "without being stopped" in failed["what"]
