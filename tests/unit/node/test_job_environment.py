"""What a script sees: the cards granted, Slurm's names, its folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import GrantedCard
from starverse.node.environment import job_environment, rendezvous_port
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
