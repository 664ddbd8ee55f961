"""Checks of the network: chosen, run once as jobs, and turned into figures only by what a probe printed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.db import jobs
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.specs import Network
from starverse.engines.fake.run import FakeRun
from starverse.testing.http_sites import PREFIX, Person, Site, open_site
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import POSTGRES_VARIABLE

POOL = "bj1/rtx4090/ib"
ALONE = "bj1/a100-40g/eth"
NODES = (
    *(node_report(f"gpu00{number}", fabric="ib") for number in (1, 2, 3)),
    node_report("big1", "a100-40g", fabric="eth"),
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with open_site(request.param, tmp_path, nodes=NODES) as opened:
        opened.world.plan("fabric-check", FakeRun(run_seconds=30))
        yield opened


@pytest.fixture
def operator(site: Site) -> Person:
    person = site.operator()
    person.post(
        f"/admin/teams/{person.team}/grants", {"kind": "credit", "amount": "50", "reason": "measuring"}
    )
    return person


def result(*nodes: str, **changes: Any) -> dict[str, Any]:
    """What ``fabric-probe`` prints about two nodes."""
    return {
        "version": 1,
        "nodes": list(nodes),
        "same_machine": False,
        "figures": [
            {
                "what": "round_trip",
                "method": "tcp",
                "p50_nanoseconds": 21_000,
                "p99_nanoseconds": 43_000,
                "message_bytes": 64,
            },
            {"what": "bandwidth", "method": "tcp", "bytes_per_second": 2_900_000_000},
            {"what": "all_reduce", "method": "gloo", "bytes_per_second": 1_200_000_000},
        ],
        "left_out": {"nccl": "no CUDA card on both nodes"},
        **changes,
    }


def start(site: Site, operator: Person, **body: Any) -> dict[str, Any]:
    """Ask for checks, and let their jobs start."""
    batch: dict[str, Any] = operator.post("/admin/fabric/checks", {"pool": POOL, **body})
    site.world.run_reconciler("fabric")
    site.world.run(5)
    return batch


def see(operator: Person, batch: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = operator.get(f"/admin/fabric/checks/{batch['id']}")
    return found


def print_result(
    site: Site, number: str, content: dict[str, Any] | bytes | None, seconds: float = 60
) -> None:
    """What the job's script leaves in its folder; then time passes, by default until after the job's end."""
    with site.platform.database.read() as connection:
        (job,) = jobs.by_number(connection, int(number))
    folder = site.platform.paths.workspace(job.workspace_id)
    folder.mkdir(parents=True, exist_ok=True)
    if content is not None:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / "fabric.json").write_bytes(raw)
    site.world.run(seconds)


def test_nothing_is_shown_before_it_was_measured(site: Site, operator: Person) -> None:
    assert {offer["pool"]: offer["fabric_measured"] for offer in operator.get("/offers")["items"]} == {
        POOL: [],
        ALONE: [],
    }
    assert [(pool["pool"], pool["shown"]) for pool in operator.get("/admin/fabric")["items"]] == [
        (ALONE, []),
        (POOL, []),
    ]


def test_a_pair_is_measured_by_a_job_of_these_two_nodes_and_offers_show_it(
    site: Site, operator: Person
) -> None:
    batch = start(site, operator)
    (check,) = see(operator, batch)["checks"]
    assert (check["state"], check["nodes"]) == ("running", ["gpu001", "gpu002"])
    with site.platform.database.read() as connection:
        (job,) = jobs.by_number(connection, int(check["job"]))
    assert (job.spec.resources.nodes, job.spec.resources.cards_per_node) == (2, 1)
    assert (job.spec.tariff, job.spec.network, job.spec.requeue) == (Tariff.SPOT, Network.HOST, False)
    assert set(job.spec.resources.nodelist) == {"gpu001", "gpu002"}
    print_result(site, check["job"], result("gpu001", "gpu002"))
    (done,) = see(operator, batch)["checks"]
    assert done["state"] == "measured", done
    assert "no CUDA card" in done["message"]
    shown = {offer["pool"]: offer["fabric_measured"] for offer in operator.get("/offers")["items"]}
    assert shown[ALONE] == []
    assert [(f["what"], f["method"], f["bytes_per_second"]) for f in shown[POOL]] == [
        ("round_trip", "tcp", None),
        ("bandwidth", "tcp", 2_900_000_000),
        ("all_reduce", "gloo", 1_200_000_000),
    ]
    with site.platform.database.read() as connection:
        (ended,) = jobs.by_number(connection, int(check["job"]))
    assert ended.ended_at is not None
    assert {f["measured_at"] for f in shown[POOL]} == {ended.ended_at.isoformat().replace("+00:00", "Z")}
    (pool,) = [pool for pool in operator.get("/admin/fabric")["items"] if pool["pool"] == POOL]
    assert [figure["nodes"] for figure in pool["pairs"]] == [["gpu001", "gpu002"]] * 3
    site.world.assert_sound()


def test_the_next_pair_is_one_that_was_measured_longest_ago(site: Site, operator: Person) -> None:
    seen = set()
    for _ in range(3):
        batch = start(site, operator)
        (check,) = see(operator, batch)["checks"]
        seen.add(tuple(check["nodes"]))
        print_result(site, check["job"], result(*check["nodes"]))
    assert seen == {("gpu001", "gpu002"), ("gpu001", "gpu003"), ("gpu002", "gpu003")}


@pytest.mark.parametrize(
    ("story", "content", "says"),
    [
        ("the script printed nothing", None, "fabric.json"),
        ("no JSON", b"Segmentation fault", "no JSON"),
        ("other nodes", result("gpu001", "gpu003"), "ran on"),
        ("no figures", result("gpu001", "gpu002", figures=[]), "measured nothing"),
        ("too long", b" " * 200_000, "too long"),
    ],
)
def test_what_is_no_result_of_these_nodes_becomes_no_figure(
    site: Site, operator: Person, story: str, content: dict[str, Any] | bytes | None, says: str
) -> None:
    batch = start(site, operator)
    print_result(site, see(operator, batch)["checks"][0]["job"], content)
    (check,) = see(operator, batch)["checks"]
    assert check["state"] == "failed", story
    assert says in check["message"]
    assert all(not pool["pairs"] for pool in operator.get("/admin/fabric")["items"])


def test_a_link_that_leads_out_of_the_folder_is_not_read(
    site: Site, operator: Person, tmp_path: Path
) -> None:
    (tmp_path / "planted.json").write_text(json.dumps(result("gpu001", "gpu002")))
    batch = start(site, operator)
    number = see(operator, batch)["checks"][0]["job"]
    with site.platform.database.read() as connection:
        (job,) = jobs.by_number(connection, int(number))
    folder = site.platform.paths.workspace(job.workspace_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fabric.json").symlink_to(tmp_path / "planted.json")
    print_result(site, number, None)
    assert see(operator, batch)["checks"][0]["state"] == "failed"


def test_a_job_that_failed_gives_no_figure_even_with_a_result(site: Site, operator: Person) -> None:
    site.world.plan("fabric-check", FakeRun(run_seconds=30, exit_code=1))
    batch = start(site, operator)
    print_result(site, see(operator, batch)["checks"][0]["job"], result("gpu001", "gpu002"))
    (check,) = see(operator, batch)["checks"]
    assert (check["state"], "failed" in check["message"]) == ("failed", True)


def test_repeating_a_request_or_a_round_starts_nothing_twice(site: Site, operator: Person) -> None:
    key = {"Idempotency-Key": "measure-once"}
    body = {"pool": POOL, "pairs": 3}
    first = operator.post("/admin/fabric/checks", body, headers=key)
    again = operator.post("/admin/fabric/checks", body, headers=key)
    assert again["id"] == first["id"]
    for _ in range(20):
        for _ in range(2):
            site.world.run_reconciler("fabric")
        site.world.restart()
        running = [check for check in see(operator, first)["checks"] if check["state"] == "running"]
        assert len(running) <= 1
        for check in running:
            print_result(site, check["job"], result(*check["nodes"]), seconds=10)
    done = see(operator, first)["checks"]
    assert [check["state"] for check in done] == ["measured"] * 3
    assert {job["number"] for job in operator.get("/jobs")["items"]} == {check["job"] for check in done}


def test_without_money_the_check_says_so_and_no_job_is_left(site: Site) -> None:
    poor = site.operator()
    batch = start(site, poor)
    (check,) = see(poor, batch)["checks"]
    assert check["state"] == "failed"
    assert "wallet" in check["message"]
    assert poor.get("/jobs")["items"] == []


def test_a_plan_changes_nothing(site: Site, operator: Person) -> None:
    planned = operator.post("/admin/fabric/checks", {"pool": POOL, "pairs": 2, "lint": True})
    assert planned["id"] is None
    assert [check["nodes"] for check in planned["checks"]] == [["gpu001", "gpu002"], ["gpu001", "gpu003"]]
    assert "2 x rtx4090/ib spot" in planned["price"]
    assert site.world.run_reconciler("fabric") == ""
    assert operator.get("/jobs")["items"] == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"pool": "bj1/h900/ib"}, POOL),
        ({"pool": ALONE}, "has 1"),
        ({"pairs": 0}, "between 1 and 100"),
        ({"pairs": 101}, "between 1 and 100"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_can(
    operator: Person, body: dict[str, Any], says: str
) -> None:
    problem = operator.post("/admin/fabric/checks", body, status=422)
    assert says in json.dumps(problem)


def test_only_operators_measure(site: Site) -> None:
    person = site.register()
    assert person.client.post(f"{PREFIX}/admin/fabric/checks", json={}).status_code == 403
    assert person.client.get(f"{PREFIX}/admin/fabric").status_code == 403
    assert person.client.get(f"{PREFIX}/admin/fabric/checks/x").status_code == 403
