"""Scaling efficiency from recorded wall times, and the plain words where there is none."""

from __future__ import annotations

import pytest

from starverse.domain.fabric.scaling import Run, scaling_of, work_digest


def run(number: str, nodes: int, seconds: float) -> Run:
    return Run(number, nodes, seconds, "ib")


@pytest.mark.parametrize(
    ("story", "own", "nodes", "others", "efficiency", "says"),
    [
        ("twice the speed", run("9", 2, 50), 2, [run("3", 1, 100)], 1.0, "100% of 2 times"),
        ("a little less", run("9", 4, 31.25), 4, [run("3", 1, 100)], 0.8, "80% of 4 times"),
        ("slower than one", run("9", 2, 100), 2, [run("3", 1, 80)], 0.4, "40%"),
        (
            "the median of several",
            run("9", 2, 50),
            2,
            [run("3", 1, 90), run("4", 1, 100), run("5", 1, 500)],
            1.0,
            "3 jobs (median)",
        ),
        ("nothing on one node", run("9", 2, 50), 2, [run("8", 4, 30)], None, "--nodes=1"),
        ("stopped in between", None, 2, [run("3", 1, 100)], None, "without being stopped"),
        ("one node itself", run("3", 1, 100), 1, [run("4", 1, 90)], None, "nothing to compare"),
        ("no time at all", run("9", 2, 0), 2, [run("3", 1, 100)], None, "--nodes=1"),
    ],
)
def test_efficiency(
    story: str, own: Run | None, nodes: int, others: list[Run], efficiency: float | None, says: str
) -> None:
    found = scaling_of(own, nodes, others)
    assert found.efficiency == (None if efficiency is None else pytest.approx(efficiency)), story
    assert says in found.what


SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n"


@pytest.mark.parametrize(
    ("story", "script", "arguments", "further", "same"),
    [
        ("other directives", SCRIPT.replace("--nodes=2", "--nodes=1"), (), ("f",), True),
        ("one directive more", "#!/bin/bash\n#SBATCH --mem=4G\n" + SCRIPT[12:], (), ("f",), True),
        ("another command", SCRIPT.replace("train", "test"), (), ("f",), False),
        ("an argument", SCRIPT, ("--big",), ("f",), False),
        ("another folder", SCRIPT, (), ("g",), False),
        ("an argument is no folder", SCRIPT, ("f",), (), False),
    ],
)
def test_what_is_the_same_work(
    story: str, script: str, arguments: tuple[str, ...], further: tuple[str, ...], same: bool
) -> None:
    assert (work_digest(script, arguments, further) == work_digest(SCRIPT, (), ("f",))) is same, story
