"""``starverse up --engine slurm`` on a real Slurm of four nodes: submit, log, bill, reclaim, resume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from starverse.testing.gateway_sites import make_key
from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import check_charges, let_finish, ssh_missing
from starverse.testing.live_server import QUICK, Ground, LiveServer
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_variables

SPOT = """#SBATCH --tariff=spot --gres=gpu:rtx4090:8 --time=00:20:00
trap 'echo told; exit 99' USR1
echo "run $SLURM_RESTART_COUNT"
[ "$SLURM_RESTART_COUNT" = 0 ] || exit 0
while true; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    if why := SlurmLab.missing():
        pytest.skip(why)
    with SlurmLab(nodes=4) as lab:
        yield lab


@pytest.fixture(scope="module")
def server(lab: SlurmLab) -> Iterator[LiveServer]:
    with LiveServer(Ground(settings={**QUICK, **lab_variables(lab)})) as server:
        yield server


def test_a_job_runs_on_the_cards_that_slurm_gave_it_and_is_charged(server: LiveServer) -> None:
    ann = server.person("ann")
    number = ann.sbatch('echo "$SLURMD_NODENAME $SLURM_GPUS_ON_NODE ($CUDA_VISIBLE_DEVICES)"', "--gres=gpu:2")
    assert ann.wait_end(number)["state"] == "succeeded"
    node, count, indices = ann.log(number).split()
    assert (node[:3], count, len(indices.split(","))) == ("gpu", "2", 2)
    assert check_charges(ann, number)
    assert "idle" in ann.run("sinfo")


def test_spot_is_reclaimed_for_on_demand_and_goes_on_later(server: LiveServer, lab: SlurmLab) -> None:
    ben = server.person("ben", yuan=100)
    spot = [ben.sbatch(SPOT) for _ in range(4)]
    for number in spot:
        ben.wait_log(number, "run 0")
    assert len(lab.command("squeue", "-h").splitlines()) == 4
    urgent = ben.sbatch("echo mine", "--gres=gpu:rtx4090:8")
    assert ben.wait_end(urgent)["state"] == "succeeded"
    taken = wait_for(
        lambda: [number for number in spot if "run 1" in ben.log(number)], "a spot job to go on", 60
    )
    ben.wait_end(taken[0])
    first, second = ben.runs(taken[0])
    assert (first["cause"], first["exit_code"], second["cause"]) == ("reclaimed", 99, "completed")
    assert "told" in ben.log(taken[0])
    for number in set(spot) - set(taken):
        ben.run("scancel", number)
        assert ben.wait_end(number)["state"] == "cancelled"
    for number in (urgent, *spot):
        assert check_charges(ben, number)
    wait_for(lambda: not lab.command("squeue", "-h"), "an empty queue", 30)


def test_people_come_into_an_instance_and_find_their_files_without_cards(server: LiveServer) -> None:
    if missing := ssh_missing():
        pytest.skip(missing)
    eve = server.person("eve", yuan=50)
    (eve.home / ".ssh").mkdir(mode=0o700)
    make_key(eve.home / ".ssh" / "id_ed25519")
    eve.run("ssh-key", "add")
    eve.run("launch", "--card", "rtx4090", "--cards", "2", "--name", "box", "--yes")
    said = eve.run("exec", "box", "--", "sh", "-c", 'hostname; echo "$CUDA_VISIBLE_DEVICES" | tee kept')
    assert (said[:3], said.split()[1].count(",")) == ("gpu", 1)
    assert eve.call("exec", "box", "--", "sh", "-c", "exit 7").returncode == 7
    server.restart()
    wait_for(lambda: eve.call("exec", "box", "--", "true").returncode == 0, "its gateway", 30)
    eve.run("stop", "box")
    eve.run("start", "box", "--no-gpu", "--yes")
    there = eve.run("exec", "box", "--", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"; cat kept')
    assert there.split() == ["[]", said.split()[1]]
    eve.run("rm", "box", "--yes")


def test_a_server_killed_and_started_again_knows_its_jobs(server: LiveServer) -> None:
    cat = server.person("cat")
    number = cat.sbatch("echo begun\nwhile [ ! -e finish ]; do sleep 0.1; done\necho done", "--gres=gpu:1")
    cat.wait_log(number, "begun")
    server.restart()
    let_finish(cat, number)
    assert cat.wait_end(number)["state"] == "succeeded"
    assert cat.log(number) == "begun\ndone\n"
    assert len(cat.runs(number)) == 1


def test_a_node_that_slurm_drains_gets_no_new_job(server: LiveServer, lab: SlurmLab) -> None:
    dan = server.person("dan", yuan=60)
    lab.set_node("gpu001", "drain", "a loud fan")
    try:
        wait_for(lambda: "loud fan" in server.operator.run("admin", "node", "ls"), "the drain to be seen", 30)
        numbers = [dan.sbatch("sleep 1", "--gres=gpu:rtx4090:8") for _ in range(3)]
        for number in numbers:
            assert dan.wait_end(number)["state"] == "succeeded"
            assert "gpu001" not in str(dan.runs(number))
    finally:
        lab.set_node("gpu001", "resume")
