"""Costs and nodes that `job show`, `queue` and `job ls` tell, beside the bill and the record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.app import jobs as job_cases
from starverse.app.views import JobFilter
from starverse.domain.money import Money, total
from starverse.domain.workloads.states import JobState
from starverse.testing.http_sites import PREFIX, open_site
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_the_cost_so_far_is_the_bills_charges_and_running_estimates(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=2 * 3600)
    job = world.submit(lab, name="train")
    for _ in range(5):  # within the first hour and beyond it
        world.run(1000, step=250)
        bill = world.bill(lab, job.number)
        shown, listed = world.job(lab, job.number), _listed(world, lab)[job.number]
        assert shown.cost_so_far == bill.total + total([one.amount for one in bill.open]) > Money(0)
        assert listed == shown.cost_so_far
    world.run(4000, step=250)
    ended = world.job(lab, job.number)
    assert ended.state is JobState.SUCCEEDED
    assert ended.cost_so_far == world.bill(lab, job.number).total == Money(2 * 1_660_000)


def test_an_array_shows_what_all_its_tasks_cost(world: World) -> None:
    lab = world.team("lab")
    world.plan("many", run_seconds=300)
    first = world.submit(lab, "--array=1-4", "--gres=gpu:rtx4090:4", name="many")
    number = first.number.partition("_")[0]
    world.run(400, step=20)  # two at a time: two are over, two run
    whole = world.job(lab, number)
    tasks = [world.job(lab, f"{number}_{index}") for index in range(1, 5)]
    assert whole.tasks is not None
    assert sum(whole.tasks.values()) == 4
    assert len({task.state for task in tasks}) == 2
    assert whole.cost_so_far == total([task.cost_so_far for task in tasks])
    assert whole.cost_so_far > tasks[0].cost_so_far > Money(0)


def test_an_ended_job_keeps_the_node_it_ran_on(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=60)
    job = world.submit(lab, name="train")
    assert world.job(lab, job.number).node_list == ""
    world.run(30, step=5)
    running = world.job(lab, job.number).node_list
    world.run(60, step=10)
    ended = world.job(lab, job.number)
    assert ended.state is JobState.SUCCEEDED
    assert ended.node_list == running != ""


@pytest.mark.parametrize(("driver", "told"), [("bwrap", False), ("process", True)])
def test_a_submission_is_told_of_a_server_without_a_sandbox(
    kind: str, tmp_path: Path, driver: str, told: bool
) -> None:
    with open_site(kind, tmp_path, driver=driver) as site:
        person = site.operator()
        script = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\ntrue\n"
        answer = person.client.post(f"{PREFIX}/jobs", json={"script": script, "lint": True}).json()
        assert any("without a sandbox; run anything" in text for text in answer["notices"]) is told


def test_a_lint_gives_the_line_of_what_it_refuses(kind: str, tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n#SBATCH --time=never\n#SBATCH --nodes=x\n"
        "#SBATCH --dataset=nosuch\n"
    )
    with open_site(kind, tmp_path) as site:
        person = site.register()
        answer = person.client.post(
            f"{PREFIX}/jobs", json={"script": script, "argv": ["--mem=lots"], "lint": True}
        )
        refused = {one["text"].split(" ")[0]: one["line"] for one in answer.json()["refused"]}
        assert refused["--time"] == 3
        assert refused["--nodes"] == 4
        assert refused["--mem"] is None
        script = script.replace("--time=never", "--time=5").replace("--nodes=x", "--nodes=1")
        answer = person.client.post(f"{PREFIX}/jobs", json={"script": script, "lint": True})
        (fault,) = answer.json()["refused"]
        assert "nosuch" in fault["text"]
        assert fault["line"] == 5


def _listed(world: World, who: Any) -> dict[str, Money]:
    page = job_cases.list_jobs(world.platform, who, JobFilter())
    return {job.number: job.cost_so_far for job in page.items}


def test_the_workload_is_told_that_its_cost_limit_ends_it(world: World) -> None:
    """The platform's word comes before the launcher's own, which only knows that its funds end."""
    lab = world.team("lab")
    world.plan("capped", run_seconds=7200, obeys_notice=False)
    job = world.submit(lab, "--cost-max=0.5", name="capped")
    told: list[str] = []
    world.run(1000, step=100)
    for _ in range(75):
        world.run(2, step=2)
        shown = world.job(lab, job.number)
        states = world.engine.observe([shown.allocations[0].id])
        told += [seen.state.notice_reason for seen in states.values() if seen.state is not None]
        if shown.state is not JobState.RUNNING:
            break
    assert [reason for reason in dict.fromkeys(told) if reason] == ["cost_max"]
    ended = world.job(lab, job.number)
    assert (ended.state, ended.reason) == (JobState.FAILED, "cost_max")
    assert Money(400_000) < ended.cost_so_far <= Money(500_000)
