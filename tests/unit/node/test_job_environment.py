"""What a script sees: the cards granted, Slurm's names, its folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import GrantedCard
from starverse.node.environment import NodePlace, job_environment, rendezvous_port, tasks_per_node
from starverse.node.gang import part_of
from starverse.node.sandbox.bwrap import PLACES
from starverse.testing.launches import build_launch

REAL = (
    GrantedCard("GPU-a", 3, "GPU-a", "a100-40g", declared=False),
    GrantedCard("GPU-b", 5, "GPU-b", "a100-40g", declared=False),
)


def environment(**changes: Any) -> dict[str, str]:
    return job_environment(build_launch(Path("/nowhere"), **changes), PLACES, "/usr/bin/python3")


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({}, "CUDA_VISIBLE_DEVICES", "0,1"),
        ({"cards": REAL}, "CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"),
        ({"cards": ()}, "CUDA_VISIBLE_DEVICES", ""),
        ({"environment": (("CUDA_VISIBLE_DEVICES", "0,1,2,3,4"),)}, "CUDA_VISIBLE_DEVICES", "0,1"),
        ({"environment": (("SLURM_JOB_ID", "1"),)}, "SLURM_JOB_ID", "123"),
        ({"environment": (("PATH", "/mine"),)}, "PATH", "/mine"),
        ({"environment": (("SLURM_JOB_NAME", "train"),)}, "SLURM_JOB_NAME", "train"),
        ({}, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ({}, "SLURM_GPUS_ON_NODE", "2"),
        ({"job_number": "123_4", "own_number": 128}, "SLURM_JOB_ID", "128"),
        ({"job_number": "123_4", "own_number": 128}, "SLURM_JOBID", "128"),
        ({"job_number": "123_4"}, "SLURM_ARRAY_JOB_ID", "123"),
        ({"job_number": "123_4"}, "SLURM_ARRAY_TASK_ID", "4"),
        ({"attempt": 3}, "SLURM_RESTART_COUNT", "2"),
        ({"attempt": 3}, "STARVERSE_RETRY", "3"),
        ({}, "STARVERSE_RESUME_FROM", ""),
        ({"resume_from": "step-9"}, "STARVERSE_RESUME_FROM", "/checkpoint/step-9"),
        ({}, "STARVERSE_NOTICE_FILE", "/run/starverse/notice.json"),
        ({"chdir": "sub"}, "PWD", "/workspace/sub"),
        ({}, "PWD", "/workspace"),
        ({}, "PYTHONPATH", "/run/starverse/bin/lib"),
        ({"environment": (("PYTHONPATH", "/mine"),)}, "PYTHONPATH", "/mine"),
        ({"api_socket": "/host/api.sock"}, "STARVERSE_API", "unix:/run/starverse/api.sock"),
    ],
)
def test_variable(changes: dict[str, Any], name: str, value: str) -> None:
    assert environment(**changes)[name] == value


def test_without_an_api_there_is_nothing_to_reach() -> None:
    assert "STARVERSE_API" not in environment()
    assert "SLURM_ARRAY_TASK_ID" not in environment()


def test_rendezvous_port_is_free_for_users_and_stable() -> None:
    assert rendezvous_port("123") == 20_123
    assert rendezvous_port("123_4") == 21_234
    assert all(20_000 <= rendezvous_port(str(number)) < 30_000 for number in range(0, 50_000, 997))


HOSTS = (("gpu001", "10.0.0.1"), ("gpu002", "10.0.0.2"))


def of_node(index: int, **changes: Any) -> dict[str, str]:
    cards = tuple(
        GrantedCard(f"c{n}", n, "x", "rtx4090", declared=True, node=HOSTS[n // 4][0]) for n in (1, 6)
    )
    names = tuple(name for name, _ in HOSTS)
    spec = build_launch(Path("/nowhere"), node="gpu001", nodes=names, cards=cards, **changes)
    return job_environment(part_of(spec, index), PLACES, "/usr/bin/python3", NodePlace(index, HOSTS))


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("SLURM_JOB_NODELIST", "gpu[001-002]", "gpu[001-002]"),
        ("SLURMD_NODENAME", "gpu001", "gpu002"),
        ("SLURM_NODEID", "0", "1"),
        ("NODE_RANK", "0", "1"),
        ("SLURM_NNODES", "2", "2"),
        ("SLURM_NTASKS", "2", "2"),
        ("SLURM_TASKS_PER_NODE", "1(x2)", "1(x2)"),
        ("CUDA_VISIBLE_DEVICES", "1", "6"),
        ("SLURM_JOB_GPUS", "1", "6"),
        ("SLURM_GPUS_ON_NODE", "1", "1"),
        ("MASTER_ADDR", "10.0.0.1", "10.0.0.1"),
        ("STARVERSE_NODES", "gpu001=10.0.0.1,gpu002=10.0.0.2", "gpu001=10.0.0.1,gpu002=10.0.0.2"),
        ("STARVERSE_GANG", "/run/starverse/gang.sock", None),
        ("STARVERSE_RANKS", None, "/run/starverse/ranks.sock"),
    ],
)
def test_variable_of_each_node(name: str, first: str | None, second: str | None) -> None:
    assert [of_node(index).get(name) for index in (0, 1)] == [first, second]


def test_what_the_job_asked_decides_over_the_tasks() -> None:
    seen = of_node(1, environment=(("SLURM_NTASKS", "5"), ("SLURM_NODEID", "7")))
    assert (seen["SLURM_TASKS_PER_NODE"], seen["SLURM_NTASKS"], seen["SLURM_NODEID"]) == ("3,2", "5", "1")


@pytest.mark.parametrize(
    ("tasks", "nodes", "written"),
    [(1, 1, "1"), (8, 1, "8"), (4, 2, "2(x2)"), (5, 3, "2(x2),1"), (1, 2, "1(x2)")],
)
def test_tasks_per_node_as_slurm_writes_them(tasks: int, nodes: int, written: str) -> None:
    assert tasks_per_node(tasks, nodes) == written


@pytest.mark.parametrize(
    ("fabric", "seen"),
    [
        ("ib", {"NCCL_IB_DISABLE": "0"}),
        ("roce", {"NCCL_IB_DISABLE": "0", "NCCL_IB_GID_INDEX": "3"}),
        ("eth", {"NCCL_IB_DISABLE": "1"}),
        ("", {}),
    ],
)
def test_nccl_is_set_by_the_fabric_and_the_job_may_say_otherwise(fabric: str, seen: dict[str, str]) -> None:
    found = of_node(0, fabric=fabric)
    assert {name: value for name, value in found.items() if name.startswith("NCCL")} == seen
    asked = of_node(0, fabric=fabric, environment=(("NCCL_IB_DISABLE", "mine"),))
    assert asked["NCCL_IB_DISABLE"] == "mine"
