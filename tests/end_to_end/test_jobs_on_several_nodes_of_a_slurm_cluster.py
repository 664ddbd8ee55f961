"""Jobs on several nodes of a real Slurm through the platform: srun, torchrun, a gang reclaimed and resumed.

Launchers reach the server by TLS alone, as from a machine of their own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.node import processes
from starverse.testing.live_checks import check_charges
from starverse.testing.live_server import QUICK, Ground, LiveServer
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_variables

TWO = ("-N2", "--gres=gpu:rtx4090:8")

RESUMES = """#SBATCH --tariff=spot --time=00:20:00 --mem=1G
srun -N2 "$STARVERSE_PYTHON" rank.py
"""
RANK = """import os, sys, time
from pathlib import Path
rank, source = os.environ["RANK"], os.environ["STARVERSE_RESUME_FROM"]
print("run", os.environ["SLURM_RESTART_COUNT"], "rank", rank, "from", Path(source).name, flush=True)
if source:
    sys.exit(0)
from starverse.checkpoint import Checkpointer
checkpointer = Checkpointer()
print("set", rank, flush=True)
while not checkpointer.requested:
    time.sleep(0.05)
if rank == "0":
    with checkpointer.save(7) as folder:
        (folder / "state").write_text("seven")
checkpointer.exit_for_requeue()
"""

ALL_REDUCE = """import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
place = f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']}"
sys.stdout.write(f"{place}: {value.item()}\\n")
dist.destroy_process_group()
"""
TORCHRUN = """#SBATCH --mem=3G --time=00:20:00
where="--master-addr $MASTER_ADDR --master-port $MASTER_PORT"
srun -N2 --ntasks-per-node=1 sh -c '"$STARVERSE_PYTHON" -m torch.distributed.run \
    --nnodes "$NNODES" --node-rank "$NODE_RANK" --nproc-per-node 2 '"$where"' reduce.py'
"""


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    if why := SlurmLab.missing():
        pytest.skip(why)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with SlurmLab(nodes=4) as lab:
        settings = {**QUICK, **lab_variables(lab), "server.channel": f"127.0.0.1:{port}"}
        with LiveServer(Ground(settings=settings)) as made:
            yield made


def folder_with(server: LiveServer, name: str, **files: str) -> Path:
    folder = server.make_folder(name)
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text)
    return folder


def test_srun_starts_ranks_on_both_nodes_of_a_job(server: LiveServer) -> None:
    ann = server.person("ann", yuan=200)
    script = """echo "$SLURM_JOB_NODELIST $SLURM_NNODES $SLURM_NTASKS"
srun -N2 sh -c 'echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME: $SLURM_GPUS_ON_NODE cards"; squeue -h | wc -l' | sort
"""  # noqa: E501
    number = ann.sbatch(script, *TWO)
    job = ann.wait_end(number)
    log = ann.log(number)
    assert job["state"] == "succeeded", log
    run = ann.runs(number)[0]
    first, second = run["nodes"]
    assert [line for line in log.splitlines() if line.startswith("rank")] == [
        f"rank 0 of 2 on {first}: 8 cards",
        f"rank 1 of 2 on {second}: 8 cards",
    ]
    assert "1\n1\n" in log  # squeue on either node reaches the platform and sees the job
    assert check_charges(ann, number)


@pytest.mark.torch
def test_torchrun_reduces_over_two_nodes(server: LiveServer) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install torch")
    bea = server.person("bea", yuan=200)
    number = bea.sbatch(TORCHRUN, *TWO, folder=folder_with(server, "torchrun", reduce=ALL_REDUCE))
    job = bea.wait_end(number, seconds=180)
    log = bea.log(number)
    assert job["state"] == "succeeded", log
    first, second = bea.runs(number)[0]["nodes"]
    told = sorted(line for line in log.splitlines() if line.startswith("rank "))
    assert told == [
        f"rank {rank} of 4 on {node}: 10.0" for rank, node in enumerate((first, first, second, second))
    ]


def test_a_gang_is_reclaimed_and_resumed_as_one(server: LiveServer) -> None:
    cho = server.person("cho", yuan=500)
    folder = folder_with(server, "resumes", rank=RANK)
    spot = [cho.sbatch(RESUMES, *TWO, folder=folder) for _ in range(2)]
    for number in spot:
        cho.wait_log(number, "set 0", seconds=60)
        cho.wait_log(number, "set 1", seconds=60)
    urgent = cho.sbatch("echo mine", "--gres=gpu:rtx4090:8")
    assert cho.wait_end(urgent, seconds=90)["state"] == "succeeded"
    taken = [number for number in spot if len(cho.runs(number)) > 1 or cho.runs(number)[0]["cause"]]
    assert len(taken) == 1, "one gang is enough for eight cards"
    job = cho.wait_end(taken[0], seconds=90)
    log = cho.log(taken[0])
    assert job["state"] == "succeeded", log
    first, second = cho.runs(taken[0])
    assert (first["cause"], first["exit_code"], second["cause"]) == ("reclaimed", 99, "completed")
    assert {f"run 1 rank {rank} from step-0000000007-a1" for rank in (0, 1)} <= set(log.splitlines())
    assert len(second["nodes"]) == 2
    for number in set(spot) - set(taken):
        cho.run("scancel", number)
        assert cho.wait_end(number)["state"] == "cancelled"
    for number in (urgent, *spot):
        assert check_charges(cho, number)


LOSES = """#SBATCH --time=00:20:00 --mem=1G
set -e
echo "run $SLURM_RESTART_COUNT on $SLURM_JOB_NODELIST"
[ "$SLURM_RESTART_COUNT" = 0 ] || exec srun -N2 sh -c 'echo "again $RANK"'
srun -N2 sh -c 'echo "up $RANK"; exec sleep 300'
"""


def test_a_gang_that_loses_a_launcher_runs_again_as_one(server: LiveServer) -> None:
    dan = server.person("dan", yuan=500)
    number = dan.sbatch(LOSES, *TWO)
    dan.wait_log(number, "up 1", seconds=60)
    allocation = dan.runs(number)[0]["id"]
    victims = companions(allocation)
    assert victims
    processes.send(victims, signal.SIGKILL)
    job = dan.wait_end(number, seconds=90)
    log = dan.log(number)
    assert job["state"] == "succeeded", log
    assert [run["cause"] for run in dan.runs(number)] == ["node_lost", "completed"]
    assert {"again 0", "again 1"} <= set(log.splitlines())
    assert check_charges(dan, number)


def companions(allocation_id: str) -> list[int]:
    """The launchers of its second node."""
    wanted = [allocation_id.encode(), b"--node-index", b"1"]
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().rstrip(b"\0").split(b"\0")
            if b"starverse.node.launcher" in words and words[-2:] == wanted[1:] and wanted[0] in words[-3]:
                found.append(int(file.parent.name))
    return found
