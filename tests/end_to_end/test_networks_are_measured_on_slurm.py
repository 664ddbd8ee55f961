"""A platform on a real Slurm measures the network between its nodes, and compares one node with two."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from starverse.testing.live_person import Person
from starverse.testing.live_server import QUICK, Ground, LiveServer
from starverse.testing.slurm_lab import SlurmLab

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(SlurmLab.missing()), reason=SlurmLab.missing() or "Slurm is there"),
]
POOL = "local/rtx4090/ib"
WORK = "sleep $((4 / SLURM_NNODES))\n"


@pytest.fixture(scope="module")
def operator() -> Iterator[Person]:
    with SlurmLab(nodes=4) as lab:
        settings = {
            **QUICK,
            "engine.kind": "slurm",
            "slurm.conf": str(lab.conf),
            "slurm.partitions": "all,ib,eth",
            "slurm.cards_declared": "true",
            "slurm.poll_seconds": "0.5",
        }
        with LiveServer(Ground(cards="", settings=settings)) as server:
            server.operator.run("admin", "team", "grant", "operator", "credit", "50", "--reason", "measuring")
            yield server.operator


def test_a_pair_of_nodes_is_measured_by_a_job_and_offers_tell_it(operator: Person) -> None:
    done = operator.call("admin", "fabric", "check", "--pool", POOL, "--yes", "--json", seconds=300)
    assert done.returncode == 0, f"{done.stderr}{done.stdout}\n{operator.server.read_log()[-3000:]}"
    shown = {offer["pool"]: offer["fabric_measured"] for offer in operator.ask("offers")["items"]}
    figures = {figure["what"]: figure for figure in shown[POOL]}
    assert figures["round_trip"]["p50_nanoseconds"] > 0
    assert figures["bandwidth"]["bytes_per_second"] > 0
    has_torch = importlib.util.find_spec("torch") is not None
    assert ("all_reduce" in figures) is has_torch
    assert all(figure["same_machine"] for figure in figures.values()), "the lab's nodes are one machine"
    assert shown["local/rtx4090/eth"] == []


def test_a_record_compares_the_same_work_on_one_node_and_on_two(operator: Person) -> None:
    folder = operator.server.make_folder("work")

    def run(nodes: int) -> dict[str, Any]:
        options = (f"--nodes={nodes}", "--ntasks-per-node=1", "--gres=gpu:rtx4090:1", "--constraint=ib")
        number = operator.sbatch(WORK, *options, folder=folder)
        assert operator.wait_end(number, 90)["state"] == "succeeded"
        found: dict[str, Any] = operator.ask("job", "record", number)["scaling"]
        return found

    assert run(1)["efficiency"] is None
    both = run(2)
    assert both["compared_with"], both
    assert 0.2 < both["efficiency"] < 1.5, both["what"]
