"""What is asked of Slurm for a launch: sizes, pinning, time limit, script; and what it is not asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import GrantedCard, Limits
from starverse.engines.slurm.batch import Site, job_request
from starverse.engines.slurm.facts import JobRequest, SlurmCards, SlurmNode, SlurmRefused
from starverse.engines.slurm.nodes import model_name, our_nodes, report
from starverse.engines.slurm.rest import submission
from starverse.testing.launches import build_launch

GIB = 1024**3
SITE = Site(python="/opt/star verse/python", srun="/usr/bin/srun", shims="/d/shims", comment="starverse-1")
NODES = {
    name: SlurmNode(
        name=name,
        states=frozenset({"IDLE"}),
        partitions=("all", fabric),
        features=(fabric, name),
        cards=(SlurmCards("RTX4090", 8),),
        cpus=64,
        memory_mib=512_000,
        sockets=2,
    )
    for name, fabric in (("n1", "ib"), ("n2", "ib"), ("n3", "eth"))
}


def request_of(*nodes: str, cards: int = 2, partitions: tuple[str, ...] = (), **changes: Any) -> JobRequest:
    granted = tuple(
        GrantedCard(f"{node}-{index}", index, f"{node}-{index}", "rtx4090", declared=False, node=node)
        for node in nodes
        for index in range(cards)
    )
    launch = build_launch(Path("/d"), "a-1", node=nodes[0], nodes=nodes, cards=granted, **changes)
    return job_request(launch, NODES, {}, partitions, SITE)


def test_a_launch_on_one_node_is_pinned_to_it_with_its_sizes() -> None:
    limits = Limits(cpus=2.5, memory_bytes=3 * GIB + 1)
    request = request_of("n1", limits=limits, time_limit_seconds=3600, grace_seconds=120)
    assert (request.name, request.nodes, request.gres) == ("a-1", ("n1",), "gpu:RTX4090:2")
    assert (request.cpus, request.memory_mib) == (3, 3 * 1024 + 1)
    assert request.time_minutes >= 60 + 2 + 20
    assert request.pins_by_feature
    assert "--node-index" in request.script
    assert "'/opt/star verse/python' -m starverse.node.launcher /d/allocations/a-1" in request.script
    assert "srun" not in request.script


def test_a_gang_starts_a_launcher_on_each_node_by_srun() -> None:
    request = request_of("n1", "n2", cards=8)
    assert (request.nodes, request.gres) == (("n1", "n2"), "gpu:RTX4090:8")
    assert "/usr/bin/srun --nodes=2 --ntasks=2 --ntasks-per-node=1" in request.script
    assert "--kill-on-bad-exit=0" in request.script


def test_a_launch_without_cards_asks_for_none() -> None:
    assert request_of("n1", cards=0).gres == ""


@pytest.mark.parametrize(
    ("ours", "expected"),
    [((), "all"), (("ib", "all"), "ib"), (("all", "ib"), "all")],
)
def test_the_first_of_our_partitions_with_all_nodes_is_taken(ours: tuple[str, ...], expected: str) -> None:
    assert request_of("n1", "n2", partitions=ours).partition == expected


@pytest.mark.parametrize(
    ("nodes", "changes", "why"),
    [
        (("nowhere",), {}, "no node nowhere"),
        (("n1",), {"cards": 9}, "has 8 cards rtx4090; 9 are asked"),
        (("n1",), {"limits": Limits(cpus=65, memory_bytes=GIB)}, "64 CPUs"),
        (("n1",), {"limits": Limits(cpus=1, memory_bytes=900 * GIB)}, "512000 MiB"),
        (("n1", "n3"), {"partitions": ("ib", "eth")}, "no partition has all"),
    ],
)
def test_what_slurm_would_keep_waiting_for_ever_is_refused(
    nodes: tuple[str, ...], changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(SlurmRefused, match=why):
        request_of(*nodes, **changes)


def test_cards_that_differ_between_nodes_are_refused() -> None:
    cards = (
        GrantedCard("n1-0", 0, "n1-0", "rtx4090", declared=False, node="n1"),
        GrantedCard("n2-0", 0, "n2-0", "rtx4090", declared=False, node="n2"),
        GrantedCard("n2-1", 1, "n2-1", "rtx4090", declared=False, node="n2"),
    )
    launch = build_launch(Path("/d"), "a-1", node="n1", nodes=("n1", "n2"), cards=cards)
    with pytest.raises(SlurmRefused, match="the same cards"):
        job_request(launch, NODES, {}, (), SITE)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (38, {"constraints": "[n1*1&n2*1]", "requeue": None}),  # the key alone means yes there
        (39, {"required_nodes": ["n1", "n2"], "requeue": False}),
    ],
)
def test_each_version_of_slurmrestd_is_told_its_own_way(version: int, told: dict[str, Any]) -> None:
    body = submission(request_of("n1", "n2"), version)
    job = body["job"]
    assert {key: job.get(key) for key in told} == told
    assert (job["dependency"], job["name"]) == ("singleton", "a-1")
    assert body["script"].startswith("#!/bin/sh\n")


def test_later_versions_have_the_script_in_the_job() -> None:
    body = submission(request_of("n1"), 40)
    assert set(body) == {"job"}
    assert body["job"]["script"].startswith("#!/bin/sh\n")
    assert body["job"]["tres_per_node"] == "gres/gpu:RTX4090:2"


@pytest.mark.parametrize(
    ("kind", "models", "model"),
    [
        ("rtx4090", {}, "rtx4090"),
        ("RTX4090", {}, "rtx4090"),
        ("nvidia_a100_80gb", {}, "a100-80g"),
        ("nvidia_a100", {"nvidia_a100": "a100-40g"}, "a100-40g"),
        ("", {"": "t4"}, "t4"),
        ("mi300x", {}, "mi300x"),
    ],
)
def test_gres_types_become_our_models(kind: str, models: dict[str, str], model: str) -> None:
    assert model_name(kind, models) == model


def test_a_node_is_reported_with_stable_cards_fabric_and_nearness() -> None:
    seen = report(NODES["n1"], "z", ("all", "ib"), {}, declared=False)
    assert (seen.node_id, seen.fabric, seen.up, seen.cpus) == ("n1", "ib", True, 64)
    assert [card.card_id for card in seen.cards] == [f"n1-{index}" for index in range(8)]
    assert {(link.a // 4, link.b // 4) for link in seen.links} == {(0, 0), (1, 1)}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (replace(NODES["n1"], partitions=("all", "ib", "theirs")), "partition theirs uses this node too"),
        (replace(NODES["n1"], states=frozenset({"IDLE", "DRAIN"}), reason="fan"), "drained in Slurm: fan"),
    ],
)
def test_a_node_that_is_not_to_be_used_says_why(node: SlurmNode, why: str) -> None:
    seen = report(node, "z", ("all", "ib"), {}, declared=False)
    assert not seen.up
    assert why in seen.message


def test_only_nodes_of_our_partitions_are_ours() -> None:
    assert [node.name for node in our_nodes(NODES.values(), ("eth",))] == ["n3"]
    assert [node.name for node in our_nodes(NODES.values(), ())] == ["n1", "n2", "n3"]
