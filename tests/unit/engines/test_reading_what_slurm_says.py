"""Facts from Slurm's words, in the shapes of several versions; unknown ones are borne."""

from __future__ import annotations

import pytest

from starverse.domain.slurm_cluster.reading import read_cluster
from starverse.engines.slurm.facts import SlurmCards
from starverse.engines.slurm.parsing import (
    read_gres,
    read_rest_errors,
    read_rest_jobs,
    read_rest_nodes,
    read_sacct,
    read_scontrol_nodes,
    read_squeue,
)

SCONTROL = (
    "NodeName=gpu001 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.97"
    " AvailableFeatures=ib,gpu001 ActiveFeatures=ib Gres=gpu:rtx4090:8(S:0-1) NodeHostName=vm Port=17002"
    " OS=Linux 6.1 #1 SMP @0  RealMemory=512000 AllocMem=0 Sockets=2 Boards=1 State={state}"
    " ThreadsPerCore=1 Owner=N/A Partitions=all,ib  BootTime=2026-11-30T11:12:23 AllocTRES="
    " CapWatts=n/a Reason=it smells [root@2026-11-30T14:42:22]"
)


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED", True),
        ("ALLOCATED+COMPLETING", True),
        ("IDLE+COMPLETING", True),
        ("MIXED+PLANNED", True),
        ("IDLE+DRAIN", False),
        ("MIXED+DRAIN", False),
        ("DOWN", False),
        ("DOWN*", False),
        ("IDLE*", False),
        ("ALLOCATED*", False),
        ("IDLE+NOT_RESPONDING", False),
        ("FAIL", False),
        ("IDLE+FAIL", False),
        ("UNKNOWN*", False),
        ("INVAL", False),
        ("DOWN+INVALID_REG", False),
        ("IDLE+MAINTENANCE", False),
        ("MAINT", False),
        ("RESERVED", False),
        ("IDLE+POWERED_DOWN", False),
        ("IDLE@", False),
    ],
)
def test_a_node_is_usable_by_its_state_and_flags(state: str, usable: bool) -> None:
    (node,) = read_scontrol_nodes(SCONTROL.format(state=state))
    assert node.usable is usable
    assert (node.name, node.cpus, node.memory_mib, node.sockets) == ("gpu001", 64, 512_000, 2)
    assert (node.partitions, node.features) == (("all", "ib"), ("ib", "gpu001"))
    assert node.cards == (SlurmCards("rtx4090", 8),)
    assert node.reason == "it smells"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            {
                "name": "gpu001",
                "state": "idle",
                "state_flags": ["DRAIN"],
                "partitions": ["all"],
                "features": "ib,gpu001",
                "gres": "gpu:rtx4090:8",
                "cpus": 64,
                "real_memory": 512000,
                "sockets": 2,
                "reason": "smells",
            },
            id="v0.0.38",
        ),
        pytest.param(
            {
                "name": "gpu001",
                "state": ["IDLE", "DRAIN"],
                "partitions": ["all"],
                "features": ["ib", "gpu001"],
                "gres": "gpu:rtx4090:8",
                "cpus": 64,
                "real_memory": {"set": True, "infinite": False, "number": 512000},
                "sockets": 2,
                "reason": "smells",
            },
            id="v0.0.40",
        ),
    ],
)
def test_nodes_of_slurmrestd_read_the_same_in_each_version(answer: dict[str, object]) -> None:
    (node,) = read_rest_nodes({"nodes": [answer], "last_update": 1})
    assert (node.name, node.usable, node.cpus, node.memory_mib) == ("gpu001", False, 64, 512_000)
    assert (node.partitions, node.features, node.reason) == (("all",), ("ib", "gpu001"), "smells")


@pytest.mark.parametrize(
    ("job", "over"),
    [
        ({"job_state": "RUNNING", "submit_time": 5}, False),
        ({"job_state": "COMPLETED", "submit_time": 5}, True),
        ({"job_state": ["COMPLETED"], "submit_time": {"set": True, "number": 5}}, True),
        ({"job_state": ["COMPLETED", "COMPLETING"], "submit_time": {"set": True, "number": 5}}, False),
        ({"job_state": ["PENDING", "REQUEUED"], "submit_time": {"set": True, "number": 5}}, False),
        ({"job_state": "SOMETHING_NEW", "submit_time": 5}, False),
        ({"submit_time": 5}, False),
    ],
)
def test_only_a_job_that_is_surely_over_counts_as_over(job: dict[str, object], over: bool) -> None:
    (read,) = read_rest_jobs({"jobs": [{"job_id": 7, "name": "a-1", "comment": "x", **job}]})
    assert (read.over, read.job_id, read.name, read.submitted_at) == (over, "7", "a-1", 5.0)


def test_lines_of_squeue_are_read_and_odd_ones_passed_over() -> None:
    jobs = read_squeue(
        "3|RUNNING|gpu003|2026-11-30T14:42:20|None|root|starverse x|a-1\n"
        "garbage\n"
        "4|COMPLETING|gpu[001-002]|2026-11-30T14:42:20|NodeDown|root|(null)|a|b\n"
        "5|PENDING||N/A|Resources|ann|(null)|a-3\n"
    )
    assert [(j.job_id, j.name, j.over, j.nodes, j.comment) for j in jobs] == [
        ("3", "a-1", False, "gpu003", "starverse x"),
        ("4", "a|b", False, "gpu[001-002]", ""),
        ("5", "a-3", False, "", ""),
    ]
    assert jobs[0].submitted_at > 0
    assert jobs[2].submitted_at == 0


def test_accounting_says_by_whom_it_was_cancelled_and_that_is_a_cancelled_job() -> None:
    (job,) = read_sacct("7|CANCELLED by 0|gpu001|2026-11-30T14:42:20|root|a-1\n")
    assert job.over
    assert job.name == "a-1"


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("gpu:rtx4090:8", [("rtx4090", 8)]),
        ("gpu:rtx4090:8(S:0-1),gpu:a100:2", [("rtx4090", 8), ("a100", 2)]),
        ("gpu:4", [("", 4)]),
        ("gpu", [("", 1)]),
        ("shard:8,gpu:h100:1", [("h100", 1)]),
        ("(null)", []),
        ("", []),
    ],
)
def test_cards_of_gres(text: str, cards: list[tuple[str, int]]) -> None:
    assert [(c.kind, c.count) for c in read_gres(text)] == cards


@pytest.mark.parametrize("answer", [{}, {"jobs": None}, {"jobs": "x"}, {"jobs": [1, None]}])
def test_answers_without_what_is_asked_for_hold_nothing(answer: dict[str, object]) -> None:
    assert read_rest_jobs(answer) == ()
    assert read_rest_nodes(answer) == ()
    assert read_rest_errors({"errors": [{"description": "no", "error": "x"}, 3]}) == ("no x",)


USED = ("IDLE", "MIXED", "ALLOCATED+COMPLETING", "IDLE-")
NOT_USED = (
    *("IDLE~", "IDLE#", "IDLE!", "IDLE%", "IDLE$", "IDLE@", "IDLE^", "IDLE*", "IDLE+DRAIN", "DOWN*"),
    *("MIXED+RESERVED", "IDLE+REBOOT_REQUESTED", "IDLE+POWERING_UP"),
)


@pytest.mark.parametrize("state", [*USED, *NOT_USED])
def test_plan_and_engine_agree_on_which_nodes_are_used(state: str) -> None:
    line = f"NodeName=n1 State={state} Partitions=all Gres=gpu:rtx4090:8 CPUTot=8 RealMemory=1000 Sockets=2"
    (seen,) = read_scontrol_nodes(line)
    (planned,) = read_cluster("", "", line).nodes
    assert seen.usable is planned.usable
    assert seen.usable is (state in USED)
